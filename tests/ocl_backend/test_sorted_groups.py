"""The first items of sorted rows, as a GPU's groups find them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from tests.ocl_backend.cpu_twin import ocl, place


def kernels(x: Tensor, k: int) -> list[str]:
    """Return the launches of a topk."""
    with ocl.profile(file=None) as profile:
        x.topk(k)
    return [command.name for command in profile.commands]


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_equal_items_are_taken_in_their_order(gpu: Any, dtype: Any, largest: bool) -> None:
    for rows, size, k in (
        (3, 2104, 50),
        (2, 9000, 256),
        (1, 70_001, 7),
        (7, 100, 99),
        (2, 4097, 700),
    ):
        x = torch.randint(-40, 40, (rows, size)).to(dtype)
        if dtype.is_floating_point:
            x[0, ::37] = float("nan")
        values, order = x.to(place(gpu)).topk(k, largest=largest)
        keys, places = x.sort(dim=-1, descending=largest, stable=True)
        assert torch.equal(order.cpu(), places[:, :k])
        assert torch.equal(values.cpu().nan_to_num(99), keys[:, :k].nan_to_num(99))


def test_each_launch_leaves_the_first_items_of_blocks(gpu: Any) -> None:
    x = torch.randn(3, 9000, device=place(gpu))
    assert kernels(x[:, :2048].contiguous(), 1000) == ["sort_blocks"]
    assert kernels(x, 50) == ["sort_blocks", "sort_blocks"]
    assert kernels(x, 256) == ["sort_blocks"] * 2
    assert "sort_tiles" in kernels(x, 300)  # blocks would leave too many
