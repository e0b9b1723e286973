"""Matrix products on the tuned GEMM families: mm, bmm, addmm, baddbmm, addmv and their `out` forms.

`matmul`, `linear`, `mv` and einsum reach these through torch's own composites. The families
compute a product; here strides become transposes and row strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch import settings
from ocl_backend.dispatch.outputs import check_cast, into, resized
from ocl_backend.dispatch.tuned import TunedCall, remember, tuned_call
from ocl_backend.dtypes import PRODUCT_STORAGE, STORAGE
from ocl_backend.fusion.held import Rule, Step, Way, shared
from ocl_backend.kernels.activations import activate
from ocl_backend.ops.fused.expressions import Expression, Read, fits
from ocl_backend.ops.fused.fused_pointwise import terms_of
from ocl_backend.ops.linear.factors import layout, readable
from ocl_backend.ops.linear.matmul_plain import plain_product
from ocl_backend.ops.reduce.reductions import dots_of_rows
from oclgen.problem import Activation, GemmProblem

Number = int | float | bool


class ShapeKey(NamedTuple):
    """All of a product that decides its variant; the memo's key."""

    operator: str
    device: int
    dtype: torch.dtype
    a_shape: tuple[int, ...]
    a_strides: tuple[int, ...]
    b_shape: tuple[int, ...]
    b_strides: tuple[int, ...]
    out_strides: tuple[int, ...]
    bias: bool
    activation: Activation
    tf32: bool
    residual: bool = False


def product(
    operator: str,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Tensor | None = None,
    activation: Activation = "none",
    allow_tf32: bool | None = None,
) -> Tensor:
    """Write act(a · b + bias) to `out` and return it.

    a [batch?, m, k], b [batch?, k, n] and out [batch?, m, n] share dtype and device and may be
    views; bias is a dense [n]. Dtypes the families lack (float64, integers) take a plain kernel,
    which knows neither bias nor activation. Of `_int_mm` a and b are int8 and out is int32.
    `allow_tf32` None is the setting for products.
    """
    if allow_tf32 is None:
        allow_tf32 = settings.matmul.allow_tf32
    if a.dtype is not b.dtype and (a.dim() < 3 or 0 not in (out.numel(), a.shape[-1])):
        raise RuntimeError(f"{operator}: dtypes differ: {a.dtype} and {b.dtype}. Convert one")
    dtype = torch.int32 if operator == "_int_mm" else b.dtype
    if (got := out.dtype) is not dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {dtype}, but got {got} instead")
    _check(operator, a.shape, b.shape)
    if out.numel() == 0:
        return out
    if a.shape[-1] == 0:
        return _without_terms(out, bias, activation)
    a, b = readable(a, b)
    is_read = out.data_ptr() in (a.data_ptr(), b.data_ptr())
    if is_read or (out.stride(-1) != 1 and out.shape[-1] > 1):
        dense = out.new_empty(out.shape)
        return out.copy_(product(operator, a, b, dense, bias, activation, allow_tf32))
    if b.dim() == 3 and len(b) > 1 and b.stride(0) == 0:
        rows, results = _in_one(a), _in_one(out)
        if rows is not None and results is not None:
            name = "mm" if bias is None else "addmm"
            product(name, rows, b[0], results, bias, activation, allow_tf32)
            return out
    key = ShapeKey(
        operator, a.get_device(), a.dtype, a.shape, a.stride(), b.shape, b.stride(), out.stride(),
        bias is not None, activation, allow_tf32 and a.dtype is torch.float32,
    )  # fmt: skip
    if a.dtype not in STORAGE and dtype is a.dtype:
        plain_product(key)(a.data_ptr(), b.data_ptr(), out.data_ptr())
    else:
        read = (a, b, out) if bias is None else (a, b, out, bias)
        pointers = tuple(tensor.data_ptr() for tensor in read)
        if operator == ("mm" if bias is None else "addmm") and out.is_contiguous():
            _multiplying(key).offer(pointers)
        else:
            _prepared(key)(*pointers)
    return out


def _in_one(batch: Tensor) -> Tensor | None:
    """Return matrices [batch, rows, columns] as one of all rows, None where these lie unevenly.

    Products with one and the same b are one product: few rows of each would read b again and again.
    """
    count, rows, columns = batch.shape
    step = batch.stride(1) if rows > 1 else batch.stride(0)
    if batch.stride(0) != rows * step:
        return None
    return batch.as_strided((count * rows, columns), (step, batch.stride(2)))


class Multiplying(Rule):
    """A linear layer. A step's values are pointers a, b, out and bias.

    Its tuned calls are asked for when they run in Python: what is recalled needs none of them.
    """

    kind = "product"
    result = 2
    follows = False

    def __init__(self, key: ShapeKey) -> None:
        self.operator, self.device, self.dtype = key.operator, key.device, key.dtype
        self.items = key.a_shape[0] * key.b_shape[1]
        self._key = key
        self.ways = shared((Way(0, (1, 3) if key.bias else (1,), (2,)),))

    @property
    def loose(self) -> Expression | None:
        """The product as an expression, made when it is asked for: thousands would be kept."""
        key = self._key
        columns = key.b_shape[1:]
        out = Read("out", 2, key.dtype, (*key.a_shape[:1], *columns), key.out_strides)
        a = Read("a", 0, key.dtype, key.a_shape, key.a_strides)
        b = Read("b", 1, key.dtype, key.b_shape, key.b_strides)
        bias = [Read("bias", 3, key.dtype, columns, (1,))] if key.bias else []
        made = Expression("product", (a, b, *bias), out)
        return made if fits(made) and key.activation == "none" else None

    def offer(self, pointers: tuple[int, ...]) -> None:
        """Hold the product back for what may follow, or run it."""
        _prepared(self._key).offer(self, pointers)

    def alone(self, step: Step) -> None:
        """Enqueue the product."""
        _prepared(self._key)(*step.values)

    def is_one_launch(self, after: Sequence[Step]) -> bool:
        """Say whether the tuned product is one launch, with all steps `after` it."""
        residual, activation, _ = terms_of(after)
        call = self._with(residual != 0, activation) if after else _prepared(self._key)
        return call.launches == 1

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue it with the residual and the activation that follow, or one of the two."""
        residual, activation, taken = terms_of(after)
        assert taken
        call = self._with(residual != 0, activation)
        a, b, _, *bias = step.values
        call(a, b, after[taken - 1].result, *bias, *((residual,) if residual else ()))
        return taken

    def _with(self, has_residual: bool, activation: Activation) -> TunedCall:
        """Return the tuned product with these terms."""
        key = self._key._replace(activation=activation, residual=has_residual)
        call: TunedCall = _prepared(key)
        return call


@remember()
def _multiplying(key: ShapeKey) -> Multiplying:
    return Multiplying(key)


def _check(operator: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Raise RuntimeError, as torch does, where the shapes admit no product."""
    rank = 3 if "b" in operator.removeprefix("add") else 2
    if len(a) == len(b) == rank and a[:-2] == b[:-2] and a[-1] == b[-2]:
        return
    if rank == 2:
        shapes = " and ".join("x".join(map(str, shape)) for shape in (a, b))
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({shapes})")
    raise RuntimeError(
        f"{operator}: Expected size for first two dimensions of batch2 tensor to be: "
        f"{[a[0], a[-1]]} but got: {[*b[:2]]}."
    )


def _without_terms(out: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """Write the sum of no products, act(bias), to `out`."""
    out.zero_()
    if bias is not None:
        out.add_(bias)
    return out if activation == "none" else out.copy_(activate(activation, out))


@remember()
def _prepared(key: ShapeKey) -> TunedCall:
    """Return the tuned call of a product; the strides are arguments of its launch."""
    a, b = layout(key.a_shape, key.a_strides), layout(key.b_shape, key.b_strides)
    assert a is not None and b is not None  # `readable` saw to it
    *batch, m, k = key.a_shape
    n = key.b_shape[-1]
    count = batch[0] if batch else 1
    dtype = "tf32" if key.tf32 else PRODUCT_STORAGE[key.dtype]
    problem = GemmProblem(
        m, n, k, dtype, a.transposed, b.transposed, count,
        shared_a=count > 1 and a.step == 0,
        shared_b=count > 1 and b.step == 0,
        bias="n" if key.bias else "none",
        activation=key.activation,
        residual=key.residual,
    )  # fmt: skip
    scalars = {
        "ld_a": a.ld,
        "ld_b": b.ld,
        "ld_c": key.out_strides[-2] if m > 1 else n,
        "batch_a": a.step,
        "batch_b": b.step,
        "batch_c": key.out_strides[0] if count > 1 else 0,
    }
    return tuned_call(key.operator, key.device, problem, tuple(scalars.items()))


def mm(a: Tensor, b: Tensor) -> Tensor:
    """Return a [m, k] · b [k, n]."""
    return product("mm", a, b, a.new_empty((a.shape[0], b.shape[1])))


def mm_out(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    """Write a [m, k] · b [k, n] to `out`."""
    return product("mm", a, b, resized(out, (a.shape[0], b.shape[1])))


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """Return a [batch, m, k] · b [batch, k, n]. Where nothing is multiplied, dtypes may differ."""
    return product("bmm", a, b, b.new_empty((a.shape[0], a.shape[1], b.shape[2])))


def bmm_out(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    """Write a [batch, m, k] · b [batch, k, n] to `out`."""
    return product("bmm", a, b, resized(out, (a.shape[0], a.shape[1], b.shape[2])))


def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Return beta · bias + alpha · a [m, k] · b [k, n]; `bias` broadcasts to [m, n]."""
    out = a.new_empty((a.shape[0], b.shape[1]))
    return biased("addmm", bias, a, b, beta, alpha, out)


def addmm_out(
    bias: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor
) -> Tensor:
    """Write beta · bias + alpha · a · b to `out`, which may be `bias` itself."""
    return _biased_into("addmm", bias, a, b, beta, alpha, out)


def baddbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Return beta · bias + alpha · a [batch, m, k] · b [batch, k, n]; `bias` broadcasts."""
    out = b.new_empty((a.shape[0], a.shape[1], b.shape[2]))  # the CPU's dtype, if a has no items
    return biased("baddbmm", bias if a.numel() else bias.to(b.dtype), a, b, beta, alpha, out)


def baddbmm_out(
    bias: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor
) -> Tensor:
    """Write beta · bias + alpha · a · b to `out`, which may be `bias` itself."""
    return _biased_into("baddbmm", bias, a, b, beta, alpha, out)


def addbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Return beta · bias + alpha · the sum over the batch of a [batch, m, k] · b [batch, k, n]."""
    batch, m, k = a.shape
    rows, columns = a.transpose(0, 1).reshape(m, batch * k), b.reshape(batch * k, b.shape[2])
    return addmm(bias, rows, columns, beta=beta, alpha=alpha)


def addbmm_(bias: Tensor, *factors: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Do `addbmm` in place."""
    return bias.copy_(addbmm(bias, *factors, beta=beta, alpha=alpha))


def addmv_out(
    bias: Tensor, a: Tensor, x: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor
) -> Tensor:
    """Write beta · bias + alpha · a [m, k] · x [k] to `out` [m]; bias becomes a's dtype."""
    check_cast(a.dtype, out.dtype)
    column, result = bias.to(a.dtype).unsqueeze(-1), a.new_empty((a.shape[0], 1))
    biased("addmv", column, a, x.unsqueeze(1), beta, alpha, result)
    return resized(out, (a.shape[0],)).copy_(result.squeeze(1))


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of a [n] times b [n]; a reduction serves it better than a GEMM."""
    if a.dim() != 1 or a.shape != b.shape or a.dtype is not b.dtype:
        raise RuntimeError(f"dot of {[*a.shape]}, {a.dtype} and {[*b.shape]}, {b.dtype}")
    return torch.mul(a, b).sum() if a.is_complex() else dots_of_rows(a, b, a.dtype)


def vdot(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of the conjugate of a [n] times b [n]."""
    return dot(a.conj(), b)


def addmm_activation_out(
    bias: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1,
    use_gelu: bool = False, out: Tensor,
) -> Tensor:  # fmt: skip
    """Write gelu or relu of beta · bias + alpha · a · b to `out`; gelu is the exact one."""
    resized(out, (a.shape[0], b.shape[1]))
    activation: Activation = "gelu" if use_gelu else "relu"
    if is_row(bias, out) and alpha == 1 and beta == 1 and a.dtype in STORAGE:
        return product("_addmm_activation", a, b, out, bias.reshape(-1), activation)
    return out.copy_(activate(activation, addmm(bias, a, b, beta=beta, alpha=alpha)))


def biased(
    operator: str, bias: Tensor, a: Tensor, b: Tensor, beta: Number, alpha: Number, out: Tensor
) -> Tensor:
    """Write beta · bias + alpha · a · b to `out`, which must not overlap the inputs."""
    if beta == 1 and alpha == 1 and is_row(bias, out) and a.dtype in STORAGE:
        return product(operator, a, b, out, bias.reshape(-1))
    if alpha != 1 and a.dtype is torch.float16:
        # products beyond fp16's range may be small enough once they are scaled, as scores of
        # attention are; tf32 holds what is multiplied exactly
        wide = torch.empty(out.shape, dtype=torch.float32, device=out.device)
        wide = product(operator, a.float(), b.float(), wide, allow_tf32=True).mul_(alpha)
        return out.copy_(wide if beta == 0 else wide.add_(bias, alpha=beta))
    product(operator, a, b, out)
    if not (out.dtype.is_floating_point or out.dtype.is_complex):  # torch cuts both, too
        alpha, beta = int(alpha), int(beta)
    if alpha != 1:
        out.mul_(alpha)
    return out if beta == 0 else out.add_(bias, alpha=beta)


def is_row(bias: Tensor, out: Tensor) -> bool:
    """Say whether `bias` is one dense row of `out`, which the epilogue adds for nothing."""
    columns = out.shape[-1]
    return bias.numel() == columns == bias.shape[-1] and bias.is_contiguous()


def _biased_into(
    operator: str, bias: Tensor, a: Tensor, b: Tensor, beta: Number, alpha: Number, out: Tensor
) -> Tensor:
    check_cast(a.dtype, out.dtype)
    shape = (*a.shape[:-1], b.shape[-1])
    if out is bias or out.data_ptr() == bias.data_ptr():
        return out.copy_(biased(operator, bias, a, b, beta, alpha, a.new_empty(shape)))
    return biased(operator, bias, a, b, beta, alpha, resized(out, shape))


OPERATORS: dict[str, Callable[..., Any]] = {
    "mm": mm,
    "mm.out": mm_out,
    "bmm": bmm,
    "bmm.out": bmm_out,
    "addmm": addmm,
    "addmm.out": addmm_out,
    "baddbmm": baddbmm,
    "baddbmm.out": baddbmm_out,
    "addbmm": addbmm,
    "addbmm_": addbmm_,
    "addbmm.out": into(addbmm),
    "addmv.out": addmv_out,
    "dot": dot,
    "vdot": vdot,
    "_addmm_activation.out": addmm_activation_out,
}
"""Implementations by aten name."""
