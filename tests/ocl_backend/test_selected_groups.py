"""Items that masks, changes and indices select, as a GPU's groups select them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.kernels import added_rows, row_blocks, selected_groups
from tests.ocl_backend.cpu_twin import agree, ocl, place

EMULATED = """\
void add_vector(__global float *place, const float4 value)
{
    const float values[4] = {value.x, value.y, value.z, value.w};
    for (int i = 0; i < 4; ++i) {
        volatile __global int *bits = (volatile __global int *)(place + i);
        int seen = *bits, after;
        do {
            after = seen;
            seen = atomic_cmpxchg(bits, seen, as_int(as_float(seen) + values[i]));
        } while (seen != after);
    }
}
"""
"""What one instruction of a GPU does, by compare and swap."""


@pytest.fixture
def groups(device: Any, without_host: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device with a GPU's groups of 256."""
    if device.limits.max_work_group < 256:
        pytest.skip("groups of 256 work-items do not fit")
    monkeypatch.setattr(device, "limits", replace(device.limits, kind="gpu", max_work_group=256))
    return device


@pytest.mark.parametrize("shape", [(5003,), (3, 1, 7, 130), (2, 0), (9, 301)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64])
def test_positions_and_items(groups: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    agree(groups, torch.nonzero, x)
    agree(groups, lambda x: torch.masked_select(x, x > 0), x)
    agree(groups, lambda x: x[x > 0], x)
    if len(shape) > 1:
        agree(groups, lambda x: torch.nonzero(x.transpose(0, -1)), x)
        agree(groups, lambda x: torch.masked_select(x[..., 1:-1], x[..., 1:-1] > 0), x)
        agree(groups, lambda x: torch.masked_select(x.mT, x.mT[:1] > 0), x)


@pytest.mark.parametrize("returned", [{}, {"return_inverse": True}, {"return_counts": True}])
@pytest.mark.parametrize("values", [3, 4000])
def test_distinct_items(groups: Any, returned: dict[str, bool], values: int) -> None:
    for size in (1, 700, 2048, 20_011):
        x = torch.randint(values, (size,), generator=torch.Generator().manual_seed(size))
        agree(groups, lambda x: torch.unique(x.float(), **returned), x)
        agree(groups, lambda x: torch.unique_consecutive(x // 64, **returned), x)


def test_every_nan_is_distinct(groups: Any) -> None:
    agree(groups, torch.unique, torch.tensor([float("nan"), 1, float("nan"), 1, -0.0, 0.0]))


def test_a_count_and_what_is_written_are_all_launches(groups: Any) -> None:
    x = torch.ones(4099, device=place(groups)) > 0
    torch.nonzero(x)
    with ocl.profile(file=None) as profile:
        torch.nonzero(x)
    names = [command.name for command in profile.commands if "copy" not in command.name]
    assert names == ["count_selected", "select_items"]


def test_parts_are_few_however_many_items_there_are(groups: Any) -> None:
    most = selected_groups.MOST_PARTS * row_blocks.BLOCK
    x = torch.zeros(most + 5, dtype=torch.bool)
    x[[0, 2048, most - 1, most + 4]] = True
    agree(groups, torch.nonzero, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize("columns", [16, 12, 7])
def test_columns_are_gathered(groups: Any, dtype: Any, columns: int) -> None:
    x = torch.arange(67 * 40).view(67, 40).remainder(250).to(dtype)
    index = torch.randint(40, (columns,), generator=torch.Generator().manual_seed(1))
    agree(groups, lambda x, i: torch.index_select(x, 1, i), x, index)
    agree(groups, lambda x, i: x.view(1, 67, 40)[..., i - 40], x, index)
    agree(groups, lambda x, i: torch.index_select(x[:, 1:], 1, i.clamp(max=38).int()), x, index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [2, 90])
def test_rows_are_added_by_vectors(
    groups: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any, rows: int
) -> None:
    monkeypatch.setattr(added_rows, "ADD", EMULATED)
    limits = replace(groups.limits, instructions=groups.limits.instructions | {"add_vectors"})
    monkeypatch.setattr(groups, "limits", limits)
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(rows, (9000,), generator=generator)
    x = torch.randint(0, 2, (rows, 12), generator=generator).to(dtype)
    given = (torch.rand((9000, 12), generator=generator) < 0.02).to(dtype)
    agree(groups, lambda x, i, y: torch.index_add(x, 0, i, y), x, index, given)
    agree(groups, lambda x, i, y: torch.index_put(x, (i,), y, accumulate=True), x, index, given)
    with ocl.profile(file=None) as profile:
        torch.index_add(*(x.to(place(groups)), 0), *(t.to(place(groups)) for t in (index, given)))
    ran = {command.name for command in profile.commands}
    assert ("add_rows_kernel" in ran) is (len(index) <= added_rows.MOST_MEETING * rows)


def test_a_mask_is_filled_without_a_wait(device: Any) -> None:
    x, mask = torch.randn(5, 7, device=place(device)), torch.rand(5, device=place(device)) > 0.5
    x[mask] = 2.0
    with ocl.profile(file=None) as profile:
        x[mask] = 3.0
    assert not any("device to host" in command.name for command in profile.commands)
    assert torch.equal(x[mask], torch.full_like(x[mask], 3.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((), 0), ((7,), 0), ((5, 2, 33), 1), ((3, 70), 0)])
def test_softmax_along_items_that_lie_apart(
    groups: Any, dtype: Any, shape: tuple[int, ...], dim: int
) -> None:
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(4)) * 5

    def both(x: Any) -> Any:
        results = []
        for function in (torch.softmax, torch.log_softmax):
            x = x.detach().requires_grad_()
            y = function(x, dim)
            results += [y, torch.autograd.grad(y, x, x.detach().cos())[0]]
        return results

    agree(groups, both, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_items_go_where_a_mask_holds(groups: Any, dtype: Any) -> None:
    for shape in ((5003,), (3, 1, 7, 130), (2, 0), (9, 301)):
        x, source = (torch.randn(shape).mul(2).to(dtype) for _ in "xs")
        mask = torch.randn(shape) > 0
        agree(groups, torch.masked_scatter, x, mask, source)
        if len(shape) > 1:
            agree(groups, lambda x, m, s: x.mT.masked_scatter(m.mT, s), x, mask, source)
        agree(groups, lambda x, s: x.masked_scatter(x[..., :1] == x[..., :1], s), x, source)


def test_items_may_come_from_the_tensor_itself(groups: Any) -> None:
    x = torch.randn(20_000)
    theirs = x.clone()
    theirs[x > 0] = x[: int((x > 0).sum())]
    there = x.to(place(groups))
    assert torch.equal(there.masked_scatter_(there > 0, there).cpu(), theirs)


def test_scattering_waits_for_nothing(groups: Any) -> None:
    x = torch.randn(4099, device=place(groups))
    mask = x > 0
    source = x * 2
    x.masked_scatter_(mask, source)
    with ocl.profile(file=None) as profile:
        x.masked_scatter_(mask, source)
    assert [command.name for command in profile.commands] == ["count_selected", "select_items"]
    x.masked_scatter_(mask, source[:7])
    with pytest.raises(torch.AcceleratorError, match="source < number of ones"):
        ocl.synchronize()
