"""Random counts whose rates or chances are tensors: Poisson's and binomial numbers.

Both reject candidates, so that an item takes several of Philox's words: counter i is item i's, and
its turns are counted in another of its words. Few expected events are counted one by one (Devroye
1986, "Non-Uniform Random Variate Generation", chapter X). Many are drawn by transformed rejection
with a squeeze (Hörmann 1993, "The transformed rejection method for generating Poisson random
variables", PTRS; and "The generation of binomial random variates", BTRS). Probabilities are
computed by Loader 2000, "Fast and accurate computation of binomial probabilities": differences of
logarithms of factorials would leave a float no digits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import broadcast_shapes, contiguous_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.tensor.random import PHILOX, Generator, reserve

PROBABILITIES = """\
// of (0, 1]
real unit(const uint r)
{
    return ((real)r + 0.5) * 2.3283064365386963e-10; // 2^-32
}

// log(n!) less Stirling's formula, n at least 1
real stirling_rest(const real n)
{
    if (n < 10.0)
        return lgamma(n + 1.0) - (n + 0.5) * log(n) + n - 0.9189385332046728;
    const real s = 1.0 / (n * n);
    return (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - s / 1680.0) * s) * s) / n;
}

// k log(k / mean) + mean - k
real deviance(const real k, const real mean)
{
    const real d = k - mean, v = d / (k + mean), s = v * v;
    if (fabs(v) < 0.1) {
        const real rest = 1.0 / 3.0 + s * (0.2 + s * (1.0 / 7.0 + s * (1.0 / 9.0 + s / 11.0)));
        return d * v + 2.0 * k * v * s * rest;
    }
    return k * log(k / mean) - d;
}
"""

POISSON = """\
real log_chance(const real k, const real rate)
{
    if (k == 0.0)
        return -rate;
    return -stirling_rest(k) - deviance(k, rate) - 0.5 * log(6.283185307179586 * k);
}

real poisson(const real rate, const ulong seed, const ulong counter)
{
    if (!(rate > 0.0 && rate < INFINITY))
        return rate;
    if (rate < 10.0) {
        const real bound = exp(-rate);
        real product = 1.0, k = 0.0;
        for (uint turn = 0;; ++turn) {
            const uint4 r = philox_turn(seed, counter, turn);
            const uint words[4] = {r.s0, r.s1, r.s2, r.s3};
            for (int i = 0; i < 4; ++i) {
                product *= unit(words[i]);
                if (product <= bound)
                    return k;
                k += 1.0;
            }
        }
    }
    const real b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
    const real scale = 1.1239 + 1.1328 / (b - 3.4), squeeze = 0.9277 - 3.6224 / (b - 2.0);
    for (uint turn = 0;; ++turn) {
        const uint4 r = philox_turn(seed, counter, turn);
        for (int i = 0; i < 2; ++i) {
            const real u = unit(i ? r.s2 : r.s0) - 0.5, v = unit(i ? r.s3 : r.s1);
            const real us = 0.5 - fabs(u);
            const real k = floor((2.0 * a / us + b) * u + rate + 0.43);
            if (us >= 0.07 && v <= squeeze)
                return k;
            if (k < 0.0 || (us < 0.013 && v > us))
                continue;
            if (log(v * scale / (a / (us * us) + b)) <= log_chance(k, rate))
                return k;
        }
    }
}
"""

BINOMIAL = """\
real log_chance(const real k, const real n, const real p)
{
    if (k == 0.0)
        return n * log1p(-p);
    if (k == n)
        return n * log(p);
    return stirling_rest(n) - stirling_rest(k) - stirling_rest(n - k) - deviance(k, n * p)
        - deviance(n - k, n * (1.0 - p)) + 0.5 * log(n / (6.283185307179586 * k * (n - k)));
}

// p is at most a half
real successes(const real n, const real p, const ulong seed, const ulong counter)
{
    if (n * p < 10.0) {
        // trials up to each success are geometric
        const real failure = log1p(-p);
        real trials = 0.0, k = 0.0;
        for (uint turn = 0;; ++turn) {
            const uint4 r = philox_turn(seed, counter, turn);
            const uint words[4] = {r.s0, r.s1, r.s2, r.s3};
            for (int i = 0; i < 4; ++i) {
                trials += fmax(ceil(log(unit(words[i])) / failure), (real)1.0);
                if (!(trials <= n))
                    return k;
                k += 1.0;
            }
        }
    }
    const real width = sqrt(n * p * (1.0 - p)), b = 1.15 + 2.53 * width;
    const real a = -0.0873 + 0.0248 * b + 0.01 * p, c = n * p + 0.5;
    const real scale = (2.83 + 5.1 / b) * width, squeeze = 0.92 - 4.2 / b;
    const real mode = floor((n + 1.0) * p);
    for (uint turn = 0;; ++turn) {
        const uint4 r = philox_turn(seed, counter, turn);
        for (int i = 0; i < 2; ++i) {
            const real u = unit(i ? r.s2 : r.s0) - 0.5, v = unit(i ? r.s3 : r.s1);
            const real us = 0.5 - fabs(u);
            const real k = floor((2.0 * a / us + b) * u + c);
            if (k < 0.0 || k > n)
                continue;
            if (us >= 0.07 && v <= squeeze)
                return k;
            const real bound = log(v * scale / (a / (us * us) + b));
            if (bound <= log_chance(k, n, p) - log_chance(mode, n, p))
                return k;
        }
    }
}

real binomial(const real n, const real p, const ulong seed, const ulong counter)
{
    if (!(n < INFINITY) || p != p)
        return n + p;
    if (n <= 0.0 || p <= 0.0)
        return 0.0;
    if (p >= 1.0)
        return n;
    return p <= 0.5 ? successes(n, p, seed, counter) : n - successes(n, 1.0 - p, seed, counter);
}
"""

FAULT = "if (!(rate >= (T)(0)))\n    note_fault(faults_data, operator, 0, 0, 0);\n"


def poisson(rate: Tensor, generator: Generator = None) -> Tensor:
    """Return Poisson numbers of a rate for each item, in the rates' dtype.

    A rate below 0 or NaN is noted as a fault.
    """
    out = torch.empty(rate.shape, dtype=rate.dtype, device=rate.device)
    if not out.numel():
        return out
    device, still = rate.get_device(), (0,) * rate.dim()
    seed, offset = reserve(out, generator, out.numel())
    number, record = faults.NUMBERS["poisson"], faults.record(device)
    strides = {"item": contiguous_strides(rate.shape), "faults": still}
    launch(_poisson(rate.dtype), rate.shape, (out, rate, record, seed, offset, number), strides)
    faults.check(device)
    return out


def binomial(count: Tensor, prob: Tensor, generator: Generator = None) -> Tensor:
    """Return how many of `count` trials succeed with probability `prob`, item by item.

    Args:
        count: whole numbers as floats, broadcast with `prob`.
        prob: of count's dtype; below 0 counts as 0, above 1 as 1.
        generator: whose numbers are taken; None: the device's.

    Raises:
        RuntimeError: dtypes differ.
    """
    if count.dtype is not prob.dtype:
        raise RuntimeError(f"Found dtype {prob.dtype} but expected {count.dtype}")
    shape = broadcast_shapes(count.shape, prob.shape)
    out = torch.empty(shape, dtype=count.dtype, device=count.device)
    if out.numel():
        seed, offset = reserve(out, generator, out.numel())
        strides = {"item": contiguous_strides(shape)}
        launch(_binomial(out.dtype), shape, (out, count, prob, seed, offset), strides)
    return out


@cache
def _poisson(dtype: torch.dtype) -> Kernel:
    operands = (
        Operand("rate", dtype),
        Operand("faults", torch.int64, "address", "long"),
    )
    body = FAULT + "const T out = poisson(rate, seed, offset + item);"
    return _drawing("poisson", dtype, operands, body, faults.NOTE, POISSON, "operator")


@cache
def _binomial(dtype: torch.dtype) -> Kernel:
    operands = Operand("count", dtype), Operand("prob", dtype)
    body = "const T out = binomial(count, prob, seed, offset + item);"
    return _drawing("binomial", dtype, operands, body, "", BINOMIAL)


def _drawing(
    name: str, dtype: torch.dtype, operands: tuple[Operand, ...], body: str, note: str, text: str,
    *numbers: str,
) -> Kernel:  # fmt: skip
    """Return the kernel whose `body` draws item number `item` by functions of `text`."""
    value = dtype_of(dtype).value
    functions = vectors.in_precision(PROBABILITIES + text, value)
    return Kernel(
        name,
        value,
        (
            Operand("item", role="position"),
            Operand("out", dtype, "output"),
            *operands,
            *(Scalar(label, "long") for label in ("seed", "offset", *numbers)),
        ),
        body,
        f"typedef {value} real;\n{note}{PHILOX}{functions}",
        scalar_only=True,
        work=8,
    )


OPERATORS: dict[str, Callable[..., Any]] = {
    "poisson": poisson,
    "poisson.out": into(poisson),
    "binomial": binomial,
    "binomial.out": into(binomial),
}
"""Implementations by aten name."""
