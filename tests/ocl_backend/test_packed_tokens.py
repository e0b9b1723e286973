"""A token's row times packed weights on processors: what is kept, and shared products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.ops.linear.joined import join
from oclgen.measuring import packed_reference
from oclgen.packed_problem import FORMATS
from tests.ocl_backend.cpu_twin import place

OCL: Any = torch.get_device_module("ocl")
K, ROWS = 64, 40
FORM = FORMATS["q4_1"]
Token = tuple[Callable[[], torch.Tensor], torch.Tensor, torch.Tensor]
"""What multiplies, x and the weights."""


def drawn(seed: int, where: Any) -> torch.Tensor:
    return torch.from_numpy(packed_reference.random_weights(FORM, ROWS, K, seed)).to(where)


def is_right(got: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Say whether it is x w^T to the rounding of fp32."""
    numbers = packed_reference.unpacked(FORM, weight.cpu().numpy())
    wanted = x.cpu().double() @ torch.from_numpy(numbers).t()
    return bool((got.cpu().double() - wanted).norm() < 2e-5 * wanted.norm())


@pytest.fixture
def token(device: Any) -> Iterator[Token]:
    """A row times weights of 4 bits on a processor; nothing is kept yet."""
    if device.info.kind != "cpu":
        pytest.skip("its families keep nothing that is made of packed weights")
    OCL.keep_weights(False)
    OCL.keep_weights()
    where = place(device)
    weight, x = drawn(1, where), torch.randn(1, K, device=where)
    yield lambda: OCL.packed_linear(x, weight, FORM.name, ROWS), x, weight
    OCL.keep_weights()


def joined(where: Any, count: int) -> list[torch.nn.Parameter]:
    """Return weights that share a product in captures."""
    weights = [torch.nn.Parameter(drawn(seed + 1, where), False) for seed in range(count)]
    join(weights)
    return weights


def kernels(call: Callable[[], object]) -> list[str]:
    with OCL.profile(file=None) as seen:
        call()
        OCL.synchronize()
    return [command.name for command in seen.commands]


def is_by_lanes(names: list[str]) -> bool:
    """Whether it is one product with interleaved weights, by whichever instruction there is."""
    return names in (["packed_dots"], ["packed_lanes"])


def listed(graph: Any) -> list[str]:
    names: list[str] = graph._listing().decode().split()
    return names


def test_a_token_reads_what_is_kept_and_makes_nothing_for_one_call(token: Token) -> None:
    call, x, weight = token
    with torch.no_grad():
        for _ in range(4):  # programs are built, weights lie still, and are kept
            assert is_right(call(), x, weight)
        assert is_by_lanes(kernels(call))
        assert OCL.kept_weights_bytes(x.device) > 0
        weight.copy_(weight.flip(0))
        assert is_right(call(), x, weight)
        OCL.keep_weights(False)
        assert kernels(call) == ["packed_rows"]
        assert is_right(call(), x, weight)
    OCL.keep_weights()
    assert kernels(call) == ["packed_rows"]  # a gradient may be recorded
    assert is_right(call(), x, weight)


@torch.no_grad()
def test_a_capture_makes_what_it_reads_of_weights_once(token: Token) -> None:
    call, x, weight = token
    call()
    OCL.synchronize()
    graph = OCL.OCLGraph()
    with OCL.graph(graph):
        out = call()
    assert is_by_lanes(listed(graph))
    graph.replay()
    assert is_right(out, x, weight)
    weight.copy_(weight.flip(0))
    graph.replay()
    assert is_right(out, x, weight)


@torch.no_grad()
def test_a_graph_that_looks_rows_of_weights_up_keeps_them(token: Token) -> None:
    """As where the last layer shares its weights with the first: a row is read, none is written."""
    call, x, weight = token
    row = torch.tensor([5], device=x.device)
    call(), weight.index_select(0, row)
    OCL.synchronize()
    graph = OCL.OCLGraph()
    with OCL.graph(graph):
        found, out = weight.index_select(0, row), call()
    assert is_by_lanes(listed(graph)[-1:])
    graph.replay()
    assert is_right(out, x, weight)
    assert torch.equal(found[0].cpu(), weight[5].cpu())


@torch.no_grad()
def test_a_graph_that_writes_weights_reads_them_as_they_are(token: Token) -> None:
    call, x, weight = token
    call()
    other = weight.flip(0).contiguous()
    OCL.synchronize()
    graph = OCL.OCLGraph()
    with OCL.graph(graph):
        weight.copy_(other)
        out = call()
    assert "packed_rows" in listed(graph)
    graph.replay()
    assert is_right(out, x, other)


@torch.no_grad()
def test_weights_that_read_the_same_row_share_a_product_in_a_capture(token: Token) -> None:
    _, x, _ = token
    weights = [torch.nn.Parameter(drawn(seed, x.device), False) for seed in (1, 2, 3)]
    before = [one.clone() for one in weights]
    join(weights)
    assert all(torch.equal(*pair) for pair in zip(weights, before, strict=True))

    def step() -> list[torch.Tensor]:
        return [OCL.packed_linear(x, one, FORM.name, ROWS) for one in weights]

    assert len(kernels(step)) >= 3  # called, each is a product of its own
    graph = OCL.OCLGraph()
    with OCL.graph(graph):
        parts = step()
    assert is_by_lanes(listed(graph))
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert all(is_right(out, x, one) for out, one in zip(parts, weights, strict=True))


@torch.no_grad()
def test_what_differs_between_joined_products_is_multiplied_anew(token: Token) -> None:
    _, x, _ = token
    first, second = joined(x.device, 2)
    kept, doubled = x.clone(), 2 * x
    graph = OCL.OCLGraph()
    with OCL.graph(graph):
        one = OCL.packed_linear(x, first, FORM.name, ROWS)
        x.mul_(2)
        two = OCL.packed_linear(x, second, FORM.name, ROWS)
    graph.replay()
    assert is_right(one, kept, first)
    assert is_right(two, doubled, second)
    first.data = drawn(5, x.device)  # no longer where it was joined
    other = OCL.OCLGraph()
    with OCL.graph(other):
        three = OCL.packed_linear(kept, first, FORM.name, ROWS)
    other.replay()
    assert is_right(three, kept, first)


@torch.no_grad()
def test_nothing_is_left_of_a_capture_that_failed(token: Token) -> None:
    _, x, _ = token
    first, second = joined(x.device, 2)
    with pytest.raises(RuntimeError, match="midway"), OCL.graph(OCL.OCLGraph()):
        OCL.packed_linear(x, first, FORM.name, ROWS)
        raise RuntimeError("midway")
    graph = OCL.OCLGraph()
    with OCL.graph(graph):
        out = OCL.packed_linear(x, second, FORM.name, ROWS)
    graph.replay()
    assert is_right(out, x, second)


@torch.no_grad()
def test_weights_that_a_graph_writes_between_joined_products_are_read_anew(token: Token) -> None:
    _, x, _ = token
    first, second = joined(x.device, 2)
    other = drawn(7, x.device)
    graph = OCL.OCLGraph()
    with OCL.graph(graph):
        one = OCL.packed_linear(x, first, FORM.name, ROWS)
        second.copy_(other)
        two = OCL.packed_linear(x, second, FORM.name, ROWS)
    graph.replay()
    assert is_right(one, x, first)
    assert is_right(two, x, other)
