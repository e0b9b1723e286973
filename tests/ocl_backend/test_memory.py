"""Memory of the device: addresses, reuse, figures, limits and what happens when it runs out."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.runtime import memory

MIB = 1 << 20


@pytest.fixture
def ocl(device: Any) -> Iterator[Any]:
    """The torch device of an OpenCL device, its cache empty before and after."""
    gc.collect()
    torch.ocl.empty_cache()
    with torch.ocl.device(device.index):
        yield torch.device("ocl", device.index)
    memory.set_limit(device.index, device.limits.global_bytes)
    torch.ocl.empty_cache()


def test_a_view_lies_at_its_offset_in_the_storage(ocl: Any) -> None:
    x = torch.zeros(4, 6, device=ocl)
    assert x[2:, 3:].data_ptr() - x.data_ptr() == (2 * 6 + 3) * 4


def test_live_tensors_have_disjoint_addresses(ocl: Any) -> None:
    spans = sorted(
        (t.data_ptr(), t.data_ptr() + t.nbytes)
        for t in [torch.empty(n, dtype=torch.uint8, device=ocl) for n in (1, 513, MIB, 7)]
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_empty_tensors_take_no_memory(ocl: Any) -> None:
    before = torch.ocl.memory_allocated()
    x = torch.empty(0, 3, device=ocl)
    assert x.data_ptr() == 0
    assert torch.ocl.memory_allocated() == before
    assert x.cpu().shape == (0, 3)


def test_a_freed_block_is_used_again(ocl: Any) -> None:
    first = torch.empty(1000, device=ocl)
    address = first.data_ptr()
    reserved = torch.ocl.memory_reserved()
    del first
    second = torch.empty(990, device=ocl)
    assert second.data_ptr() == address
    assert torch.ocl.memory_reserved() == reserved


def test_a_small_tensor_does_not_sit_in_a_large_block(ocl: Any) -> None:
    large = torch.empty(8 * MIB, device=ocl)
    del large
    before = torch.ocl.memory_allocated()
    small = torch.empty(1, device=ocl)
    assert torch.ocl.memory_allocated() - before < MIB
    assert small.nbytes == 4


def test_figures_follow_tensors(ocl: Any) -> None:
    base, ooms = torch.ocl.memory_allocated(), torch.ocl.memory_stats()["num_ooms"]
    torch.ocl.reset_peak_memory_stats()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device=ocl)
    held = torch.ocl.memory_allocated() - base
    assert 3 * MIB <= held <= 3 * MIB * 9 // 8
    del x
    assert torch.ocl.memory_allocated() == base
    assert torch.ocl.max_memory_allocated() == base + held
    assert torch.ocl.memory_reserved() >= held
    torch.ocl.reset_peak_memory_stats()
    assert torch.ocl.max_memory_allocated() == base
    stats = torch.ocl.memory_stats()
    assert stats["num_ooms"] == ooms
    assert stats["requested_bytes.all.current"] <= stats["allocated_bytes.all.current"]


@pytest.mark.parametrize("size", [1, 512, 513, 5000, MIB, 3 * MIB + 1, 17 * MIB])
def test_rounding_wastes_at_most_an_eighth_and_a_page(ocl: Any, size: int) -> None:
    before = torch.ocl.memory_allocated()
    x = torch.empty(size, dtype=torch.uint8, device=ocl)
    held = torch.ocl.memory_allocated() - before
    assert x.nbytes <= held <= max(512, size + max(size // 8, 512))


def test_empty_cache_gives_everything_unused_back(ocl: Any) -> None:
    kept = torch.ones(MIB, device=ocl)
    dropped = torch.ones(2 * MIB, device=ocl)
    del dropped
    torch.ocl.empty_cache()
    assert torch.ocl.memory_reserved() == torch.ocl.memory_allocated()
    assert kept.cpu().sum() == MIB


def test_out_of_memory_empties_the_cache_and_tries_again(ocl: Any) -> None:
    used = torch.ocl.memory_allocated()
    memory.set_limit(ocl.index, used + 10 * MIB)
    cached = torch.empty(6 * MIB, dtype=torch.uint8, device=ocl)
    del cached
    fits = torch.empty(9 * MIB, dtype=torch.uint8, device=ocl)
    assert fits.nbytes == 9 * MIB
    assert torch.ocl.memory_stats()["num_alloc_retries"] >= 1


def test_out_of_memory_names_the_figures_and_loses_nothing(ocl: Any) -> None:
    kept = torch.full((MIB,), 3.0, device=ocl)
    memory.set_limit(ocl.index, torch.ocl.memory_allocated() + 2 * MIB)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(64 * MIB, dtype=torch.uint8, device=ocl)
    text = str(caught.value)
    for part in (
        f"ocl:{ocl.index}",
        "64.00 MiB (67108864 B)",
        "reserved",
        "limit",
        "smaller batch",
    ):
        assert part in text
    assert torch.ocl.memory_stats()["num_ooms"] >= 1
    assert kept.cpu().min() == 3.0
    memory.set_limit(ocl.index, torch.ocl.mem_get_info()[1])
    assert torch.empty(64 * MIB, dtype=torch.uint8, device=ocl).nbytes == 64 * MIB


def test_the_fraction_limits_the_process(ocl: Any) -> None:
    torch.ocl.set_per_process_memory_fraction(0.0, ocl)
    with pytest.raises(torch.OutOfMemoryError, match="limit set is 0"):
        torch.empty(MIB, device=ocl)
    with pytest.raises(ValueError, match=r"fraction=1\.5"):
        torch.ocl.set_per_process_memory_fraction(1.5, ocl)


def test_more_than_the_device_has_is_out_of_memory(ocl: Any) -> None:
    total = torch.ocl.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2 * total, dtype=torch.uint8, device=ocl)


def test_a_storage_grows_and_shrinks_with_its_content(ocl: Any) -> None:
    x = torch.arange(4.0).to(ocl)
    x.resize_(2, 4)
    assert x.flatten()[:4].cpu().tolist() == [0, 1, 2, 3]
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def is_pinned_at(address: int) -> bool:
    """Ask about memory that no tensor may own any more; it is not read."""
    there = (ctypes.c_char * 8).from_address(address)
    return torch.frombuffer(there, dtype=torch.uint8).is_pinned()


def test_torch_empties_the_cache_of_pinned_memory(ocl: Any) -> None:
    kept = torch.arange(9.0).pin_memory()
    address = torch.empty(MIB, pin_memory=True).data_ptr()  # freed: in the cache
    assert is_pinned_at(address)
    assert torch.accelerator.empty_host_cache() is None
    assert not is_pinned_at(address)
    assert kept.is_pinned()
    assert kept.tolist() == list(range(9))


def test_pinned_memory_is_reused_only_after_its_copies(ocl: Any) -> None:
    host = torch.arange(300_000.0).pin_memory()
    assert host.is_pinned()
    assert not torch.ones(3).is_pinned()
    on_device = host.to(ocl, non_blocking=True)
    del host
    other = torch.zeros(300_000).pin_memory()
    assert torch.equal(on_device.cpu(), torch.arange(300_000.0))
    assert other.is_pinned()


def _allocate(answers: Any) -> None:
    try:
        torch.zeros(3, device="ocl")
    except RuntimeError as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_spawn(ocl: Any) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_allocate, args=(answers,))
    child.start()
    assert "spawn" in answers.get(timeout=30)
    child.join(30)
    assert child.exitcode == 0


def test_pinned_memory_is_counted(ocl: Any) -> None:
    def figures(name: str) -> list[int]:
        stats = torch.ocl.host_memory_stats()
        return [stats[f"{name}.{part}"] for part in ("current", "peak", "allocated", "freed")]

    torch.accelerator.empty_host_cache()
    torch.ocl.reset_peak_host_memory_stats()
    torch.ocl.reset_accumulated_host_memory_stats()
    blocks, *_ = figures("allocations")
    size, *_ = figures("active_bytes")
    host = torch.ones(3 << 20, dtype=torch.uint8).pin_memory()
    assert figures("active_bytes") == [size + host.nbytes, size + host.nbytes, host.nbytes, 0]
    assert figures("allocations") == [blocks + 1, blocks + 1, 1, 0]
    del host
    assert figures("active_bytes") == [size, size + (3 << 20), 3 << 20, 3 << 20]
    assert figures("allocations")[0] == blocks + 1  # cached
    torch.accelerator.empty_host_cache()
    assert figures("allocations") == [blocks, blocks + 1, 1, 1]
    nested = torch.ocl.host_memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["current"] == figures("allocated_bytes")[0]
    torch.ocl.reset_peak_host_memory_stats()
    torch.ocl.reset_accumulated_host_memory_stats()
    assert figures("allocations") == [blocks, blocks, 0, 0]
