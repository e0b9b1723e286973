<%doc>
e^x of a vector, inline: a loop over scores calls no function.

vec         its lanes
</%doc>
<% vf, vi = f"float{vec}", f"int{vec}" %>\
// e^x of x up to 88, with a relative error of 2.4e-7; 0 below -88. x is n + r powers of two with r
// of half a one at most. Added to 1.5 * 2^23, n is what the lowest bits hold. 2^r is a polynomial,
// exact to 2e-9. The bits of n = -127 as an exponent are those of 0.
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
