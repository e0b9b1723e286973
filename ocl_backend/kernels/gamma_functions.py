"""OpenCL C of the gamma function's kin, in the type `T`: float or double. Text, no code.

Series and recurrences are those of Abramowitz and Stegun, chapters 6 and 23,
cited by number. They are right to the precision.
"""

from __future__ import annotations

LGAMMA = """\
const T z = fabs(self);
T y = z;
T product = z < 0.5 ? z * (z + 1.0) : z < 1.5 ? z : (T)(1);
product = y >= 2.5 ? product * (y - 1.0) : product;
y = y >= 2.5 ? y - 1.0 : y;
product = y >= 2.5 ? product * (y - 1.0) : product;
y = y >= 2.5 ? y - 1.0 : y;
product = y >= 2.5 ? product * (y - 1.0) : product;
y = y >= 2.5 ? y - 1.0 : y;
product = y >= 2.5 ? product * (y - 1.0) : product;
y = y >= 2.5 ? y - 1.0 : y;
const T l = log(z < 6.0 ? product : z * 0.36787944117144232160);
const T t = z < 0.5 ? z : z < 1.5 ? z - 1.0 : y - 2.0;
T near = (T)(-9.43948828e-06);
near = near * t + 2.05072128e-05;
near = near * t + -4.49262367e-05;
near = near * t + 9.94575128e-05;
near = near * t + -0.000223155;
near = near * t + 0.00050967;
near = near * t + -0.001192754;
near = near * t + 0.00289051;
near = near * t + -0.007385551;
near = near * t + 0.020580808;
near = near * t + -0.067352301;
near = near * t + 0.322467033;
near = near * t + 0.422784335;
near = near * t + (z < 1.5 ? -l : l);
const T u = 1.0 / (z * z);
const T far = (z - 0.5) * l + 0.41893853320467274
    + (0.083333333333333333 - u * (0.0027777777777777778 - u * 0.00079365079365079365)) / z;
const T whole = z < 6.0 ? near : far;
const T wave = fabs(sin((z - rint(z)) * 3.14159265358979323846));
z == (T)(INFINITY) ? z
    : self < (T)(0) ? 1.14472988584940017414 - log(z) - log(wave) - whole : whole"""
"""In single precision, also for vectors: 6.1.33 around 2, where 6.1.15 leads up to 6, then 6.1.41;
6.1.17 for negative numbers. Intel's compiler for processors calls a function for each lane: 104 ns
an item, 6 with these statements (EPYC with AVX2)."""

ZETA = """\
// Hurwitz: Euler and Maclaurin (23.1.30, 23.2.7) behind the first terms
T zeta(const T s, const T q)
{
    if (!(s >= 1) || (q <= 0 && q != floor(q) && s != floor(s)))
        return NAN;
    if (s == 1 || (q <= 0 && q == floor(q)))
        return INFINITY;
    const T bernoulli[8] = {  // B(2j) / (2j)!
        0.083333333333333333, -0.0013888888888888889, 3.3068783068783069e-5,
        -8.2671957671957672e-7, 2.0876756987868099e-8, -5.2841901386874932e-10,
        1.3382536530684679e-11, -3.3896802963225829e-13,
    };
    T sum = 0, a = q;
    for (int k = 0; k < 10 || a < 10; ++k, a += 1)
        sum += pow(a, -s);
    T power = pow(a, -s), rising = s;
    sum += pow(a, 1 - s) / (s - 1) + (T)0.5 * power;  // where power is 0, the former is not yet
    for (int j = 0; j < 8; ++j) {
        power /= a;
        sum += bernoulli[j] * rising * power;
        power /= a;
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2);
    }
    return sum;
}
"""

DIGAMMA = """\
// 6.3.7 for negative numbers, 6.3.5 up to 10, then 6.3.18
T digamma(T x)
{
    if (x == 0)
        return copysign((T)INFINITY, -x);
    if (x < 0 && x == floor(x))
        return NAN;
    T sum = 0;
    if (x < 0) {
        sum = -3.14159265358979323846 / tanpi(x - trunc(x));
        x = 1 - x;
    }
    for (; x < 10; x += 1)
        sum -= 1 / x;
    const T y = 1 / (x * x);
    const T tail = y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0
        - y * (1.0 / 132.0 - y * (691.0 / 32760.0 - y / 12.0))))));
    return x == INFINITY ? x : sum + log(x) - (T)0.5 / x - tail;
}
"""

POLYGAMMA = """\
// 6.4.7 for negative numbers, 6.4.6 up to 4, in double precision up to 10, then 6.4.12
T trigamma(T x)
{
    if (x <= 0 && x == floor(x))
        return INFINITY;
    const bool is_negative = x < 0;
    T side = 0, sum = 0;
    if (is_negative) {
        const T wave = sinpi(x - trunc(x));
        side = 9.86960440108935861883 / (wave * wave);
        x = 1 - x;
    }
    for (; x < (sizeof(T) == 4 ? 4 : 10); x += 1) {
        const T part = 1 / x;
        sum += part * part;
    }
    const T y = 1 / (x * x);
    const T tail = y * (1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y * (1.0 / 30.0
        - y * (5.0 / 66.0 - y * (691.0 / 2730.0 - y * (7.0 / 6.0)))))));
    sum += (1 + (T)0.5 / x + tail) / x;
    return is_negative ? side - sum : sum;
}

// 6.4.10
T polygamma(const int n, const T x)
{
    if (n == 1)
        return trigamma(x);
    return n == 0 ? digamma(x) : (n % 2 ? 1 : -1) * tgamma((T)(n + 1)) * zeta((T)(n + 1), x);
}
"""

GAMMA_RATIO = """\
// regularized incomplete gamma function: lower, or upper if asked for; 6.5.29 or 6.5.31
T gamma_ratio(const T a, const T x, const int upper)
{
    if (!(a >= 0 && x >= 0) || (a == 0 && x == 0) || (isinf(a) && isinf(x)))
        return NAN;
    if (a == 0 || x == 0 || isinf(a) || isinf(x))
        return (a == 0 || isinf(x)) != upper;
    // x**a * exp(-x) / gamma(a + 1), for large a through Stirling's series 6.1.37
    const T m = (x - a) / a, b = 1 / (a * a);
    const T stirling = (1.0 / 12.0 - b * (1.0 / 360.0 - b / 1260.0)) / a;
    const T front = a < 10 ? exp(a * log(x) - x - lgamma(a + 1))
        : exp(a * (log1p(m) - m) - stirling) / sqrt(6.2831853071795864769 * a);
    if (x < a + 1) {
        T term = 1, sum = 1;
        for (T k = a + 1; term > sum * 1e-17 && k < a + 4000; k += 1) {
            term *= x / k;
            sum += term;
        }
        return upper ? 1 - front * sum : front * sum;
    }
    // Legendre's fraction by its convergents p / q, kept small
    T b_k = x + 1 - a, old_p = 0, old_q = 1 / b_k, p = 1 / b_k, value = 0;
    for (int k = 1; k < 4000 && p != value; ++k) {
        const T a_k = k * (a - k);
        b_k += 2;
        const T next_p = b_k * p + a_k * old_p, q = b_k + a_k * old_q;
        value = p;
        old_p = p / q;
        old_q = 1 / q;
        p = next_p / q;
    }
    return upper ? front * a * p : 1 - front * a * p;
}
"""
