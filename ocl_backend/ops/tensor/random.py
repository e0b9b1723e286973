"""Random numbers by Philox4x32-10; their use is not known here.

Counter-based (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): item i of a draw
depends only on the generator's seed, its offset and i, so the numbers are the same for every launch
geometry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.checks import check_held, largest_exact
from ocl_backend.dispatch.outputs import apart, into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.bounds import check_values
from ocl_backend.kernels.dimensions import broadcast_shapes
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.tensor.wide_draws import ITEMS, wide_kernel
from oclgen.opencl.device import devices

Number = int | float
Generator = torch.Generator | None

PHILOX = """\
uint4 philox_turn(const ulong seed, const ulong counter, const uint turn)
{
    uint4 c = (uint4)((uint)counter, (uint)(counter >> 32), turn, 0);
    uint2 key = (uint2)((uint)seed, (uint)(seed >> 32));
    for (int round = 0; round < 10; ++round) {
        const uint high_0 = mul_hi(0xD2511F53u, c.s0), low_0 = 0xD2511F53u * c.s0;
        const uint high_1 = mul_hi(0xCD9E8D57u, c.s2), low_1 = 0xCD9E8D57u * c.s2;
        c = (uint4)(high_1 ^ c.s1 ^ key.s0, low_1, high_0 ^ c.s3 ^ key.s1, low_0);
        key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

uint4 philox(const ulong seed, const ulong counter)
{
    return philox_turn(seed, counter, 0);
}
"""

DRAW = """\
// 24 or 53 bits: every value is exact, 1 is never reached
float4 uniform(const uint4 r)
{
    return convert_float4(r >> 8) * 0x1p-24f;
}

// Box and Muller 1958: a pair of uniforms, the first not 0, becomes a pair of normals
float4 normal(const uint4 r)
{
    const float2 radius = sqrt(-2.0f * log(1.0f - uniform(r).even));
    const float2 angle = 2.0f * uniform(r).odd;
    const float2 x = radius * cospi(angle), y = radius * sinpi(angle);
    return (float4)(x.s0, y.s0, x.s1, y.s1);
}
"""

DRAW_DOUBLE = """\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
double2 uniform(const uint4 r)
{
    return convert_double2((convert_ulong2(r.even) << 32 | convert_ulong2(r.odd)) >> 11) * 0x1p-53;
}

double2 normal(const uint4 r)
{
    const double2 u = uniform(r);
    const double radius = sqrt(-2.0 * log(1.0 - u.s0));
    return radius * (double2)(cospi(2.0 * u.s1), sinpi(2.0 * u.s1));
}
"""

BODY = """\
const uint4 r = philox(seed, offset + draw);
const %(vector)s drawn = %(expression)s;
if (draw * %(items)d + %(items)d <= count) {
    STORES_out(out_at, drawn)
} else {
    const %(type)s values[%(items)d] = {%(list)s};
    for (int k = 0; k < count - draw * %(items)d; ++k)
        STORE_out(out_at + k, values[k]);
}
"""

DROPOUT = """\
const float4 u = uniform(philox(seed, offset + draw));
const int4 kept = u < chance;
if (draw * 4 + 4 <= count) {
    const T4 x = LOADS_self(self_at);
    STORES_mask(mask_at, convert_uchar4(kept & 1))
    // multiplied by 0, as torch does: a dropped NaN or infinity is NaN
    STORES_out(out_at, x * convert_%(value)s4(kept & 1) * scale)
} else {
    const int keeps[4] = {kept.s0, kept.s1, kept.s2, kept.s3};
    for (int k = 0; k < count - draw * 4; ++k) {
        STORE_mask(mask_at + k, (uchar)(keeps[k] & 1));
        STORE_out(out_at + k, LOAD_self(self_at + k) * (keeps[k] & 1) * scale);
    }
}
"""

EXPRESSION = {
    "uniform": "uniform(r) * (b - a) + a",
    "normal": "normal(r) * b + a",
    "exponential": "-log((T)(1) - uniform(r)) / a",
    "cauchy": "a + b * tanpi(uniform(r) - (T)(0.5))",
    "log_normal": "exp(normal(r) * b + a)",
    "geometric": "ceil(log((T)(1) - uniform(r)) / log((T)(1) - a))",
}

CHOICE = "select((T)(0), (T)(1), uniform(r) < p)"
INTEGERS = "convert_long4(convert_ulong4(r)) * range >> 32"
ALL_INTEGERS = "as_long2(convert_ulong2(r.even) << 32 | convert_ulong2(r.odd))"
WIDE_INTEGERS = """\
as_long2((convert_ulong2(r.even) << 32 | convert_ulong2(r.odd)) % (ulong2)(range))"""


def draw(
    name: str, out: Tensor, generator: Generator, numbers: dict[str, Number], expression: str,
    kind: str, items: int,
) -> Tensor:  # fmt: skip
    """Fill `out` with `expression` of Philox's words: vectors of `items` numbers of type `kind`.

    `numbers` are the expression's scalars. The generator moves on by the counters used.
    """
    if not (count := out.numel()):
        return out
    row_major = torch.contiguous_format
    dense = out if out.is_contiguous() else torch.empty_like(out, memory_format=row_major)
    draws = -(-count // items)
    seed, offset = reserve(out, generator, draws)
    if kind == "float" and devices()[out.get_device()].limits.kind == "cpu":
        kernel = wide_kernel(name, out.dtype, expression, tuple(numbers))
        given = (dense, seed, offset, count, *numbers.values())
        launch(kernel, (-(-count // ITEMS),), given, {"block": (1,), "out": (ITEMS,)})
        return out if dense is out else out.copy_(dense)
    labels = ", ".join(f"drawn.s{k}" for k in range(items))
    vector = f"{kind}{items}"
    fields = {"vector": vector, "type": kind, "items": items, "list": labels}
    text = BODY % {**fields, "expression": expression.replace("(T)", f"({vector})")}
    helpers = PHILOX + {"double": DRAW_DOUBLE, "float": DRAW}.get(kind, "")
    kernel = Kernel(
        name,
        kind,
        (
            Operand("draw", role="position"),
            Operand("out", out.dtype, "address", items=items),
            *(Scalar(label, "long") for label in ("seed", "offset", "count")),
            *(Scalar(label, kind) for label in numbers),
        ),
        text,
        helpers,
        scalar_only=True,
    )
    given = (dense, seed, offset, count, *numbers.values())
    launch(kernel, (draws,), given, {"draw": (1,), "out": (items,)})
    return out if dense is out else out.copy_(dense)


def reserve(out: Tensor, generator: Generator, draws: int) -> tuple[int, int]:
    """Return seed and first counter of a draw, as signed 64-bit numbers, and move on."""
    dtype_of(out.dtype)  # where there is no kernel, what serves instead takes counters of its own
    seed, offset = torch.ops.ocl.reserve(generator, out.get_device(), draws)
    return seed, offset


def reserve_there(like: Tensor, draws: int) -> Tensor:
    """Return what `reserve` returns for the device's generator, as int64 [2] beside `like`."""
    out = torch.empty(2, dtype=torch.int64, device=like.device)
    launch(_RESERVED, (2,), (out, *reserve(out, None, draws)), {"place": (1,), "out": (1,)})
    return out


_RESERVED = Kernel(
    "reserved",
    "long",
    (
        Operand("place", role="position"),
        Operand("out", torch.int64, "address"),
        *(Scalar(label, "long") for label in ("seed", "offset")),
    ),
    "STORE_out(out_at, place ? offset : seed);",
    scalar_only=True,
)


def _floats(name: str, out: Tensor, generator: Generator, a: Number, b: Number = 0) -> Tensor:
    double = out.dtype is torch.float64
    kind, items = ("double", 2) if double else ("float", 4)
    return draw(name, out, generator, {"a": a, "b": b}, EXPRESSION[name], kind, items)


def uniform_(x: Tensor, low: float = 0, high: float = 1, *, generator: Generator = None) -> Tensor:
    """Fill with uniform numbers of [low, high)."""
    if not low <= high:
        raise RuntimeError(f"uniform_ from {low} to {high}: the ends are in the wrong order")
    if high - low > torch.finfo(x.dtype).max:
        raise RuntimeError(f"uniform_ expects to-from <= {torch.finfo(x.dtype).max}")
    return _floats("uniform", x, generator, low, high)


def normal_(x: Tensor, mean: float = 0, std: float = 1, *, generator: Generator = None) -> Tensor:
    """Fill with normal numbers."""
    if std < 0:
        raise RuntimeError(f"normal_ expects std >= 0.0, but found std {std}")
    return _floats("normal", x, generator, mean, std)


def exponential_(x: Tensor, rate: float = 1, *, generator: Generator = None) -> Tensor:
    """Fill with exponential numbers of a rate."""
    if rate <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    return _floats("exponential", x, generator, rate)


def cauchy_(
    x: Tensor, median: float = 0, scale: float = 1, *, generator: Generator = None
) -> Tensor:
    """Fill with Cauchy numbers."""
    if scale <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={scale}")
    return _floats("cauchy", x, generator, median, scale)


def log_normal_(
    x: Tensor, mean: float = 1, std: float = 2, *, generator: Generator = None
) -> Tensor:
    """Fill with the exponentials of normal numbers."""
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return _floats("log_normal", x, generator, mean, std)


def geometric_(x: Tensor, p: float, *, generator: Generator = None) -> Tensor:
    """Fill with the number of trials up to the first success of probability p."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return _floats("geometric", x, generator, p)


def bernoulli_(x: Tensor, p: Tensor | float = 0.5, *, generator: Generator = None) -> Tensor:
    """Fill with 1 with probability p, else 0."""
    if isinstance(p, Tensor):
        check_values("bernoulli", p, "x >= 0 && x <= 1")
        chance = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        return x.copy_(uniform_(chance, generator=generator) < p)
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return draw("bernoulli", x, generator, {"p": p}, CHOICE, "float", 4)


def bernoulli(p: Tensor, *, generator: Generator = None) -> Tensor:
    """Return 1 with probability p, else 0, in p's dtype."""
    return bernoulli_(torch.empty_like(p), p, generator=generator)


def random_from_(x: Tensor, low: int, high: int | None, *, generator: Generator = None) -> Tensor:
    """Fill with integers of [low, high); without `high` up to what the dtype holds."""
    end = largest_exact(x.dtype) + 1 if high is None else high
    if end <= low:
        raise RuntimeError(f"random_ from {low} to {end}: there is no integer between")
    check_held(x.dtype, {"from": low} if high is None else {"from": low, "to - 1": end - 1})
    span = end - low
    narrow = span <= 2**31
    expression = INTEGERS if narrow else WIDE_INTEGERS if span < 2**64 else ALL_INTEGERS
    items = 4 if narrow else 2
    numbers: dict[str, Number] = {"low": low, "range": span}
    return draw("integers", x, generator, numbers, f"({expression}) + low", "long", items)


def random_(x: Tensor, *, generator: Generator = None) -> Tensor:
    """Fill with integers from 0 to what the dtype holds exactly."""
    return random_from_(x, 0, None, generator=generator)


def random_to_(x: Tensor, high: int, *, generator: Generator = None) -> Tensor:
    """Fill with integers of [0, high)."""
    return random_from_(x, 0, high, generator=generator)


def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Return x with items dropped with probability p and the rest scaled, and the mask kept."""
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    x = x if x.is_contiguous() else x.clone()  # dense, in the order of memory that x has
    out, mask = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    draws = -(-x.numel() // 4)
    if draws:
        seed, offset = reserve(x, None, draws)
        numbers = (seed, offset, x.numel(), 1 - p, 1 / (1 - p) if p < 1 else 0.0)
        walked = {"draw": (1,), "self": (4,), "out": (4,), "mask": (4,)}
        launch(_dropout(x.dtype), (draws,), (x, out, mask, *numbers), walked)
    return out, mask


def _dropout(dtype: torch.dtype) -> Kernel:
    value = "double" if dtype is torch.float64 else "float"
    return Kernel(
        "dropout",
        value,
        (
            Operand("draw", role="position"),
            Operand("self", dtype, "address", items=4),
            Operand("out", dtype, "address", items=4),
            Operand("mask", torch.bool, "address", "uchar", items=4),
            *(Scalar(label, "long") for label in ("seed", "offset", "count")),
            Scalar("chance", "float"),
            Scalar("scale", value),
        ),
        DROPOUT % {"value": value},
        PHILOX + DRAW,
        scalar_only=True,
    )


def multinomial(
    p: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator = None
) -> Tensor:
    """Draw positions along the last dimension with probability proportional to p, as int64."""
    _check_multinomial(p, num_samples, replacement)
    check_values("multinomial", p, "x >= 0 && x < INFINITY")
    check_values("multinomial sum", p.sum(-1, dtype=torch.float32), "x > 0")
    if replacement and num_samples > 1:
        cumulative = p.float().cumsum(-1)
        u = uniform_(torch.empty(*p.shape[:-1], num_samples, device=p.device), generator=generator)
        return torch.searchsorted(cumulative, u * cumulative[..., -1:], right=True)
    # the largest p / exponential are a weighted sample without replacement
    race = exponential_(torch.empty(p.shape, device=p.device), generator=generator)
    if num_samples == 1:
        return (p / race).argmax(-1, keepdim=True)
    return (p / race).topk(num_samples, -1)[1]


def _check_multinomial(p: Tensor, num_samples: int, replacement: bool) -> None:
    if p.dim() not in (1, 2) or not p.is_floating_point():
        raise RuntimeError(f"multinomial: p of shape {[*p.shape]}, {p.dtype}; give 1 or 2 dims")
    categories = p.shape[-1]
    if num_samples <= 0 or categories > 1 << 24 or (num_samples > categories and not replacement):
        raise RuntimeError(f"cannot sample n_sample = {num_samples} of {categories} categories")


def normal_of(
    mean: Tensor | float, std: Tensor | float = 1.0, *, generator: Generator = None
) -> Tensor:
    """Return normal numbers of a mean and deviation per item; a tensor `std` is waited for."""
    if isinstance(std, Tensor) and std.numel() and std.min().item() < 0:
        raise RuntimeError("normal expects all elements of std >= 0.0")
    if not isinstance(std, Tensor) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    tensors = [value for value in (mean, std) if isinstance(value, Tensor)]
    shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    out = torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
    return normal_(out, generator=generator).mul_(std).add_(mean)


def normal_of_out(
    mean: Tensor | float, std: Tensor | float = 1.0, *, generator: Generator = None, out: Tensor
) -> Tensor:
    """Write normal numbers with a mean and deviation for each item to `out`."""
    result = normal_of(mean, std, generator=generator)
    return out.resize_(result.shape).copy_(result)


def bernoulli_out(p: Tensor, *, generator: Generator = None, out: Tensor) -> Tensor:
    """Write 1 with probability p, else 0, to `out` of any dtype."""
    return bernoulli_(out.resize_(p.shape), p, generator=generator)


OPERATORS: dict[str, Callable[..., Any]] = {
    "uniform_": uniform_,
    "normal_": normal_,
    "exponential_": exponential_,
    "cauchy_": cauchy_,
    "log_normal_": log_normal_,
    "geometric_": geometric_,
    "bernoulli_.float": bernoulli_,
    "bernoulli_.Tensor": bernoulli_,
    "bernoulli": bernoulli,
    "bernoulli.out": apart(bernoulli_out),
    "random_": random_,
    "random_.to": random_to_,
    "random_.from": random_from_,
    "native_dropout": native_dropout,
    "multinomial": multinomial,
    "multinomial.out": into(multinomial, casts=False),
    "normal.Tensor_Tensor": normal_of,
    "normal.Tensor_float": normal_of,
    "normal.float_Tensor": normal_of,
    "normal.Tensor_Tensor_out": normal_of_out,
    "normal.Tensor_float_out": normal_of_out,
    "normal.float_Tensor_out": normal_of_out,
}
"""Implementations by aten name."""
