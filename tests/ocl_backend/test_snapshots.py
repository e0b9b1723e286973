"""Snapshots of memory, and its history, as torch's own tools read them."""

from __future__ import annotations

import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.cuda import _memory_viz

from ocl_backend.runtime import snapshots
from tests.ocl_backend.cpu_twin import place

MIB = 1 << 20


@pytest.fixture
def recording() -> Iterator[None]:
    torch.ocl.memory._record_memory_history()
    yield
    torch.ocl.memory._record_memory_history(None)


def blocks_of(device: Any) -> list[Any]:
    found = torch.ocl.memory_snapshot()
    return [block for one in found if one["device"] == device.index for block in one["blocks"]]


def events_of(device: Any) -> list[Any]:
    found: list[Any] = torch.ocl.memory._snapshot()["device_traces"][device.index]
    return found


def make(device: Any) -> Any:
    return torch.empty(5 * MIB + 1, dtype=torch.uint8, device=place(device))


def test_a_snapshot_counts_what_the_figures_count(device: Any) -> None:
    held = make(device)
    torch.ocl.synchronize(device.index)
    blocks = blocks_of(device)
    (ours,) = [one for one in blocks if one["address"] == held.data_ptr()]
    assert ours["state"] == "active_allocated"
    assert ours["requested_size"] == held.nbytes <= ours["size"]
    allocated = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
    assert allocated == torch.ocl.memory_allocated(device.index)
    assert sum(one["size"] for one in blocks) == torch.ocl.memory_reserved(device.index)
    address = held.data_ptr()
    del held
    (ours,) = [one for one in blocks_of(device) if one["address"] == address]
    assert (ours["state"], ours["requested_size"]) == ("inactive", 0)


@pytest.mark.usefixtures("recording")
def test_a_block_knows_the_line_that_made_it(device: Any) -> None:
    held = make(device)
    (ours,) = [one for one in blocks_of(device) if one["address"] == held.data_ptr()]
    first, second, *_ = ours["frames"]
    assert (first["name"], second["name"]) == (
        "make",
        "test_a_block_knows_the_line_that_made_it",
    )
    assert first["filename"] == __file__
    torch.ocl.memory._record_memory_history(None)
    (ours,) = [one for one in blocks_of(device) if one["address"] == held.data_ptr()]
    assert ours["frames"] == []


@pytest.mark.usefixtures("recording")
def test_the_history_has_what_happened_in_order(device: Any) -> None:
    torch.ocl.synchronize(device.index)
    torch.ocl.empty_cache()
    torch.ocl.memory._record_memory_history(clear_history=True)
    held = make(device)
    address = held.data_ptr()
    del held
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 60, dtype=torch.uint8, device=place(device))
    events = events_of(device)
    assert [one["action"] for one in events if one.get("addr") == address] == [
        *("segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"),
    ]
    assert events[-1]["action"] == "oom"
    assert events[-1]["size"] == 1 << 60 > events[-1]["device_free"] > 0
    assert [one["time_us"] for one in events] == sorted(one["time_us"] for one in events)


def test_less_is_recorded_where_less_is_asked(device: Any) -> None:
    record = torch.ocl.memory._record_memory_history
    try:
        record("all", context="alloc", max_entries=3, skip_actions=["segment_alloc"])
        for _ in range(4):
            make(device)
        events = events_of(device)
        assert {one["action"] for one in events} == {"alloc", "free_requested", "free_completed"}
        assert len([one for one in events if one["action"] != "free_completed"]) == 3
        assert all(bool(one["frames"]) == (one["action"] == "alloc") for one in events)
        record("state", clear_history=True)
        held = make(device)
        assert events_of(device) == []
        assert any(one["frames"] for one in blocks_of(device))
        del held
        with pytest.raises(ValueError, match="must be None, 'state' or 'all'"):
            record("some")
    finally:
        record(None)


@pytest.mark.usefixtures("recording")
def test_torchs_tools_read_what_is_dumped(device: Any, tmp_path: Path) -> None:
    held = make(device)
    file = tmp_path / "snapshot.pickle"
    torch.ocl.memory._dump_snapshot(file)
    seen = pickle.loads(file.read_bytes())
    assert "total_allocated" in _memory_viz.segsum(seen)
    assert "test_snapshots" in _memory_viz.memory(seen, format_flamegraph=lambda text: text)
    (size,) = [one["size"] for one in blocks_of(device) if one["address"] == held.data_ptr()]
    assert f"[0:{_memory_viz.Bytes(size)}]" in _memory_viz.trace(seen)


@pytest.mark.usefixtures("recording")
def test_threads_that_compute_are_recorded(device: Any) -> None:
    """A backward pass allocates in torch's threads, which have no interpreter's lock."""
    x = torch.randn(64, 64, device=place(device), requires_grad=True)
    threads = [threading.Thread(target=lambda: (x @ x).tanh().sum().backward()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.ocl.synchronize(device.index)
    assert len(events_of(device)) > 8


@pytest.mark.usefixtures("recording", "interruptible")
def test_an_interrupt_while_an_event_is_noted_is_met_behind_it(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.ocl.synchronize(device.index)
    history: Any = snapshots._History
    hear = history.hear
    ignored: list[Any] = []

    def interrupted(self: Any, event: int, *rest: int) -> None:
        if event == snapshots.ALLOC:
            signal.raise_signal(signal.SIGINT)
        hear(self, event, *rest)

    monkeypatch.setattr(history, "hear", interrupted)
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(KeyboardInterrupt):
        make(device)
    assert ignored == []
    actions = [one["action"] for one in events_of(device)]
    assert (actions.count("alloc"), actions.count("free_completed")) == (1, 1)
