<%doc>
e^x of a vector, inline: a loop over scores calls no function.

vec         its lanes
</%doc>
<% vf, vi = f"float{vec}", f"int{vec}" %>\
// e^x of x up to 88, with a relative error of at most 2e-7 + 1e-7 |x|; 0 where x is below -88.
// x is n + r powers of two, r between -0.5 and 0.5. The lowest bits of n + 1.5 * 2^23 are those of n.
// 2^r is a polynomial, exact to 2e-9. With n = -127, the exponent's bits are those of 0.
${vf} power(const ${vf} x)
{
    const ${vf} kept = select(x, (${vf})(-88.0f), x < -88.0f);
    const ${vf} whole = kept * 1.44269504f + 12582912.0f;
    const ${vf} r = kept * 1.44269504f - (whole - 12582912.0f);
    ${vf} value = 0.000153533620f * r + 0.00133988750f;
% for factor in ("0.00961843692f", "0.0555033237f", "0.240226477f", "0.693147182f", "1.0f"):
    value = value * r + ${factor};
% endfor
    return value * as_${vf}((as_${vi}(whole) << 23) + 0x3f800000);
}
