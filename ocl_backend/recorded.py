"""A function of tensors that is recorded as a graph for each shape of its inputs, and replayed.

`torch.compile(mode="reduce-overhead")` runs captured graphs of torch in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ocl_backend.runtime import capture, graphs
from ocl_backend.runtime.devices import device

WARM_UP = 2
"""Eager calls ahead of the recording: they build programs, and keep what weights are packed to."""
MOST = 64
"""Bound on the recordings of a function; calls with further shapes run eagerly."""


class _Recording(NamedTuple):
    """A graph, where it reads inputs, and what it writes."""

    graph: graphs.OCLGraph
    copied: tuple[tuple[int, Tensor], ...]
    """Places of inputs that every call copies in, with where to."""
    written: tuple[tuple[int, Tensor], ...]
    """The same of inputs that the function writes to, which are copied back."""
    outputs: list[Any]
    lasting: tuple[bool, ...]
    """Of each output, whether it lies in the caller's memory."""
    structure: Any

    def replay(self, inputs: Sequence[Any]) -> Any:
        for place, target in self.copied:
            target.copy_(inputs[place])
        self.graph.replay()
        for place, source in self.written:
            inputs[place].copy_(source)
        given = [
            out if lasts else out.clone()
            for out, lasts in zip(self.outputs, self.lasting, strict=True)
        ]
        return tree_unflatten(given, self.structure)


class Recorded:
    """Calls a function eagerly, then records it and replays what was recorded.

    Parameters, buffers, and tensors that `torch._dynamo.mark_static_address` names are read where
    they are; others are copied to where the graph reads them. Results are new tensors. Where a
    gradient is recorded, or a tensor lies elsewhere, the function is called.

    Args:
        function: takes tensors and numbers, returns tensors in tuples, lists or dictionaries.
        eager: is called where the function is not replayed.
        static: whether each input stays where it is from call to call.
    """

    def __init__(
        self, function: Callable[..., Any], eager: Callable[..., Any], static: Sequence[bool]
    ) -> None:
        self._function, self._eager = function, eager
        self._static = [place for place, stays in enumerate(static) if stays]
        self._moving = [place for place, stays in enumerate(static) if not stays]
        self._pool: graphs.Pool | None = None
        self._calls: dict[Any, int] = {}
        self._recordings: dict[Any, _Recording] = {}
        self._is_refused = False

    def __call__(self, *inputs: Any) -> Any:
        """Call the function, or replay it."""
        if self._is_refused or torch.is_grad_enabled() or capture.is_capturing():
            return self._eager(*inputs)
        key = self._key(inputs)
        if known := self._recordings.get(key):
            return known.replay(inputs)
        calls = self._calls[key] = self._calls.get(key, 0) + 1
        if calls <= WARM_UP or len(self._recordings) >= MOST:
            return self._eager(*inputs)
        return self._record(key, inputs)

    def _key(self, inputs: Sequence[Any]) -> Any:
        """Return what two calls have in common that one recording serves."""
        moving = [
            (one.shape, one.stride(), one.dtype, one.device) if isinstance(one, Tensor) else one
            for one in map(inputs.__getitem__, self._moving)
        ]
        return (*moving, *[inputs[place].data_ptr() for place in self._static])

    def _record(self, key: Any, inputs: Sequence[Any]) -> Any:
        try:
            recording = self._recorded(inputs)
        except RuntimeError as error:
            self._is_refused = True
            warnings.warn(
                f"runs without a graph, since it cannot be recorded: {error}", stacklevel=4
            )
            return self._eager(*inputs)
        self._recordings[key] = recording
        return recording.replay(inputs)

    def _recorded(self, inputs: Sequence[Any]) -> _Recording:
        tensors = [(place, one) for place, one in enumerate(inputs) if isinstance(one, Tensor)]
        elsewhere = {str(one.device) for _, one in tensors if one.device.type != "ocl"}
        if elsewhere:
            raise RuntimeError(f"an input lies on {sorted(elsewhere)}. Move it to the device")
        still = {*self._static}
        copied = tuple((place, one.clone()) for place, one in tensors if place not in still)
        given = [*inputs]
        for place, one in copied:
            given[place] = one
        versions = [one._version for _, one in copied]
        graph = graphs.OCLGraph()
        self._pool = self._pool or graphs.graph_pool_handle()
        with device(tensors[0][1].device), graphs.graph(graph, self._pool):
            results = self._function(*given)
        outputs, structure = tree_flatten(results)
        theirs = {one.untyped_storage().data_ptr() for place, one in tensors if place in still}
        return _Recording(
            graph,
            copied,
            tuple(
                one
                for one, before in zip(copied, versions, strict=True)
                if one[1]._version != before
            ),
            outputs,
            tuple(
                not isinstance(out, Tensor) or out.untyped_storage().data_ptr() in theirs
                for out in outputs
            ),
            structure,
        )
