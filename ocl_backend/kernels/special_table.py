"""Special functions that OpenCL lacks: aten name -> expression, and the functions it calls.

A table like `pointwise_table`, no code. The functions' text is in `gamma_functions` and
`special_functions`; that of polynomials is made here, from their recurrences (Abramowitz and
Stegun, 22.7).
"""

from __future__ import annotations

from ocl_backend.kernels.gamma_functions import DIGAMMA, GAMMA_RATIO, POLYGAMMA, ZETA
from ocl_backend.kernels.pointwise_table import Op, Promotion
from ocl_backend.kernels.special_functions import (
    AIRY_AI,
    BESSEL,
    BESSEL_I,
    BESSEL_K,
    ERFCINV,
    ERFCX,
    ERFINV,
    ERFINV_NEAR,
    GCD,
    LCM,
    LOG_NDTR,
    NDTRI,
)

FLOAT = Promotion.FLOAT

SPECIAL = {
    "digamma": Op("digamma(self)", FLOAT, helper="digamma"),
    "polygamma": Op("polygamma((int)n, self)", FLOAT, helper="polygamma"),
    "special_zeta": Op("zeta(self, other)", FLOAT, helper="zeta"),
    "erfinv": Op(ERFINV_NEAR, FLOAT, double="erfinv(self)", helper="erfinv"),
    "special_ndtri": Op("ndtri(self)", FLOAT, helper="ndtri"),
    "special_erfcx": Op("erfcx(self)", FLOAT, helper="erfcx"),
    "special_log_ndtr": Op("log_ndtr(self)", FLOAT, helper="log_ndtr"),
    "special_entr": Op("self > (T)(0) ? -self * log(self) : self == (T)(0) ? (T)(0)"
                       " : self < (T)(0) ? -(T)(INFINITY) : self", FLOAT),
    "special_xlog1py": Op("other != other ? other : self == (T)(0) ? (T)(0) : self * log1p(other)",
                          FLOAT),
    "igamma": Op("gamma_ratio(self, other, 0)", FLOAT, helper="gamma_ratio"),
    "igammac": Op("gamma_ratio(self, other, 1)", FLOAT, helper="gamma_ratio"),
    "i0": Op("bessel_i(0, self) * exp(fabs(self))", FLOAT, helper="bessel_i"),
    "special_i0e": Op("bessel_i(0, self)", FLOAT, helper="bessel_i"),
    "special_i1": Op("bessel_i(1, self) * exp(fabs(self))", FLOAT, helper="bessel_i"),
    "special_i1e": Op("bessel_i(1, self)", FLOAT, helper="bessel_i"),
    "special_modified_bessel_k0": Op("bessel_k(0, self) * exp(-self)", FLOAT, helper="bessel_k"),
    "special_modified_bessel_k1": Op("bessel_k(1, self) * exp(-self)", FLOAT, helper="bessel_k"),
    "special_scaled_modified_bessel_k0": Op("bessel_k(0, x)", FLOAT, helper="bessel_k"),
    "special_scaled_modified_bessel_k1": Op("bessel_k(1, x)", FLOAT, helper="bessel_k"),
    "special_bessel_j0": Op("bessel(fabs(self)).s0", FLOAT, helper="bessel"),
    "special_bessel_j1": Op("sign(self) * bessel(fabs(self)).s1", FLOAT, helper="bessel"),
    "special_bessel_y0": Op("bessel(self).s2", FLOAT, helper="bessel"),
    "special_bessel_y1": Op("bessel(self).s3", FLOAT, helper="bessel"),
    "special_spherical_bessel_j0": Op(
        "isinf(x) ? (T)(0) : fabs(x) < 1e-3 ? (T)(1) - x * x / (T)(6) : sin(x) / x", FLOAT
    ),
    "special_airy_ai": Op("airy_ai(x)", FLOAT, helper="airy_ai"),
}  # fmt: skip

SPECIAL["special_modified_bessel_i0"] = SPECIAL["i0"]
SPECIAL["special_modified_bessel_i1"] = SPECIAL["special_i1"]

SPECIAL |= {
    "gcd": Op("", integer="gcd(self, other)", helper="gcd"),
    "lcm": Op("", integer="lcm(self, other)", helper="lcm"),
}

POLYNOMIALS = {
    "chebyshev_polynomial_t": ("x", "2.0 * x * p - q"),
    "chebyshev_polynomial_u": ("2.0 * x", "2.0 * x * p - q"),
    "chebyshev_polynomial_v": ("2.0 * x - 1.0", "2.0 * x * p - q"),
    "chebyshev_polynomial_w": ("2.0 * x + 1.0", "2.0 * x * p - q"),
    "hermite_polynomial_h": ("2.0 * x", "2.0 * (x * p - k * q)"),
    "hermite_polynomial_he": ("x", "x * p - k * q"),
    "laguerre_polynomial_l": ("1.0 - x", "((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0)"),
    "legendre_polynomial_p": ("x", "((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0)"),
}
"""The polynomial of degree 1, and that of degree k + 1 from those of k (p) and k - 1 (q): 22.7."""

RECURRENCE = """\
T {name}(const T x, const T degree)
{{
    const T n = trunc(degree);
    T q = 1, p = {first};
    for (T k = 1; k < n; k += 1) {{
        const T next = {following};
        q = p;
        p = next;
    }}
    return n < 0 ? 0 : n == 0 ? 1 : p;
}}
"""

SHIFTED = [name for name in POLYNOMIALS if name.startswith("chebyshev")]

SPECIAL |= {f"special_{name}": Op(f"{name}(x, n)", FLOAT, helper=name) for name in POLYNOMIALS}
SPECIAL |= {
    f"special_shifted_{name}": Op(f"{name}(2.0 * x - 1.0, n)", FLOAT, helper=name)
    for name in SHIFTED
}

FUNCTIONS = {
    "digamma": DIGAMMA,
    "zeta": ZETA,
    "polygamma": DIGAMMA + ZETA + POLYGAMMA,
    "erfcx": ERFCX,
    "erfinv": ERFCX + ERFCINV + ERFINV,
    "ndtri": ERFCX + ERFCINV + ERFINV + NDTRI,
    "log_ndtr": ERFCX + LOG_NDTR,
    "gamma_ratio": GAMMA_RATIO,
    "bessel": BESSEL,
    "bessel_i": BESSEL_I,
    "bessel_k": BESSEL_K,
    "airy_ai": BESSEL_K + AIRY_AI,
    "gcd": GCD,
    "lcm": GCD + LCM,
    **{
        name: RECURRENCE.format(name=name, first=first, following=following)
        for name, (first, following) in POLYNOMIALS.items()
    },
}
"""The functions of an expression's `helper`, in the kernel's type `T`."""
