"""Streams and events, as torch.cuda has them; torch's own classes, named here for `torch.ocl`.

Every device has one in-order queue. Streams are names that a thread keeps and hands out again:
commands run in the order in which they were enqueued, whatever their streams. Programs written for
several streams are right, and gain nothing. Waiting for an event of another device is the host's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import accelerator

from ocl_backend.runtime.devices import DeviceLike, index_of

Event = torch.Event
"""`Event(enable_timing=True)`; `elapsed_time` is in milliseconds of the device's clock."""
Stream = torch.Stream
"""`Stream(device)`; as a context manager it becomes the current stream of its device."""


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """Return the stream this thread has chosen for a device, at first its default stream."""
    return accelerator.current_stream(index_of(device))


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """Return the stream that a device has from the start."""
    index, kind = index_of(device), torch._C._autograd.DeviceType.PrivateUse1
    return torch.Stream(stream_id=0, device_index=index, device_type=kind.value)


def set_stream(stream: torch.Stream) -> None:
    """Make `stream` the current one of its device in this thread, and the device current."""
    accelerator.set_stream(stream)


class StreamContext:
    """Context in which a stream is the current one; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        """Keep the stream until the context begins."""
        self.stream = stream

    def __enter__(self) -> None:
        """Make it the current one."""
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *raised: Any) -> None:
        """Make the one from before the current one."""
        if self.stream is not None:
            self.stream.__exit__(*raised)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context in which `stream` is the current one; None changes nothing."""
    return StreamContext(stream)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until everything enqueued on `device` has run.

    Raises:
        RuntimeError: an earlier command failed; the message names the last kernel launched.
    """
    # not accelerator.synchronize, which returns at once under torch 2.11 with CUDA
    current_stream(device).synchronize()
