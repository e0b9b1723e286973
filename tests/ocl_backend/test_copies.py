"""Copies: every dtype into every other, any layout, between host and devices."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.dtypes import COPIED, DTYPES, Coded
from ocl_backend.kernels.copied_dimensions import Dim, collapse, crossing
from ocl_backend.ops.tensor import copies
from ocl_backend.runtime import memory
from tests.ocl_backend.cpu_twin import place

NUMBERS = [0.0, 1.0, -1.5, 2.75, 100.0, -100.25, 65504.0, 1e-3, -0.0, 3.999]
SPECIAL = [float("inf"), -float("inf"), float("nan"), 1e38, 1e-40, 6e-8, 1.00390625, 65519.9]


def skip_without(device: Any, *dtypes: Any) -> None:
    if torch.float64 in dtypes and "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip("this device has no fp64")


def sample(dtype: Any) -> Any:
    """Numbers that `dtype` and every narrower integer dtype can hold, so conversions agree."""
    if dtype.is_floating_point:
        return torch.tensor(NUMBERS, dtype=torch.float64).to(dtype)
    return torch.tensor([0, 1, 2, 3, 100, 127, 0, 5, 64, 1]).to(dtype)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_every_dtype_converts_as_on_the_cpu(device: Any, source: Any, target: Any) -> None:
    skip_without(device, source, target)
    x = sample(source)
    if x.dtype.is_floating_point and not target.is_floating_point and target is not torch.bool:
        x = x.abs().clamp(max=100)  # elsewhere C leaves the result undefined
    assert torch.equal(x.to(place(device)).to(target).cpu(), x.to(target))


FLOAT8 = [dtype for dtype, known in COPIED.items() if isinstance(known, Coded)]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_floats_of_8_bits_convert_as_on_the_cpu(device: Any, dtype: Any) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    values = codes.float()
    ours = codes.to(place(device)).float().cpu()
    torch.testing.assert_close(ours, values, rtol=0, atol=0, equal_nan=True)
    finite = values[values.isfinite()].sort().values
    between = (finite[1:] + finite[:-1]) / 2  # ties, which go to the even code
    scales = 10.0 ** torch.linspace(-9, 2, 3000)
    special = torch.tensor([float("nan"), 0.0, -0.0])
    numbers = torch.cat([finite, between, scales, -scales, special])
    for source in (torch.float32, torch.bfloat16):
        x = numbers.to(source)
        assert torch.equal(
            x.to(place(device)).to(dtype).cpu().view(torch.uint8), x.to(dtype).view(torch.uint8)
        )


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        (torch.float8_e4m3fn, 448.0),
        (torch.float8_e5m2, float("inf")),
        (torch.float8_e4m3fnuz, float("nan")),
        (torch.float8_e5m2fnuz, float("nan")),
    ],
)
def test_what_no_float_of_8_bits_holds(device: Any, dtype: Any, largest: float) -> None:
    beyond = torch.tensor([1e6, -float("inf")], device=place(device)).to(dtype).float()
    torch.testing.assert_close(beyond.cpu(), torch.tensor([largest, -largest]), equal_nan=True)


@pytest.mark.parametrize("dtype", [d for d in COPIED if d not in DTYPES], ids=str)
def test_dtypes_that_nothing_computes_with_are_converted_there(device: Any, dtype: Any) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    torch.ocl.reset_fallbacks()
    there = x.to(place(device)).to(dtype)
    back = there.T.contiguous().to(torch.int64)
    assert torch.ocl.fallbacks() == {}
    assert there.dtype is dtype
    assert torch.equal(there.cpu().float(), x.to(dtype).float())
    assert torch.equal(back.cpu(), x.to(dtype).T.to(torch.int64))
    assert str(there).startswith("tensor([[")


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.bool], ids=str)
def test_infinities_nan_and_rounding_survive(device: Any, target: Any) -> None:
    x = torch.tensor(SPECIAL)
    torch.testing.assert_close(
        x.to(place(device)).to(target).cpu(), x.to(target), rtol=0, atol=0, equal_nan=True
    )


def test_bfloat16_rounds_to_nearest_even_everywhere(device: Any) -> None:
    bits = torch.arange(0x3F7F_0000, 0x3F82_0000, 997, dtype=torch.int32)
    x = bits.view(torch.float32)
    assert torch.equal(x.to(place(device)).bfloat16().cpu(), x.bfloat16())


def layouts(x: Any) -> dict[str, Any]:
    """Views of a (4, 6, 5, 8) tensor, or of its storage, with unusual strides."""
    return {
        "as it is": x,
        "transposed": x.transpose(0, 3),
        "permuted": x.permute(2, 0, 3, 1),
        "sliced": x[1:3, ::2, :, 1:],
        "strided rows": x[:, :, ::3, ::2],
        "broadcast": x[:1].expand(7, 6, 5, 8),
        "one item": x[1, 2, 3, 4:5],
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "windows": x.reshape(-1).unfold(0, 7, 3),
    }


@pytest.mark.parametrize("name", layouts(torch.zeros(4, 6, 5, 8)))
def test_any_layout_becomes_contiguous(device: Any, name: str) -> None:
    x = torch.randn(4, 6, 5, 8)
    ours, theirs = layouts(x.to(place(device)))[name], layouts(x)[name]
    assert ours.stride() == theirs.stride()
    assert torch.equal(ours.contiguous().cpu(), theirs)
    assert torch.equal(ours.cpu(), theirs)


@pytest.mark.parametrize("name", [n for n in layouts(torch.zeros(4, 6, 5, 8)) if n not in
                                  ("broadcast", "windows")])  # fmt: skip
@pytest.mark.parametrize("where", ["host", "device"])
def test_any_layout_can_be_written(device: Any, name: str, where: str) -> None:
    base = torch.zeros(4, 6, 5, 8)
    ours = base.to(place(device))
    target, expected = layouts(ours)[name], layouts(base)[name]
    values = torch.randn(expected.shape)
    target.copy_(values if where == "host" else values.to(place(device)))
    expected.copy_(values)
    if name != "channels last":  # a copy of its own
        assert torch.equal(ours.cpu(), base)
    assert torch.equal(target.cpu(), expected)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_random_permutations_and_slices(device: Any, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    steps = [data.draw(st.integers(1, 3)) for _ in shape]
    x = torch.randn(shape)
    index = tuple(slice(None, None, step) for step in steps)
    expected = x[index].permute(order)
    actual = x.to(place(device))[index].permute(order)
    assert torch.equal(actual.contiguous().cpu(), expected)


def test_collapse_merges_what_lies_together() -> None:
    assert collapse((2, 3, 4), (12, 4, 1), (12, 4, 1)) == [(24, 1, 1)]
    assert collapse((64, 32), (1, 64), (32, 1)) == [(64, 1, 32), (32, 64, 1)]
    assert collapse((2, 3, 4), (12, 4, 1), (4, 8, 1)) == [(3, 4, 8), (2, 12, 4), (4, 1, 1)]
    assert collapse((1, 1), (7, 9), (3, 2)) == [(1, 0, 0)]


def test_crossing_dimensions_are_found() -> None:
    assert crossing([Dim(64, 1, 32), Dim(32, 64, 1)]) == (Dim(32, 64, 1), Dim(64, 1, 32))
    assert crossing([Dim(64, 32, 32), Dim(32, 1, 1)]) is None
    short = crossing([Dim(3, 1, 32), Dim(32, 3, 1)])
    assert short == (Dim(32, 3, 1), Dim(3, 1, 32))
    assert not copies._are_long(short)  # tiles of local memory do not pay
    assert crossing([Dim(64, 0, 32), Dim(32, 1, 1)]) is None  # broadcast
    assert crossing([Dim(64, 1, 32), Dim(32, 0, 1)]) is None


@pytest.mark.parametrize(
    "shape", [(16, 16), (17, 33), (100, 9), (8, 8), (3, 40, 23), (2, 5, 9, 31), (2, 150, 6)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_tiles_cover_every_edge(device: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = torch.arange(1000).repeat(20)[: torch.Size(shape).numel()].view(shape).float()
    for first, second in ((-1, -2), (0, -1)):
        actual = x.to(place(device)).transpose(first, second).to(dtype).contiguous()
        assert torch.equal(actual.cpu(), x.transpose(first, second).to(dtype))


def test_host_and_device_trade_dtypes_and_layouts(device: Any) -> None:
    x = torch.randn(5, 7)
    target = torch.zeros(7, 5, dtype=torch.float16, device=place(device)).t()
    target.copy_(x)
    assert torch.equal(target.cpu(), x.half())
    back = torch.zeros(7, 5, dtype=torch.int64).t()
    back.copy_(target)
    assert torch.equal(back, x.half().long())


def test_a_source_is_broadcast(device: Any) -> None:
    target = torch.zeros(3, 4, device=place(device))
    target.copy_(torch.arange(4.0).to(place(device)))
    assert target.cpu()[2].tolist() == [0, 1, 2, 3]
    target.copy_(torch.tensor(5.0))
    assert target.cpu().unique().tolist() == [5.0]


@pytest.mark.parametrize("size", [1, 1000, 200_000])
def test_the_source_may_change_after_a_copy(device: Any, size: int) -> None:
    x = torch.full((size,), 1.0)
    copied = x.to(place(device), non_blocking=True)
    x.fill_(2.0)
    assert copied.cpu().unique().tolist() == [1.0]


def test_many_small_copies_keep_their_order(device: Any) -> None:
    target = torch.zeros(8, device=place(device))
    for value in range(500):
        target.copy_(torch.full((8,), float(value)))
    assert target.cpu().unique().tolist() == [499.0]


def test_overlapping_ranges_copy_as_if_through_a_buffer(device: Any) -> None:
    x = torch.arange(10.0).to(place(device))
    x[2:].copy_(x[:8])
    assert x.cpu().tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]


def test_overlapping_strided_ranges_copy_as_if_through_a_buffer(device: Any) -> None:
    x = torch.arange(64.0).reshape(8, 8).to(place(device))
    expected = x.cpu().t().contiguous()
    x.copy_(x.t())
    assert torch.equal(x.cpu(), expected)


def test_devices_trade_tensors(device: Any) -> None:
    x = torch.randn(6, 5)
    for index in range(torch.ocl.device_count()):
        there = x.to(place(device)).to(f"ocl:{index}")
        assert there.device.index == index
        assert torch.equal(there.cpu(), x)
        half = torch.zeros(5, 6, dtype=torch.float16, device=f"ocl:{index}").t()
        half.copy_(x.to(place(device)))
        assert torch.equal(half.cpu(), x.half())


def test_item_reads_one_number_of_each_dtype(device: Any) -> None:
    for dtype in DTYPES:
        x = torch.tensor([0, 1, 1]).to(dtype)
        assert x.to(place(device))[2].item() == x[2].item()


def test_numpy_raises_torchs_own_error(device: Any) -> None:
    with pytest.raises(TypeError, match=r"can't convert ocl:\d device type tensor to numpy"):
        torch.zeros(2, device=place(device)).numpy()


@pytest.mark.parametrize("view", ["plain", "t", "conj", "imag", "conj_imag"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_travel_and_keep_their_views(device: Any, dtype: Any, view: str) -> None:
    skip_without(device, torch.float64)
    seen = {
        "plain": lambda x: x,
        "t": torch.t,
        "conj": torch.conj,
        "imag": torch.imag,
        "conj_imag": lambda x: x.conj().imag,
    }[view]
    x = torch.randn(3, 4, dtype=dtype)
    ours = x.to(place(device))
    assert torch.equal(seen(ours).cpu(), seen(x))
    assert torch.equal(seen(ours).contiguous().cpu(), seen(x).contiguous())
    target = torch.zeros_like(ours)
    seen(target).copy_(seen(x).to(place(device)))
    assert torch.equal(seen(target).cpu(), seen(x))


@pytest.mark.parametrize("target", [torch.complex128, torch.float32, torch.int32], ids=str)
def test_complex_numbers_convert_as_on_the_cpu(device: Any, target: Any) -> None:
    skip_without(device, torch.float64)
    x = torch.randn(5, dtype=torch.complex64) * 10
    assert torch.equal(x.to(place(device)).to(target).cpu(), x.to(target))
    assert torch.equal(x.real.to(place(device)).to(x.dtype).cpu(), x.real.to(x.dtype))


def test_a_dtype_without_kernels_is_refused_with_the_list(device: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"bits8.*they know float32"):
        torch.zeros(2, device=place(device)).to(torch.bits8)


@pytest.fixture
def own_memory(device: Any) -> Iterator[None]:
    """The device, whose memory may be the host's, is taken for one with memory of its own."""
    memory.set_own_memory(device.index, True)
    yield
    memory.set_own_memory(device.index, not device.handle.host_unified_memory)


@pytest.mark.usefixtures("own_memory")
@pytest.mark.parametrize("items", [(1 << 20) + 1, 3 << 20])
def test_large_copies_through_pinned_memory(device: Any, items: int) -> None:
    values = torch.randint(-(2**31), 2**31 - 1, (items + 3,), dtype=torch.int32)[3:]
    kept = values.clone()
    copy = values.to(place(device))
    values.fill_(7)  # the device has read what it needs
    assert torch.equal(copy.cpu(), kept)
    assert torch.equal((copy[1:] + 1).cpu(), kept[1:] + 1)
    assert torch.equal(copy.cpu(), kept)


@pytest.mark.usefixtures("own_memory")
def test_large_copies_by_many_threads(device: Any) -> None:
    with ThreadPoolExecutor(4) as threads:
        sent = [torch.full((1 << 21,), float(i)) for i in range(8)]
        back = list(threads.map(lambda t: t.to(place(device)).cpu(), sent))
    assert all(torch.equal(a, b) for a, b in zip(sent, back, strict=True))


@pytest.mark.parametrize(
    ("dtype", "items", "start", "word"),
    [
        ("float16", 24, 0, 16), ("float16", 20, 0, 8), ("bfloat16", 22, 0, 4),
        ("float16", 21, 0, 0), ("float16", 24, 1, 0), ("float32", 24, 4, 16),
        ("float32", 23, 0, 0), ("int8", 48, 0, 16), ("int64", 6, 0, 16),
    ],
)  # fmt: skip
def test_a_gpu_copies_rows_of_neighbours_in_words(
    as_gpu: Any, dtype: str, items: int, start: int, word: int, monkeypatch: Any
) -> None:
    found = []

    def noted(key: Any, dims: Any, plain: Any = copies._word) -> Any:
        found.append(plain(key, dims))
        return found[-1]

    monkeypatch.setattr(copies, "_word", noted)
    copies._run.cache_clear()
    copies._prepared.cache_clear()
    whole = torch.arange(8 + 3 * 5 * 7 * items).to(getattr(torch, dtype))
    there = whole.to(place(as_gpu))
    x, ours = (one[start:][: 3 * 5 * 7 * items].view(3, 5, 7, items) for one in (whole, there))
    windows, mine = (one.unfold(1, 3, 1).permute(0, 1, 2, 4, 3) for one in (x, ours))
    assert torch.equal(mine.contiguous().cpu(), windows.contiguous())
    assert found == [word]
    copies._run.cache_clear()
    copies._prepared.cache_clear()


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "int64"])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((6, 3, 5, 9), (0, 2, 1, 3)),  # a short inner dimension
        ((7, 301), (1, 0)),  # and a source that is walked across it
        ((131, 67), (1, 0)),  # tiles with edges
        ((3, 33, 2, 70), (2, 0, 3, 1)),
        ((5, 3, 8, 7), (1, 0, 2, 3)),  # words
    ],
)
def test_a_gpu_copies_any_order(
    as_gpu: Any, shape: tuple[int, ...], order: tuple[int, ...], dtype: str
) -> None:
    x = torch.randint(0, 200, shape).to(getattr(torch, dtype))
    ours = x.to(place(as_gpu)).permute(order)
    assert torch.equal(ours.contiguous().cpu(), x.permute(order).contiguous())
    halves = ours.to(torch.float16, memory_format=torch.contiguous_format)
    assert torch.equal(halves.cpu(), x.permute(order).half().contiguous())
    turned = torch.empty_like(ours.contiguous()).permute(order)
    turned.copy_(ours.permute(order))
    assert torch.equal(turned.cpu(), x.permute(order).permute(order))


def test_tiles_of_a_gpu_hold_rows_of_memory() -> None:
    def tile(a: int, b: int, itemsize: int) -> int:
        return copies._tile((Dim(a, b, 1), Dim(b, 1, a)), itemsize)

    assert [tile(4096, 4096, itemsize) for itemsize in (1, 2, 4, 8)] == [64, 64, 32, 16]
    assert [tile(4096, b, 2) for b in (9, 17, 33)] == [16, 32, 64]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("items", [64, 7])
def test_parts_of_one_shape_are_joined_by_one_launch(device: Any, dtype: Any, items: int) -> None:
    if device.index:
        pytest.skip("the launches are the same on every device")
    whole = (9 * torch.randn(3, 2, 5, items)).to(dtype)
    turned = whole.transpose(1, 3).contiguous().transpose(1, 3)
    for parts in (whole.unbind(), turned.unbind()):
        there = [part.to(place(device)) for part in parts]
        for dim in (-1, 0, 1):
            torch.cat(there, dim)  # what is prepared once
            with torch.ocl.profile(file=None) as seen:
                joined = torch.cat(there, dim)
                torch.ocl.synchronize(place(device))
            assert [command.name for command in seen.commands] == ["copy_kernel"]
            assert torch.equal(joined.cpu(), torch.cat(parts, dim))
