<%doc>
2^x of a vector, inline: a loop over scores calls no function. A caller folds the logarithm of e into a factor.

vec         its lanes
</%doc>
<% vf, vi = f"float{vec}", f"int{vec}" %>\
// 2^x of x up to 127, with a relative error of at most 3e-7; 0 where x is below -127.
// x is n + r, r between -0.5 and 0.5. The lowest bits of n + 127 + 1.5 * 2^23 are those of n + 127, the
// exponent of 2^n; with n = -127 its bits are those of 0.
${vf} power_of_two(const ${vf} x)
{
    const ${vf} kept = select(x, (${vf})(-127.0f), x < -127.0f);
    const ${vf} whole = kept + 12583039.0f;
    const ${vf} r = kept - (whole - 12583039.0f);
    ${vf} value = 0.00132764701f * r + 0.00967554096f;
% for factor in ("0.0555071309f", "0.240221202f", "0.693146944f", "1.0f"):
    value = value * r + ${factor};
% endfor
    return value * as_${vf}(as_${vi}(whole) << 23);
}
