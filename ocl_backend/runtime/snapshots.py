"""Snapshots of the allocator, block by block, and its history, as torch.cuda.memory has them.

The files are read by the viewer of https://pytorch.org/memory_viz and by
`torch.cuda._memory_viz`. The names with an underscore are those of `torch.cuda.memory`.
"""

from __future__ import annotations

import atexit
import ctypes
import pickle
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import accelerator

from ocl_backend.runtime import shim
from ocl_backend.runtime.devices import DeviceLike, device_count
from ocl_backend.runtime.interrupts import Later

LARGE = 1 << 20
"""Bytes from which torch calls a segment large."""
STATES = ("active_allocated", "active_pending_free", "inactive")
"""Of a block, by the shim's number."""
ALLOC, FREE, SEGMENT, SEGMENT_FREE, OOM = range(5)
"""The shim's numbers of events (csrc/runtime/history.h)."""
ACTIONS = {
    ALLOC: ("alloc",),
    FREE: ("free_requested", "free_completed"),
    SEGMENT: ("segment_alloc",),
    SEGMENT_FREE: ("segment_free",),
    OOM: ("oom",),
}
"""Torch's names of what an event is: with one queue, what is freed can be used at once."""
STACKS_OF: dict[str | None, tuple[int, ...]] = {
    None: (),
    "state": (ALLOC,),
    "alloc": (ALLOC, SEGMENT, OOM),
    "all": (ALLOC, FREE, SEGMENT, SEGMENT_FREE, OOM),
}
"""Events whose Python frames are kept, by torch's `context`."""

_WORDS = 4  # of a block: address, size, requested, state
_profiler: Any = torch._C._profiler


@dataclass(frozen=True, slots=True)
class _Event:
    event: int
    device: int
    address: int  # of `OOM`: the bytes that were free
    size: int
    time_us: int
    stack: Any  # of torch's, not yet symbols


@dataclass(slots=True)
class _History:
    """What was heard since recording began; the interpreter's lock keeps it whole."""

    keeps_events: bool
    stacks_of: tuple[int, ...]
    skipped: frozenset[str]
    events: deque[_Event]
    live: dict[int, Any] = field(default_factory=dict)
    """Stacks of what is allocated, by address."""

    def hear(self, event: int, device: int, address: int, size: int) -> None:
        """Note an event of this thread."""
        stack = None
        if event in self.stacks_of:
            stack = _profiler.gather_traceback(True, False, False)
        if event == ALLOC:
            self.live[address] = stack
        elif event == FREE:
            self.live.pop(address, None)
        elif event == OOM:
            address = accelerator.get_memory_info(device)[0]
        if self.keeps_events and not self.skipped.issuperset(ACTIONS[event]):
            now = time.time_ns() // 1000
            self.events.append(_Event(event, device, address, size, now, stack))


_history: _History | None = None


def _hear(event: int, device: int, address: int, size: int) -> None:
    try:
        with Later():
            if _history is not None:
                _history.hear(event, device, address, size)
    except KeyboardInterrupt:  # before `Later` or a second one; Python drops what leaves a callback
        shim.library().ocl_note_interrupt()


_HEAR = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)(_hear)


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    skip_actions: Iterable[str] | None = None,
) -> None:
    """Keep Python's stacks of allocations, and a history of them, for `_snapshot`.

    Args:
        enabled: None ends it; "state" keeps stacks of what is allocated, "all" a history, too.
        context: which events have stacks: none, those of what is allocated, all allocations, all.
        stacks: has no effect: they are Python's.
        max_entries: events of the history that are kept, the last ones.
        device: has no effect, as with torch.cuda: all devices are recorded.
        clear_history: forget what was recorded before; None for `enabled` forgets it, too.
        skip_actions: torch's names of events that the history leaves out.

    Raises:
        ValueError: `enabled` or `context` is not one of these.
    """
    global _history
    if enabled not in (None, "state", "all"):
        raise ValueError(f"enabled={enabled!r} must be None, 'state' or 'all'")
    if context not in STACKS_OF:
        raise ValueError(f"context={context!r} must be None, 'state', 'alloc' or 'all'")
    listen = shim.library().ocl_listen_to_memory
    if enabled is None:
        listen(None)
        _history = None
        return
    made = _History(
        enabled == "all",
        STACKS_OF[context],
        frozenset(skip_actions or ()),
        deque(maxlen=max_entries),
    )
    if _history is not None and not clear_history:
        made.events.extend(_history.events)
        made.live.update(_history.live)
    _history = made
    listen(_HEAR)


def _end() -> None:
    if _history is not None:  # no callback outlives Python
        _record_memory_history(None)


atexit.register(_end)


def memory_snapshot(mempool_id: object = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Return the segments of all devices as torch.cuda.memory_snapshot does, one block in each.

    Args:
        mempool_id: has no effect: there is one pool.
        include_traces: whether blocks have the `frames` that `_record_memory_history` kept.
    """
    live = _history.live if _history and include_traces else {}
    found = [(index, block) for index in range(device_count()) for block in _blocks(index)]
    frames = _symbols([live.get(address) for _, (address, *_) in found])
    return [_segment(*one, own) for one, own in zip(found, frames, strict=True)]


def _snapshot(device: DeviceLike = None) -> dict[str, Any]:
    """Return segments and the history of each device, as torch.cuda.memory._snapshot does."""
    events = [*_history.events] if _history else []
    entries: list[list[dict[str, Any]]] = [[] for _ in range(device_count())]
    for one, frames in zip(events, _symbols([e.stack for e in events]), strict=True):
        for action in ACTIONS[one.event]:
            entries[one.device].append(_entry(one, action, frames))
    return {
        "segments": memory_snapshot(),
        "device_traces": entries,
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(filename: str | Path = "dump_snapshot.pickle") -> None:
    """Write `_snapshot` to a file that https://pytorch.org/memory_viz draws."""
    with Path(filename).open("wb") as file:
        pickle.dump(_snapshot(), file)


def _blocks(index: int) -> list[list[int]]:
    """Return address, bytes, bytes asked for and state of each block of a device."""
    read = shim.library().ocl_memory_blocks
    read.restype = ctypes.c_int64
    room = 0
    while True:  # another thread may allocate in between
        words = (ctypes.c_int64 * (_WORDS * room))()
        count = read(ctypes.c_int(index), words, ctypes.c_int64(room))
        if count <= room:
            flat = words[: _WORDS * count]
            return [flat[at : at + _WORDS] for at in range(0, len(flat), _WORDS)]
        room = count


def _segment(index: int, block: list[int], frames: list[dict[str, Any]]) -> dict[str, Any]:
    address, size, requested, state = block
    allocated = size if state == 0 else 0
    return {
        "device": index,
        "address": address,
        "total_size": size,
        "allocated_size": allocated,
        "active_size": 0 if STATES[state] == "inactive" else size,
        "requested_size": requested if allocated else 0,
        "stream": 0,
        "segment_type": "large" if size >= LARGE else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": address,
                "size": size,
                "requested_size": requested if allocated else 0,
                "state": STATES[state],
                "frames": frames if allocated else [],
            }
        ],
    }


def _entry(one: _Event, action: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    entry = {"action": action, "size": one.size, "stream": 0, "time_us": one.time_us}
    return entry | {"device_free" if one.event == OOM else "addr": one.address, "frames": frames}


def _symbols(stacks: list[Any]) -> list[list[dict[str, Any]]]:
    """Return the frames of each stack, innermost first, without those of this module."""
    known = [stack for stack in stacks if stack is not None]
    found = iter(_profiler.symbolize_tracebacks(known))
    return [
        [] if stack is None else [one for one in next(found) if one["filename"] != __file__]
        for stack in stacks
    ]
