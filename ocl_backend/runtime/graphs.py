"""Graphs as torch.cuda has them: a step's commands, captured once and replayed by one call.

    graph = torch.ocl.OCLGraph()
    with torch.ocl.graph(graph):
        out = model(static_input)
    static_input.copy_(batch)
    graph.replay()  # `out` has the results for `batch`

The shim records and replays (csrc/runtime/graph.h). docs/how-to/graphs.md says how to use them.
"""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path
from typing import Any, Literal

import torch

from ocl_backend.runtime import capture, launch, shim, streams
from ocl_backend.runtime.devices import current_device

Pool = tuple[int, int]
"""What `graph_pool_handle` returns: a number, and 0."""
ErrorMode = Literal["default", "global", "thread_local", "relaxed"]


def is_current_stream_capturing() -> bool:
    """Return whether what this thread enqueues goes to a graph instead of to the device."""
    return capture.is_capturing()


def graph_pool_handle() -> Pool:
    """Return a pool of memory that graphs can share; see `OCLGraph.capture_begin`."""
    new = shim.library().ocl_graph_pool_new
    new.restype = ctypes.c_uint64
    return new(), 0


class OCLGraph:
    """Commands of a device in the order in which a thread would have enqueued them.

    Its methods are those of torch.cuda.CUDAGraph. A graph keeps the memory that its commands use.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        """Make a graph without commands.

        Args:
            keep_graph: accepted as torch.cuda does; a graph has one form, which is kept.
        """
        del keep_graph
        self._handle: int | None = None
        self._pool: Pool | None = None
        self._is_open = False
        self._end: weakref.finalize[Any, OCLGraph] | None = None

    def capture_begin(
        self, pool: Pool | None = None, capture_error_mode: ErrorMode = "global", **_: Any
    ) -> None:
        """Record this thread's commands on the current device from now on, and run none of them.

        Backward passes that this thread begins are recorded, too. Other threads go on as before.

        Args:
            pool: of `graph_pool_handle` or another graph's `pool()`: both graphs then share memory,
                and must be replayed in the order in which they were captured.
            capture_error_mode: accepted as torch.cuda does. A call that cannot be recorded is
                an error of its own in every mode.

        Raises:
            RuntimeError: the thread captures already, or the graph has commands: `reset()` it.
        """
        if self._handle is not None:
            raise RuntimeError("this graph has been captured. Call reset() before another capture")
        self._pool = pool or graph_pool_handle()
        begin = shim.library().ocl_graph_begin
        begin.restype = ctypes.c_void_p
        handle = begin(ctypes.c_int(current_device()), ctypes.c_uint64(self._pool[0]))
        if handle is None:
            raise RuntimeError(shim.last_error())
        self._handle, self._is_open = handle, True
        capture.begin()
        self._end = weakref.finalize(self, _delete, handle)
        self._end.atexit = False

    def capture_end(self) -> None:
        """End the capture. The thread that began it ends it.

        Raises:
            RuntimeError: no capture is open, or a call in it could not be recorded. The graph is
                then empty.
        """
        self._close(abandon=False)

    def abandon(self) -> None:
        """End a capture that an exception ended, if there is one; the graph is then empty."""
        if self._is_open:
            self._close(abandon=True)
            self.reset()

    def _close(self, abandon: bool) -> None:
        if not self._is_open:
            raise RuntimeError("no capture of this graph is open. Call capture_begin() first")
        self._is_open = False
        status = shim.library().ocl_graph_end(ctypes.c_void_p(self._handle), int(abandon))
        if status:
            error = launch.error(status)
            self.reset()
            raise RuntimeError(str(error))

    def instantiate(self) -> None:
        """Do nothing: `capture_end` leaves a graph that can be replayed."""

    def replay(self) -> None:
        """Enqueue all commands. Returns before they have run.

        Raises:
            RuntimeError: nothing was captured.
            torch.AcceleratorError, torch.OutOfMemoryError: the driver refused a command.
        """
        if self._handle is None or self._is_open:
            raise RuntimeError("this graph has no commands. Capture it first")
        torch.ops.ocl.replay_graph(self._handle)

    def reset(self) -> None:
        """Forget the commands. Memory that no tensor has returns to the device."""
        if self._is_open:
            self.abandon()
        if self._end is not None:
            self._end()
        self._handle = self._pool = self._end = None

    def pool(self) -> Pool:
        """Return the pool of memory, which other graphs can share.

        Raises:
            RuntimeError: nothing was captured.
        """
        if self._pool is None:
            raise RuntimeError("this graph has no memory. Capture it first")
        return self._pool

    def enable_debug_mode(self) -> None:
        """Do nothing: `debug_dump` works for every graph."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the commands in their order to a file, in the language of Graphviz."""
        names = [name.decode() for name in self._listing().splitlines()]
        nodes = [f'  {number} [label="{name}"];' for number, name in enumerate(names)]
        edges = [f"  {number} -> {number + 1};" for number in range(len(names) - 1)]
        Path(debug_path).write_text("\n".join(["digraph {", *nodes, *edges, "}", ""]), "utf-8")

    def _listing(self) -> bytes:
        if self._handle is None:
            return b""
        listing = shim.library().ocl_graph_listing
        listing.restype = ctypes.c_char_p
        names: bytes = listing(ctypes.c_void_p(self._handle))
        return names


def _delete(handle: int) -> None:
    shim.library().ocl_graph_delete(ctypes.c_void_p(handle))


class graph:  # noqa: N801  (torch.cuda.graph set the name)
    """Context manager that captures into a graph what is called in it."""

    def __init__(
        self,
        cuda_graph: OCLGraph,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: ErrorMode = "global",
    ) -> None:
        """Keep what the capture is to have; torch.cuda set the names.

        Args:
            cuda_graph: the graph.
            pool: see `OCLGraph.capture_begin`.
            stream: the current one in the context; None: as before, since streams are names.
            capture_error_mode: see `OCLGraph.capture_begin`.
        """
        self._graph, self._pool, self._mode = cuda_graph, pool, capture_error_mode
        self._stream = streams.StreamContext(stream)

    def __enter__(self) -> None:
        """Wait for the device, and begin."""
        streams.synchronize()
        self._stream.__enter__()
        self._graph.capture_begin(self._pool, self._mode)

    def __exit__(self, kind: Any, *raised: Any) -> None:
        """End the capture; after an exception the graph is empty, and the exception goes on."""
        try:
            self._graph.abandon() if kind else self._graph.capture_end()
        finally:
            self._stream.__exit__(kind, *raised)
