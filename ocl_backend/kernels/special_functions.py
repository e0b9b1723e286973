"""OpenCL C of special functions, in the type `T`: float or double. Text, no code.

Series, recurrences and quadratures are those of Abramowitz and Stegun (cited by number) unless
noted. They are written to be short and right to the precision, not to be fast.
"""

from __future__ import annotations

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
