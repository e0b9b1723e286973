"""Products with packed weights: torch's own operators, and the functions behind other interfaces.

Weights stay packed in the device's memory; the families of `PackedProblem` unpack them as they
multiply. Weights in a format that no family knows are multiplied as plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch.prepared_plan import PlanSequence, prepare_plan
from ocl_backend.dispatch.tuned import TunedCall, remember, tuned_call
from ocl_backend.dtypes import STORAGE
from ocl_backend.ops.linear import joined
from oclgen.families.packed.packed_formats import ALIGNED
from oclgen.families.packed.packed_unpacking import shape_for, unpacking
from oclgen.opencl.device import devices
from oclgen.packed_problem import FORMATS, INT4_GROUPS, PackedProblem
from oclgen.plan import Plan
from oclgen.problem import STORED_BYTES, stored_dtype

BLOCK = 32
"""Weights of which `int4_*` has 16 in the low and 16 in the high halves of 16 bytes."""


class _Key(NamedTuple):
    """The shape of a call, for which launches are prepared."""

    operator: str
    device: int
    m: int
    n: int
    k: int
    dtype: str
    form: str
    row: int


def packed_product(
    operator: str, x: Tensor, weight: Tensor, form: str, n: int, scales: Tensor | None = None
) -> Tensor:
    """Return x w^T [m, n] for packed weights of n rows.

    Args:
        operator: its name in warnings and profiles.
        x: [m, k] of fp32, fp16 or bf16.
        weight: bytes in the order of the format, of whatever shape and dtype.
        form: a name of `oclgen.packed_problem.FORMATS`.
        n: rows of the weights.
        scales: as the format has them.

    Raises:
        RuntimeError: shapes, dtypes and format do not fit each other.
    """
    _check(operator, x, weight, form, n, scales)
    m, k = x.shape
    out = x.new_empty((m, n))
    if out.numel() == 0 or k == 0:
        return out.zero_()
    x = x if x.stride(1) == 1 and x.stride(0) >= k else x.contiguous()
    given = [x, _aligned(weight)]
    if scales is not None:
        given.append(scales.to(x.dtype).contiguous())
    row = x.stride(0) if m > 1 else k
    key = _Key(operator, x.get_device(), m, n, k, STORAGE[x.dtype], form, row)
    _prepared(key)(*[tensor.data_ptr() for tensor in (*given, out)])
    return out


def packed_linear(
    x: Tensor, weight: Tensor, form: str, out_features: int, scales: Tensor | None = None
) -> Tensor:
    """Return x times the rows of packed weights: a linear layer whose weights stay packed.

    Args:
        x: [..., k] of fp32, fp16 or bf16, on a device `ocl`.
        weight: bytes in the order of the format, of whatever shape and dtype.
        form: how they are packed: "q4_0", "int4_128z" or another name of
            `oclgen.packed_problem.FORMATS`.
        out_features: rows of the weights.
        scales: as the format has them.

    Returns:
        [..., out_features] of x's dtype.

    Raises:
        RuntimeError: shapes, dtypes and format do not fit each other.
    """
    flat = x.reshape(-1, x.shape[-1])
    out = None
    if scales is None:
        out = joined.part(flat, weight, out_features, partial(_joined_product, form=form))
    if out is None:
        rows: Any = _PackedLinear
        out = rows.apply(flat, weight, form, out_features, scales)
    return out.view(*x.shape[:-1], out_features)


def _joined_product(x: Tensor, weight: Tensor, n: int, form: str) -> Tensor:
    return packed_product("packed_linear", x, weight, form, n)


class _PackedLinear(torch.autograd.Function):
    """The product, and the gradient of what is multiplied: packed weights have none."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, form: str, n: int, scales: Tensor | None
    ) -> Tensor:
        ctx.packed = weight, form, n, x.shape[1], x.dtype, scales
        return packed_product("packed_linear", x, weight, form, n, scales)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0] @ unpacked(*ctx.packed), None, None, None, None


def unpacked(
    weight: Tensor, form: str, n: int, k: int, dtype: torch.dtype, scales: Tensor | None = None
) -> Tensor:
    """Return packed weights as plain numbers, [n, k].

    Args:
        weight: bytes in the order of the format, of whatever shape and dtype.
        form: a name of `oclgen.packed_problem.FORMATS`.
        n: rows of the weights.
        k: weights of a row.
        dtype: of the result: fp32, fp16 or bf16.
        scales: as the format has them.

    Raises:
        RuntimeError: shapes, dtypes and format do not fit each other.
    """
    out = torch.empty((n, k), dtype=dtype, device=weight.device)
    _check("unpacked", out, weight, form, n, scales)
    if out.numel():
        given = [_aligned(weight)]
        if scales is not None:
            given.append(scales.to(dtype).contiguous())
        call = _unpacking(_Key("unpacked", out.get_device(), 1, n, k, STORAGE[dtype], form, k))
        call(*[tensor.data_ptr() for tensor in (*given, out)])
    return out


def _check(
    operator: str, x: Tensor, weight: Tensor, form: str, n: int, scales: Tensor | None
) -> None:
    if form not in FORMATS:
        raise RuntimeError(f"{operator}: {form!r} is no format; known are {', '.join(FORMATS)}")
    if x.dim() != 2 or x.dtype not in STORAGE:
        raise RuntimeError(
            f"{operator}: x is {[*x.shape]}, {x.dtype}; it must be a matrix of one of "
            f"{', '.join(map(str, STORAGE))}"
        )
    for name, one in (("weights", weight), ("scales", scales)):
        if one is not None and one.device != x.device:
            raise RuntimeError(f"{operator}: x is on {x.device}, {name} are on {one.device}")
    packing, k = FORMATS[form], x.shape[1]
    unit = max(packing.block, packing.group or 0)
    if k % unit:
        raise RuntimeError(f"{operator}: {k} weights of a row are no multiple of {unit} ({form})")
    if weight.nbytes != n * packing.row_bytes(k):
        raise RuntimeError(
            f"{operator}: weights of {n} x {k} have {n * packing.row_bytes(k)} bytes as {form}, "
            f"but {weight.nbytes} are given"
        )
    wanted, given = packing.scales(n, k), None if scales is None else tuple(scales.shape)
    if wanted != given:
        raise RuntimeError(f"{operator}: scales are {given}; {form} of {n} x {k} has {wanted}")


def _aligned(weight: Tensor) -> Tensor:
    """Return dense weights that begin where the widest copies of kernels do."""
    weight = weight.contiguous()
    return weight.clone() if weight.data_ptr() % ALIGNED else weight


@remember()
def _prepared(key: _Key) -> TunedCall:
    """Return the tuned call of a product."""
    problem = PackedProblem(key.m, key.n, key.k, key.dtype, key.form)
    return tuned_call(key.operator, key.device, problem, (("ld_x", key.row), ("ld_y", key.n)))


@remember()
def _unpacking(key: _Key) -> PlanSequence:
    """Return the launch that unpacks."""
    problem = PackedProblem(1, key.n, key.k, key.dtype, key.form)
    shape = shape_for(devices()[key.device].limits)
    plan = Plan((unpacking(problem, *shape, "y"),))
    roles = [role for role in problem.buffers if role != "x"]
    sizes = {role: STORED_BYTES[stored_dtype(problem, role)] for role in roles}
    return prepare_plan(key.device, plan, roles, sizes)


def weight_int8pack_mm(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return x [m, k] times the rows of int8 `weight` [n, k], times `scales` [n]."""
    n, k = weight.shape
    if weight.dtype is not torch.int8 or x.shape[-1] != k:
        raise RuntimeError(f"weights {weight.dtype} {[n, k]} do not fit x {[*x.shape]}")
    if k % FORMATS["int8"].block or x.dtype not in STORAGE:
        # scaled before they are summed: sums of plain int8 are beyond fp16's range
        return torch.mm(x, (weight.to(x.dtype) * scales.to(x.dtype)[:, None]).t())
    return packed_product("_weight_int8pack_mm", x, weight, "int8", n, scales)


def convert_weight_to_int4pack(weight: Tensor, inner_k_tiles: int) -> Tensor:
    """Return int4 weights in the order of `int4_*`, in the shape that torch gives them.

    Args:
        weight: uint8 [n, k / 2], of two neighbours the first in the high half.
        inner_k_tiles: 2, 4 or 8; it decides the shape alone.

    Returns:
        int32 [n / 8, k / (16 inner_k_tiles), 32, inner_k_tiles / 2].
    """
    n, k = weight.shape[0], 2 * weight.shape[1]
    if weight.dtype is not torch.uint8 or inner_k_tiles not in (2, 4, 8):
        raise RuntimeError(f"weights are {weight.dtype}, innerKTiles {inner_k_tiles}")
    if n % 8 or k % (16 * inner_k_tiles) or k % BLOCK:
        raise RuntimeError(f"{n} rows of {k} are no multiples of 8 and {16 * inner_k_tiles}")
    pairs = weight.contiguous()
    return (
        pack_int4(torch.stack((torch.bitwise_right_shift(pairs, 4), pairs & 15), -1).view(n, k))
        .view(torch.int32)
        .view(n // 8, k // (16 * inner_k_tiles), 32, inner_k_tiles // 2)
    )


def pack_int4(quants: Tensor) -> Tensor:
    """Return numbers from 0 to 15, uint8 [n, k], as `int4_*` has them: uint8 [n, k / 2]."""
    n, k = quants.shape
    halves = quants.reshape(n, k // BLOCK, 2, BLOCK // 2)
    return (halves[:, :, 0] | torch.bitwise_left_shift(halves[:, :, 1], 4)).reshape(n, k // 2)


def weight_int4pack_mm(x: Tensor, weight: Tensor, group: int, scales_and_zeros: Tensor) -> Tensor:
    """Return x [m, k] times n rows of 4 bits, (q - 8) * scale + zero.

    Args:
        x: fp32, fp16 or bf16; torch's other devices take bf16 alone.
        weight: as `convert_weight_to_int4pack` returns it.
        group: weights that share a scale and a zero: 32, 64, 128 or 256.
        scales_and_zeros: [k / group, n, 2].
    """
    if weight.dim() != 4 or weight.dtype is not torch.int32 or group not in INT4_GROUPS:
        raise RuntimeError(f"weights {weight.dtype} {[*weight.shape]}, groups of {group}")
    form = f"int4_{group}z"
    return packed_product(
        "_weight_int4pack_mm", x, weight, form, 8 * weight.shape[0], scales_and_zeros
    )


OPERATORS: dict[str, Callable[..., Any]] = {
    "_weight_int8pack_mm": weight_int8pack_mm,
    "_convert_weight_to_int4pack": convert_weight_to_int4pack,
    "_weight_int4pack_mm": weight_int4pack_mm,
}
"""Implementations by aten name."""
