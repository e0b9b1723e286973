"""OpenCL C of special functions, in the type `T`: float or double. Text, no code.

Series, recurrences and quadratures are those of Abramowitz and Stegun (cited by number) unless
noted. They are written to be short and right to the precision, not to be fast.
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

ERFCX = """\
// exp(x * x) * erfc(x); from 2 on the continued fraction 7.1.14
T erfcx(const T x)
{
    if (x < 2)
        return exp(x * x) * erfc(x);
    T rest = x;
    for (int k = 40; k > 0; --k)
        rest = x + (T)0.5 * k / rest;
    return 0.56418958354775628695 / rest;
}
"""

ERFCINV = """\
// Halley's steps on erfc(y) = c, 0 < c <= 1, from the leading terms of 7.1.23
T erfcinv(const T c)
{
    if (c == 0)
        return INFINITY;
    const T l = -log(c * (2 - c));
    T y = sqrt(l * sqrt(1 / (1 + (T)0.3 * l * l / (1 + l * l))));
    T r = 1;
    for (int step = 0; step < 12 && fabs(r) > 1e-7 * y; ++step) {
        r = (1 - c / erfc(y)) * erfcx(y) * -0.88622692545275801365;
        y -= r / (1 + y * r);
    }
    return y;
}
"""

ERFINV = """\
T erfinv(const T x)
{
    if (!(fabs(x) <= 1))
        return NAN;
    if (fabs(x) > 0.5)
        return copysign(erfcinv(1 - fabs(x)), x);
    T y = 0.88622692545275801365 * x;
    for (int step = 0; step < 4; ++step) {
        const T r = (erf(y) - x) * exp(y * y) * 0.88622692545275801365;
        y -= r / (1 + y * r);
    }
    return y;
}
"""

ERFINV_NEAR = """\
const T w = -log((1.0 - self) * (1.0 + self)), by = w - 2.5, root = sqrt(w) - 3.0;
T near = (T)(2.81022636e-08);
near = near * by + 3.43273939e-07;
near = near * by + -3.5233877e-06;
near = near * by + -4.39150654e-06;
near = near * by + 0.00021858087;
near = near * by + -0.00125372503;
near = near * by + -0.00417768164;
near = near * by + 0.246640727;
near = near * by + 1.50140941;
T far = (T)(-0.000200214257);
far = far * root + 0.000100950558;
far = far * root + 0.00134934322;
far = far * root + -0.00367342844;
far = far * root + 0.00573950773;
far = far * root + -0.0076224613;
far = far * root + 0.00943887047;
far = far * root + 1.00167406;
far = far * root + 2.83297682;
const T size = fabs(self);
size < (T)(1) ? (w < 5.0 ? near : far) * self
    : size == (T)(1) ? copysign((T)(INFINITY), self) : (T)(NAN)"""
"""In single precision, also for vectors: two polynomials of -log(1 - x * x) (Giles 2011,
"Approximating the erfinv function", GPU Computing Gems)."""

NDTRI = """\
T ndtri(const T p)
{
    const T tail = p < 0.5 ? p : 1 - p;
    const T y = 1.4142135623730950488 * (tail > 0.25 ? -erfinv(2 * tail - 1) : erfcinv(2 * tail));
    return p >= 0 && p <= 1 ? p < 0.5 ? -y : y : NAN;
}
"""

LOG_NDTR = """\
T log_ndtr(const T x)
{
    const T y = x * -0.70710678118654752440;
    return x < -1 ? log((T)0.5 * erfcx(y)) - y * y : log1p((T)-0.5 * erfc(-y));
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

BESSEL_I = """\
// times exp(-|x|), of order 0 or 1: 9.6.10, and 9.7.1 from 20 on
T bessel_i(const int order, const T x)
{
    const T z = fabs(x);
    T term = 1, sum = 1;
    if (z < 20) {
        for (int k = 1; k < 60; ++k)
            sum += term *= z * z / (4 * k * (k + order));
        sum *= exp(-z) * (order ? z / 2 : 1);
    } else {
        for (int k = 1; k < 25; ++k)
            sum += term *= ((2 * k - 1) * (2 * k - 1) - 4 * order) / (8 * k * z);
        sum /= sqrt(6.2831853071795864769 * z);
    }
    return order && x < 0 ? -sum : sum;
}
"""

BESSEL_K = """\
// times exp(x): the integral 9.6.24 by the trapezoidal rule, whose error falls as exp(-pi**2 / h)
T bessel_k(const T order, const T x)
{
    if (!(x > 0))
        return x == 0 ? INFINITY : NAN;
    const T h = fmin((T)0.25, (T)0.7 / sqrt(x)), end = acosh(1 + 45 / x);
    T sum = 0.5;
    for (T t = h; t < end; t += h) {
        const T s = sinh(t / 2);  // cosh(t) - 1 is 2 * s * s without cancellation
        sum += exp(-2 * x * s * s) * cosh(order * t);
    }
    return h * sum;
}
"""

BESSEL = """\
// J0, J1, Y0, Y1: up to 25 by Miller's backward recurrence (9.12) and Neumann's series (DLMF
// 10.23.17), then by Hankel's expansion 9.2.5
T4 bessel(const T x)
{
    if (x == 0)
        return (T4)(1, 0, -INFINITY, -INFINITY);
    if (!(x > 0))
        return (T4)(NAN);
    const T grown = log(x / 2) + 0.57721566490153286061;
    if (x < 1e-15)
        return 0.63661977236758134308 * (T4)(1.57079632679489661923, 0, grown, -1 / x);
    if (x > 25) {
        T4 result;
        for (int order = 0; order < 2; ++order) {
            T term = 1, p = 1, q = 0;
            for (int k = 1; k < 40; ++k) {
                term *= (4 * order - (2 * k - 1) * (2 * k - 1)) / (8 * k * x);
                if (k % 2)
                    q += k % 4 == 1 ? term : -term;
                else
                    p += k % 4 == 0 ? term : -term;
            }
            const T angle = x - (2 * order + 1) * 0.78539816339744830962;
            const T length = sqrt(0.63661977236758134308 / x);
            const T j = length * (p * cos(angle) - q * sin(angle));
            const T y = length * (p * sin(angle) + q * cos(angle));
            if (order)
                result.s13 = (T2)(j, y);
            else
                result.s02 = (T2)(j, y);
        }
        return result;
    }
    T above = 0, here = 1e-30, total = 0, y0 = 0, y1 = 0;
    for (int k = 2 * (int)(12 + x * 0.8); k > 0; --k) {
        const int pair = k / 2;
        const T signed_here = pair % 2 ? -here : here;
        if (k % 2)
            y1 += pair ? signed_here * k / (pair * (pair + 1)) : 0;
        else {
            y0 += signed_here / pair;
            total += 2 * here;
        }
        const T below = 2 * k / x * here - above;
        above = here;
        here = below;
        if (fabs(here) > 1e20) {
            above *= 1e-20, here *= 1e-20, total *= 1e-20, y0 *= 1e-20, y1 *= 1e-20;
        }
    }
    total += here;
    const T j0 = here / total, j1 = above / total;
    return (T4)(j0, j1, 0.63661977236758134308 * (grown * j0 - 2 * y0 / total),
        0.63661977236758134308 * ((grown - 1) * j1 - j0 / x - y1 / total));
}
"""

AIRY_AI = """\
// near 0 by its series 10.4.2; beyond, 10.4.14, or 10.4.60 to the left
T airy_ai(const T x)
{
    const T z = fabs(x), zeta = 2 * z * sqrt(z) / 3;
    if (x > 1)
        return sqrt(x / 3) * 0.31830988618379067154 * exp(-zeta) * bessel_k((T)1 / 3, zeta);
    if (x < -6) {
        T term = 1, p = 1, q = 0;
        for (int k = 1; k < 14; ++k) {
            term *= (6 * k - 5) * (6 * k - 1) / (72 * k * zeta);
            if (k % 2)
                q += k % 4 == 1 ? term : -term;
            else
                p += k % 4 == 0 ? term : -term;
        }
        const T angle = zeta + 0.78539816339744830962;
        return 0.56418958354775628695 / sqrt(sqrt(z)) * (sin(angle) * p - cos(angle) * q);
    }
    T f = 1, g = x, sum = 0.35502805388781723926 - 0.25881940379280679841 * x;
    for (int k = 3; k < 80; k += 3) {
        f *= x * x * x / (k * (k - 1));
        g *= x * x * x / (k * (k + 1));
        sum += 0.35502805388781723926 * f - 0.25881940379280679841 * g;
    }
    return sum;
}
"""

GCD = """\
// of sizes: a processor traps on the smallest integer divided by -1
ulong common_divisor(ulong a, ulong b)
{
    while (b != 0) {
        const ulong rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// as the CPU's, whose least integer has no absolute value: its remainders may be negative, and a
// division of it by -1 would overflow
T gcd(const T a, const T b)
{
    T divisor = (T)abs(b);
    for (T rest = (T)abs(a); rest != 0;) {
        const T last = rest;
        rest = (long)rest == -1 ? 0 : divisor % rest;
        divisor = last;
    }
    return divisor;
}
"""

LCM = """\
T lcm(const T a, const T b)
{
    const ulong common = common_divisor(abs(a), abs(b));
    const T result = common == 0 ? 0 : (T)(abs(a) / common * abs(b));
    return result < 0 ? -result : result;
}
"""
