"""Outputs of another dtype than the result's: cast where the CPU casts, else refused in its words.

Which dtypes an operator writes to follows no rule. Each operator here stands for others.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor
from torch._prims_common import compute_elementwise_output_strides

from ocl_backend.dispatch.outputs import elementwise_strides
from tests.ocl_backend.cpu_twin import agree, place, refuse_alike

X = torch.tensor([[0.5, -1.5, 2.0], [3.0, 0.25, -4.0], [1.0, 2.0, 3.0]])

CASTS: dict[str, Any] = {
    "float64 of float32": lambda x: torch.exp(x, out=x.double()),
    "complex of float32": lambda x: torch.exp(x, out=x.cfloat()),
    "complex of integers": lambda x: torch.add(x.long(), x.long(), out=x.cfloat()),
    "complex of quotients": lambda x: torch.div(x.long(), 2, out=x.cfloat()),
    "float32 of integers": lambda x: torch.floor_divide(x.long(), 2, out=x.clone()),
    "float32 of remainders": lambda x: torch.remainder(x.long(), x.long() * 0 + 2, out=x.clone()),
    "float32 of truths": lambda x: torch.gt(x, 0, out=x.clone()),
    "float64 of sums": lambda x: torch.sum(x, 0, out=x[0].double()),
    "complex of absolute numbers": lambda x: torch.abs(x.cfloat(), out=x.cfloat()),
    "float64 of half precision": lambda x: torch.add(
        x.half() * 1e4, x.half() * 2e4, out=x.double()
    ),
    "float32 of bfloat16": lambda x: torch.mul(x.bfloat16(), 1.01, out=x.clone()),
    "int32 of bytes": lambda x: torch.mul(x.to(torch.int8), 100, out=x.int()),
    "float32 of bytes, resized": lambda x: torch.sub(x.byte(), x.byte() + 1, out=x[:0].clone()),
    "float64 of rows joined": lambda x: torch.cat([x, x], out=torch.cat([x, x]).double()),
}
"""What the CPU writes, and the device, too."""

REFUSED: dict[str, Any] = {
    "fractions to integers": lambda x: torch.exp(x, out=x.long()),
    "complex to real": lambda x: torch.add(x.cfloat(), 1, out=x.clone()),
    "complex exponentials to real": lambda x: torch.exp(x.cfloat(), out=x.clone()),
    "absolute numbers to integers": lambda x: torch.abs(x.cfloat(), out=x.long()),
    "absolute numbers to float64": lambda x: torch.abs(x, out=x.double()),
    "whole numbers to float64": lambda x: torch.floor(x, out=x.double()),
    "conjugates to float64": lambda x: torch.conj_physical(x, out=x.double()),
    "products to float64": lambda x: torch.mm(x, x, out=x.double()),
    "products with a vector": lambda x: torch.mv(x, x[0], out=x[0].double()),
    "sums of products": lambda x: torch.addbmm(x, x[None], x[None], out=x.double()),
    "cross products": lambda x: torch.cross(x, x, out=x.double()),
    "truths of membership": lambda x: torch.isin(x, x, out=x.clone()),
    "truths of items": lambda x: torch.all(x, 0, out=x[0].clone()),
    "masked items": lambda x: torch.masked_select(x, x > 0, out=x[0].double()),
    "sorted items": lambda x: torch.sort(x, out=(x.double(), x.long())),
    "positions of maxima": lambda x: torch.max(x, 0, out=(x[0].clone(), x[0].double())),
    "commonest items": lambda x: torch.mode(x, 0, out=(x[0].double(), x[0].long())),
    "sums of what is not NaN": lambda x: torch.nansum(x, 0, out=x[0].long()),
}


@pytest.mark.parametrize("name", CASTS)
def test_results_are_cast(device: Any, name: str) -> None:
    agree(device, CASTS[name], X)
    agree(device, CASTS[name], X)  # what was accepted once is not asked again


@pytest.mark.parametrize("name", REFUSED)
def test_outputs_are_refused(device: Any, name: str) -> None:
    refuse_alike(device, REFUSED[name], X)
    refuse_alike(device, REFUSED[name], X)


@pytest.mark.parametrize("name", ["products to float64", "sorted items", "masked items"])
def test_outputs_of_large_calls_are_refused(device: Any, name: str) -> None:
    refuse_alike(device, REFUSED[name], torch.ones(200, 200))


def test_an_output_that_is_an_input_keeps_its_shape(device: Any) -> None:
    """A new shape would be the input's, too, whose items are read by it."""
    for where in ("cpu", place(device)):
        x, y = torch.ones(1, 3, device=where), torch.ones(4, 3, device=where)
        for call in (torch.add, torch.maximum):
            with pytest.raises(RuntimeError, match=r"shape \[1, 3\] doesn't match .* \[4, 3\]"):
                call(x, y, out=x)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            torch.add(x, y, out=torch.ones(1, device=where).expand(3))
        assert x.shape == (1, 3)


def drawn_operand(shape: tuple[int, ...], random: Random) -> Tensor:
    """An operand that broadcasts to `shape`, in any order of dimensions, dense or not."""
    sizes = [size if random.random() < 0.8 else 1 for size in shape]
    sizes = sizes[random.choice((0, 0, 0, random.randint(0, len(sizes)))) :]
    order = random.sample(range(len(sizes)), len(sizes))
    x = torch.empty([2 * sizes[dim] for dim in order]).permute(
        [*map(order.index, range(len(order)))]
    )
    if random.random() < 0.3:
        return x[tuple(slice(0, None, 2) for _ in sizes)]
    x = x[tuple(slice(0, size) for size in sizes)].clone()
    is_image = x.dim() == 4 and random.random() < 0.3
    return x.contiguous(memory_format=torch.channels_last) if is_image else x


def test_results_lie_as_those_of_torch() -> None:
    random = Random(0)
    for _ in range(3000):
        shape = tuple(random.choice((0, 1, 1, 2, 3, 3, 5)) for _ in range(random.randint(0, 5)))
        operands = [drawn_operand(shape, random) for _ in range(random.randint(1, 3))]
        spread = [x.expand(shape) for x in operands]
        theirs = compute_elementwise_output_strides(*spread)
        told = f"{shape}, {[x.stride() for x in spread]}"
        assert elementwise_strides(shape, operands) == tuple(theirs), told
