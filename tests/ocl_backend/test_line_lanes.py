"""Lines along one dimension as lanes of a processor's vectors: softmax and topk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.kernels import line_lanes
from tests.ocl_backend.cpu_twin import agree, ocl, place
from tests.ocl_backend.fusion_cases import names

TOLERANCES = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-10}
SHAPES = [(9, 33, 17), (20, 50), (3, 7, 41, 2), (40, 3)]


@pytest.fixture
def lanes(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A processor of two cores, for which a few lines are enough."""
    if device.limits.kind != "cpu":
        pytest.skip("GPUs have kernels of their own")
    monkeypatch.setattr(device, "limits", replace(device.limits, compute_units=2))
    return device


def laid(x: Any, turned: bool) -> Any:
    """Return x as it is, or with its first dimension as that of neighbours."""
    return x.transpose(0, -1).contiguous().transpose(0, -1) if turned else x


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_softmax_and_its_gradient_along_any_dimension(lanes: Any, dtype: str, turned: bool) -> None:
    torch.manual_seed(3)
    for shape in SHAPES:
        x, grad = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(2))
        for dim in range(len(shape)):
            for function in (torch.softmax, torch.log_softmax):

                def both(x: Any, grad: Any, function: Any = function, dim: int = dim) -> Any:
                    leaf = laid(x, turned).detach().requires_grad_()
                    y = function(leaf, dim)
                    y.backward(laid(grad, turned))
                    return y.detach(), leaf.grad

                agree(lanes, both, x, grad, tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [*TOLERANCES, "int32", "int64"])
def test_topk_takes_the_first_of_equal_items(lanes: Any, dtype: str, largest: bool) -> None:
    generator = torch.Generator().manual_seed(5)
    for shape, dim, k in (
        ((9, 33, 17), 1, 5), ((20, 50), 1, 50), ((50, 20), 0, 3), ((3, 7, 40, 2), 2, 20),
        ((8, 130), 1, 128), ((40, 3), 1, 3),
    ):  # fmt: skip
        x = torch.randint(-9, 9, shape, generator=generator).to(getattr(torch, dtype))
        if x.is_floating_point():
            x.view(-1)[::13] = float("nan")
            x.view(-1)[5::17] = float("inf")
        for turned in (False, True):
            values, places = laid(x.to(place(lanes)), turned).topk(k, dim, largest)
            wanted, order = torch.sort(x, dim=dim, descending=largest, stable=True)
            assert torch.equal(places.cpu(), order.narrow(dim, 0, k))
            found = values.cpu().nan_to_num(77)
            assert torch.equal(found, wanted.narrow(dim, 0, k).nan_to_num(77))


def test_a_call_is_one_launch(lanes: Any) -> None:
    x = torch.randn(6, 40, 33, device=place(lanes))
    for function, name in (
        (lambda: x.softmax(1), "softmax_lines"),
        (lambda: x.mT.log_softmax(1), "softmax_lines"),
        (lambda: x.softmax(2), "softmax_rows"),
        (lambda: x.topk(3, 1), "select_lines"),
        (lambda: x.mT.topk(3, 2), "select_lines"),
    ):
        function()
        ocl.synchronize()
        assert names(function) == [name]
    row = torch.randn(5000, device=place(lanes))
    row.topk(9)
    assert names(lambda: row.topk(9)) == ["sort_select_kernel"]
    long = torch.randn(5000, 9, device=place(lanes))
    assert names(lambda: long.mT.softmax(1))[-1] == "softmax_rows"  # behind a copy


def test_few_lines_and_short_dimensions_are_left_to_other_kernels(lanes: Any) -> None:
    there = place(lanes)
    assert line_lanes.serve(torch.zeros(4, 16, device=there), 0)
    assert not line_lanes.serve(torch.zeros(4, 8, device=there), 0)  # a vector for two cores
    assert not line_lanes.serve(torch.zeros(7, 7, 7, 3, device=there), 3)
    assert line_lanes.serve(torch.zeros(4, 16, dtype=torch.int32, device=there), 0)
    assert not line_lanes.serve(torch.zeros(4, 16, dtype=torch.int16, device=there), 0)


def test_numbers_of_lines_share_texts(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_lanes, "prepare", lambda _, text, *rest: text)
    kernel = line_lanes.LineKernel("sums", (("x", False), ("y", True)), "", limited=True)
    dtypes = (torch.float32, torch.float32)

    def text(size: int, *lines: tuple[int, int, int]) -> Any:
        return line_lanes._prepared.__wrapped__(device.index, kernel, dtypes, lines, (size, 9, 9))

    few = text(10, (3, 640, 640), (21, 1, 1))
    assert few == text(10, (16, 640, 640), (64, 1, 1)) == text(10, (58, 1, 1))
    assert few != text(10, (16, 640, 640), (8, 1, 1))  # narrower vectors
    assert few != text(1000, (3, 640, 640), (21, 1, 1))  # long lines, each a work-item's
