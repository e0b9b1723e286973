"""Rows at computed places, selections, triangles and bags, of any layout and size."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional

from tests.ocl_backend.cpu_twin import place
from tests.ocl_backend.fusion_cases import names

DTYPES = ["float32", "float16", "bfloat16", "float64", "int64", "uint8", "bool"]
LAYOUTS = {
    "rows": lambda x: x,
    "turned": lambda x: x.mT.contiguous().mT,
    "spread": lambda x: torch.cat((x, x), -1)[..., ::2],
    "repeated": lambda x: x[:1].expand(x.shape),
}
SHAPES = [(5, 3), (131, 37), (3, 4099), (4099, 3), (2, 17, 16), (1, 1), (0, 4)]


def made(shape: tuple[int, ...], dtype: str) -> Any:
    """Return numbers of which about half are zero."""
    return torch.randint(-2, 2, shape).clamp(min=0).mul(3).to(getattr(torch, dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_and_sizes_agree_with_the_cpu(by_either: Any, dtype: str, layout: str) -> None:
    lay, there = LAYOUTS[layout], place(by_either)
    for shape in SHAPES:
        x, mask = made(shape, dtype), made(shape, "bool")
        ours, chosen = lay(x.to(there)), mask.to(there)
        x = lay(x)
        assert torch.equal(ours.nonzero().cpu(), x.nonzero()), shape
        for selected in (torch.masked_select(ours, chosen), ours[chosen]):
            assert torch.equal(selected.cpu(), torch.masked_select(x, mask)), shape
        for diagonal in (-40, -1, 0, 2, 5000):
            lower, upper = ours.tril(diagonal), ours.triu(diagonal)
            assert torch.equal(lower.cpu(), x.tril(diagonal)), (shape, diagonal)
            assert torch.equal(upper.cpu(), x.triu(diagonal)), (shape, diagonal)


def test_the_host_of_a_processor_selects_few_items(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs have groups")
    x = torch.arange(16384, dtype=torch.float32).view(128, 128)
    ours = x.to(place(device))
    mask, few = ours > 99, ours > 16000
    assert set(names(mask.nonzero)) == {"map to host"}
    assert set(names(lambda: ours[mask])) == {"map to host"}
    for chosen in (mask, few):
        selected, places = torch.masked_select(ours, chosen), chosen.nonzero()
        assert torch.equal(selected.cpu(), torch.masked_select(x, chosen.cpu()))
        assert torch.equal(places.cpu(), chosen.cpu().nonzero())
        assert places.stride() == chosen.cpu().nonzero().stride()
        for result in (selected, places):  # a nested tensor takes all of the memory
            assert result.untyped_storage().nbytes() == result.nbytes


def test_the_host_sees_what_was_written_before_and_is_refused_as_kernels_are(device: Any) -> None:
    there = torch.zeros(3000, device=place(device))
    for turn in range(1, 4):
        there[turn * 7] = turn
        assert torch.equal(there.nonzero().flatten().cpu(), torch.arange(1, turn + 1) * 7)
        assert torch.equal((there + 1)[there > 1].cpu(), torch.arange(3.0, turn + 2))
    counted = torch.bincount(there.long(), there.cos(), minlength=5)
    wanted = torch.bincount(there.cpu().long(), there.cpu().cos(), minlength=5)
    torch.testing.assert_close(counted.cpu(), wanted)
    with pytest.raises(IndexError):
        there[torch.ones(2999, dtype=torch.bool, device=place(device))]
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(torch.tensor([3, -1], device=place(device)))
    with pytest.raises(RuntimeError, match="device"):
        torch.masked_select(there, torch.ones(3000, dtype=torch.bool))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_places_of_rows_and_items_agree_with_the_cpu(device: Any, dtype: str, layout: str) -> None:
    lay = LAYOUTS[layout]
    for shape in SHAPES[:-1]:
        x = made(shape, dtype)
        ours = lay(x.to(place(device)))
        x = lay(x)
        for dim, size in enumerate(shape):
            rows = torch.randint(0, size, (29,))
            selected = ours.index_select(dim, rows.to(place(device)))
            assert torch.equal(selected.cpu(), x.index_select(dim, rows)), (shape, dim)
            items = torch.randint(0, size, shape)
            gathered = ours.gather(dim, items.to(place(device)))
            assert torch.equal(gathered.cpu(), x.gather(dim, items)), (shape, dim)


def test_an_index_out_of_range_is_noted_of_rows_and_of_items(device: Any) -> None:
    torch.ocl.set_sync_errors(True)
    try:
        for columns in (1, 5, 40):
            x = torch.zeros(4, columns, device=place(device))
            with pytest.raises(IndexError, match="out of range"):
                x.index_select(0, torch.tensor([0, 3, 4]).to(place(device)))
    finally:
        torch.ocl.set_sync_errors(False)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("columns", [1, 7, 16, 85, 200])
def test_bags_are_rounded_once(device: Any, mode: str, dtype: str, columns: int) -> None:
    table = torch.randint(-99, 99, (30, columns)).to(getattr(torch, dtype))
    words, starts = torch.randint(0, 30, (301,)), torch.tensor([0, 0, 4, 5, 200, 301])
    for padding in (None, 3):
        given: dict[str, Any] = {"mode": mode, "padding_idx": padding}
        ours = functional.embedding_bag(
            words.to(place(device)), table.to(place(device)), starts.to(place(device)), **given
        )
        theirs = functional.embedding_bag(words, table.double(), starts, **given)
        # a mean in fp32 may lie at the other side of a middle
        exact = mode == "sum"
        close = {} if not exact else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(ours.cpu(), theirs.to(table.dtype), **close)


@pytest.mark.parametrize(("words", "copies"), [(40, 1), (2, 0)])
def test_rows_of_a_turned_table_are_copied_where_many_are_added(
    device: Any, words: int, copies: int
) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs add items that lie apart side by side")
    table = torch.randn(70, 90).to(place(device)).mT
    chosen = torch.randint(90, (words,)).to(place(device))
    starts = torch.arange(0, words, 2).to(place(device))
    with torch.no_grad(), torch.ocl.profile(file=None) as seen:
        ours = functional.embedding_bag(chosen, table, starts, mode="sum").cpu()
    turned = [command.name for command in seen.commands if command.name.startswith("strided")]
    assert len(turned) == copies, seen.commands
    theirs = functional.embedding_bag(chosen.cpu(), table.cpu(), starts.cpu(), mode="sum")
    torch.testing.assert_close(ours, theirs)


def test_copies_of_sizes_beyond_whole_pieces(device: Any) -> None:
    for count in (1, 255, 1024, 1025, 70_001):
        x = torch.randint(0, 255, (count + 8,), dtype=torch.uint8)
        ours = torch.zeros(count + 16, dtype=torch.uint8, device=place(device))
        ours[3 : 3 + count] = x.to(place(device))[5 : 5 + count]
        assert torch.equal(ours.cpu()[3 : 3 + count], x[5 : 5 + count])
        assert not ours.cpu()[:3].any()
        assert not ours.cpu()[3 + count :].any()


@pytest.mark.parametrize("layout", ["rows", "turned", "spread"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_items_are_scattered_to_where_a_mask_holds(device: Any, dtype: str, layout: str) -> None:
    lay = LAYOUTS[layout]
    for shape in SHAPES:
        x, mask = made(shape, dtype), made(shape, "bool")
        source = made((max(1, x.numel()),), dtype)
        ours = lay(x.to(place(device))).masked_scatter_(
            mask.to(place(device)), source.to(place(device))
        )
        theirs = lay(x.clone()).masked_scatter_(mask, source)
        assert torch.equal(ours.cpu(), theirs), shape


def test_a_masked_scatter_of_a_processor_lists_what_it_writes(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs have groups")
    x = torch.zeros(5000, device=place(device))
    mask, source = x == 0, torch.ones(5000, device=place(device))
    x.masked_scatter_(mask, source)
    expected = ["count_selected_kernel", "scan_scan_kernel", "scatter_selected_kernel"]
    assert names(lambda: x.masked_scatter_(mask, source)) == expected
    own = torch.arange(5000.0)
    ours = own.to(place(device))
    assert torch.equal(
        ours.masked_scatter_(ours > 9, ours).cpu()[8:12], torch.tensor([8.0, 9, 0, 1])
    )
