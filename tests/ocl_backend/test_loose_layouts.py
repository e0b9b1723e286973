"""Loose chains: comparisons, images in channels_last, small steps in order, positions."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.ocl_backend.test_loose import DTYPES, Results, check, drawn, noted_texts, run
from tests.sampled_builds import as_users_build

pytestmark = pytest.mark.usefixtures("any_device")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [8, 7])
def test_comparisons_that_were_dropped_are_not_written(dtype: Any, rows: int) -> None:
    """As the mask of shifted windows is made."""

    def mask(regions: Any) -> Results:
        apart = regions.unsqueeze(1) - regions.unsqueeze(2)
        return (apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0),)

    check(mask, [drawn(dtype, (4, rows))[0].round()], 1, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_that_live_on_are_written(dtype: Any) -> None:
    def call(x: Any, y: Any) -> Results:
        return x < y, (x * 2).ne_(y), torch.where(x >= y, x, y)

    check(call, drawn(dtype, (3, 12), (3, 12)), 3, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_images_in_channels_last_are_walked_as_they_lie(dtype: Any) -> None:
    """As layers are scaled and added to what they read, in images that lie as rows of channels."""

    def scaled(x: Any, scale: Any, residual: Any) -> Results:
        image = x.permute(0, 3, 1, 2)
        return (scale * image * 2 + residual.to(memory_format=torch.channels_last),)

    given = drawn(dtype, (2, 3, 5, 8), (8, 1, 1), (2, 8, 3, 5))
    given[2] = given[2].to(memory_format=torch.channels_last)
    check(scaled, given, 1, exact=True)

    def turned(x: Any, other: Any) -> Results:
        return ((x.mT * 2 + other).mT * 3, x.mT + 1)

    check(turned, drawn(dtype, (4, 6, 10), (4, 10, 6)), 3, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1237), (3, 33), (5, 31), (2, 3, 259)])
def test_rows_of_odd_sizes_end_item_by_item(dtype: Any, shape: tuple[int, ...]) -> None:
    def call(x: Any, y: Any) -> Results:
        return ((x * 2 + y) * x, x - y)

    check(call, drawn(dtype, shape, shape), 1, exact=True)
    check(call, drawn(dtype, shape, shape[-1:]), 1, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dimensions_are_one_where_all_operands_walk_them_so(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of three items are then computed by vectors, and a place costs one division."""

    def call(x: Any, lower: Any, scale: Any) -> Results:
        return ((x - lower) * scale * x,)

    texts = noted_texts(monkeypatch)
    shapes = (2, 40, 7, 3), (1, 40, 7, 3), (2, 1, 1, 1)
    check(call, drawn(dtype, *shapes), 1, exact=True)
    assert texts
    assert all("int i0 =" in text and "int i1 =" not in text for text in texts)
    if torch.ocl.get_device_properties(0).opencl.info.kind == "cpu":
        assert all("vload16" in text or "vload_half16" in text for text in texts)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_made_on_the_way_for_some_dimensions_keeps_these(dtype: Any) -> None:
    def call(x: Any, scale: Any) -> Results:
        return (x * (scale * 2 + 1), x + torch.full((1, 4, 1), 3.0, dtype=x.dtype).to(x.device))

    check(call, drawn(dtype, (3, 4, 6), (4, 1)), 4, exact=True)


@pytest.mark.parametrize(("width", "is_one"), [(8, True), (8192, False)])
def test_small_steps_on_a_processor_are_computed_in_order(width: int, is_one: bool) -> None:
    """A counter is advanced behind what reads it."""
    if torch.ocl.get_device_properties(0).opencl.info.kind != "cpu":
        pytest.skip("work-items of GPUs walk parts side by side")

    def counted(k: Any, v: Any, keys: Any, values: Any, seen: Any) -> Results:
        places = torch.arange(k.shape[2], device=k.device) + seen
        seen.add_(k.shape[2])
        keys.index_copy_(2, places, k * 2)
        values.index_copy_(2, places, v)
        return keys, values, seen

    cache = 1, 2, 16, width
    given = [*drawn(torch.float32, (1, 2, 3, width), (1, 2, 3, width), cache, cache)]
    given.append(torch.tensor([4]))
    ours, kernels = run(counted, given)
    assert (kernels.total() == 1) == is_one, kernels
    for one, theirs in zip(ours, run(counted, given, "cpu")[0], strict=True):
        assert torch.equal(one.cpu(), theirs)


@pytest.mark.parametrize("items", [3, 5, 7])
def test_positions_are_written_where_they_belong(items: int) -> None:
    """Intel's compiler stored some of these to wrong places, which ended the process."""

    def call(x: Any) -> Results:
        return x.float(), torch.arange(-1, items - 1, device=x.device).clamp(0, items - 3)

    with as_users_build():
        check(call, [drawn(torch.float16, (2, 4, 3))[0]], 1, exact=True)


def test_positions_are_written_where_they_belong_beside_others_of_sizes_that_vary() -> None:
    """Where sizes are arguments, Intel's compiler stored all of a result to one wrong place."""
    for items in range(1, 14):
        x = torch.randn(2, 3, items).half()
        with torch.no_grad():
            theirs, ours = ((
                torch.arange(items, device=each.device) * 2 - 1,
                each * 2,
                torch.arange(items, device=each.device).clamp(1, 3) + 2,
            ) for each in (x, x.to("ocl")))  # fmt: skip
        for our, their in zip(ours, theirs, strict=True):
            assert torch.equal(our.cpu(), their)
