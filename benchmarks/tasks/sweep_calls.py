"""The torch call of a case, the same on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tasks.operators import call as operators
from benchmarks.tasks.operators.case import Operator
from benchmarks.tasks.sweep import Layer, Product
from benchmarks.timing import Call

if TYPE_CHECKING:
    from torch import Tensor, dtype


Case = Layer | Product | Operator


def call(case: Case, device: str) -> Call:
    """Return the call of a case on normally distributed numbers.

    Args:
        case: what is called.
        device: torch's name of it.
    """
    import torch

    if isinstance(case, Operator):
        return operators.call(case, device)
    with torch.no_grad():
        made = _layer(case, device) if isinstance(case, Layer) else _product(case, device)
    return torch.no_grad()(made)


def _type(name: str) -> dtype:
    import torch

    return {"fp16": torch.float16, "bf16": torch.bfloat16}.get(name, torch.float32)


def _layer(case: Layer, device: str) -> Call:
    import torch

    x, w, y = (_images(case, shape, device) for shape in (case.x, case.w, case.y))
    rank = len(case.stride)
    steps = (list(case.stride), list(case.padding), list(case.dilation))
    geometry = (*steps, case.is_transposed, [0] * rank, case.groups)
    if case.direction == "fwd":
        return lambda: torch.ops.aten.convolution(x, w, None, *geometry)
    wanted = [case.direction == "bwd_data", case.direction == "bwd_weights", False]
    return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *geometry, wanted)


def _images(case: Layer, shape: tuple[int, ...], device: str) -> Tensor:
    import torch

    made = torch.randn(shape, dtype=_type(case.dtype), device=device)
    if not case.is_last:
        return made
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return made.contiguous(memory_format=formats[len(shape)])


def _product(case: Product, device: str) -> Call:
    import torch

    a = _matrix(case, (case.m, case.k), case.trans[0], case.batch, device)
    b = _matrix(case, (case.k, case.n), case.trans[1], 1 if case.is_shared else case.batch, device)
    if case.is_shared:
        b = b.expand(case.batch, -1, -1)
    if case.batch == 1:
        a, b = a[0], b[0]
    return lambda: torch.matmul(a, b)


def _matrix(
    case: Product, shape: tuple[int, int], is_transposed: bool, batch: int, device: str
) -> Tensor:
    """Return a batch of matrices of a shape, whose rows, as stored, are cut out of longer ones."""
    import torch

    rows, columns = reversed(shape) if is_transposed else shape
    stored = torch.randn(batch, rows, columns + case.gap, dtype=_type(case.dtype), device=device)
    cut = stored[..., :columns]
    return cut.mT if is_transposed else cut
