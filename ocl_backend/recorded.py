"""A function of tensors that is recorded as a graph for each shape of its inputs, and replayed.

`torch.compile(mode="reduce-overhead")` runs captured graphs of torch in it, and `generate` of
transformers a token's step (`libraries.transformers.replay`).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ocl_backend.runtime import capture, graphs
from ocl_backend.runtime.devices import device

WARM_UP = 2
"""Eager calls ahead of the first recording for the same shapes: they build programs, and keep what
weights are packed to."""
MOST = 16
"""Bound on the recordings of a function; calls with further shapes run eagerly."""
NUMBERS = (bool, int, float, str, type(None), torch.dtype, torch.device)


class _Output(NamedTuple):
    """What is returned: an input, of which nothing is kept but its place; else a value."""

    place: int | None
    value: Any
    is_new: bool
    """Whether it is a tensor of the graph's memory, of which each call returns a copy."""

    def of(self, inputs: list[Any]) -> Any:
        """Return what a call with these inputs returns."""
        if self.place is not None:
            return inputs[self.place]
        return self.value.clone() if self.is_new else self.value


class _Recording(NamedTuple):
    """A graph, where it reads inputs, and what it writes."""

    graph: graphs.OCLGraph
    copied: tuple[tuple[int, Tensor], ...]
    """Places of inputs that every call copies in, with where to."""
    written: tuple[tuple[int, Tensor], ...]
    """The same of inputs that the function writes to, which are copied back."""
    outputs: tuple[_Output, ...]
    structure: Any
    read: tuple[weakref.ref[Any], ...]
    """What the graph reads where it is, which the caller may drop."""

    @property
    def is_alive(self) -> bool:
        """Whether the caller still has everything that the graph reads."""
        return all(one() is not None for one in self.read)

    def replay(self, inputs: list[Any]) -> Any:
        """Copy the inputs in, replay, and return new tensors with the results."""
        for place, target in self.copied:
            target.copy_(inputs[place])
        self.graph.replay()
        for place, source in self.written:
            inputs[place].copy_(source)
        return tree_unflatten([out.of(inputs) for out in self.outputs], self.structure)


class Recorded:
    """Calls a function eagerly, then records it and replays what was recorded.

    Tensors that stay where they are (`stays`) are read there; others are copied to where the graph
    reads them. Results are new tensors. Where a gradient is recorded the function is called.

    Args:
        function: takes and returns tensors, numbers, and what pytrees are made of.
        eager: is called where nothing is replayed.
    """

    def __init__(self, function: Callable[..., Any], eager: Callable[..., Any]) -> None:
        self._function, self._eager = function, eager
        self._pool: graphs.Pool | None = None
        self._calls: dict[Any, int] = {}
        self._recordings: dict[Any, _Recording] = {}
        self._is_refused = False

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function, or replay it."""
        if self._is_refused or torch.is_grad_enabled() or capture.is_capturing():
            return self._eager(*given, **named)
        inputs, structure = tree_flatten((given, named))
        key = (structure, *map(_same, inputs))
        known = self._recordings.get(key)
        if known is not None and known.is_alive:
            return known.replay(inputs)
        self._forget_dead()
        kind = (structure, *map(_kind, inputs))
        calls = self._calls[kind] = self._calls.get(kind, 0) + 1
        if calls <= WARM_UP or len(self._recordings) >= MOST:
            return self._eager(*given, **named)
        return self._record(key, inputs, structure)

    def _forget_dead(self) -> None:
        for key in [key for key, one in self._recordings.items() if not one.is_alive]:
            del self._recordings[key]
        if len(self._calls) > MOST**2:
            self._calls.clear()

    def _record(self, key: Any, inputs: list[Any], structure: Any) -> Any:
        try:
            recording = self._recorded(inputs, structure)
        except RuntimeError as error:
            self._is_refused = True
            warnings.warn(
                f"runs without a graph, since it cannot be recorded: {error}", stacklevel=4
            )
            given, named = tree_unflatten(inputs, structure)
            return self._eager(*given, **named)
        self._recordings[key] = recording
        return recording.replay(inputs)

    def _recorded(self, inputs: list[Any], structure: Any) -> _Recording:
        tensors = [(place, one) for place, one in enumerate(inputs) if isinstance(one, Tensor)]
        elsewhere = {str(one.device) for _, one in tensors if one.device.type != "ocl"}
        if elsewhere:
            raise RuntimeError(f"an input lies on {sorted(elsewhere)}. Move it to the device")
        if not tensors:
            raise RuntimeError("no input is a tensor")
        with torch.inference_mode(False), torch.no_grad():  # such tensors count no writes
            copied = tuple((place, one.clone()) for place, one in tensors if not stays(one))
        given = [*inputs]
        for place, one in copied:
            given[place] = one
        versions = [one._version for _, one in copied]
        graph = graphs.OCLGraph()
        self._pool = self._pool or graphs.graph_pool_handle()
        arguments, named = tree_unflatten(given, structure)
        with device(tensors[0][1].device), graphs.graph(graph, self._pool):
            results = self._function(*arguments, **named)
        outputs, made = tree_flatten(results)
        changed = [one._version != old for (_, one), old in zip(copied, versions, strict=True)]
        places = {id(one): place for place, one in enumerate(inputs) if _is_read_in_place(one)}
        theirs = {one.untyped_storage().data_ptr() for _, one in tensors if stays(one)}

        def is_new(out: Any) -> bool:
            return isinstance(out, Tensor) and out.untyped_storage().data_ptr() not in theirs

        return _Recording(
            graph,
            copied,
            tuple(compress(copied, changed)),
            tuple(
                _Output(place, None if place is not None else out, is_new(out))
                for out in outputs
                for place in [places.get(id(out))]
            ),
            made,
            tuple(weakref.ref(one) for one in inputs if _is_read_in_place(one)),
        )


def stays(given: Tensor) -> bool:
    """Return whether a tensor lies at the same address in all calls.

    That is a module's parameter, or what `torch._dynamo.mark_static_address` names.
    """
    if isinstance(given, torch.nn.Parameter):
        return True
    return getattr(given, "_dynamo_static_input_type", None) is not None


def _is_read_in_place(given: Any) -> bool:
    return stays(given) if isinstance(given, Tensor) else not isinstance(given, NUMBERS)


def _same(given: Any) -> Any:
    """Return what an input has in common with those that one recording serves."""
    if not isinstance(given, Tensor):
        return given if isinstance(given, NUMBERS) else id(given)
    return given.data_ptr() if stays(given) else _kind(given)


def _kind(given: Any) -> Any:
    """Return what an input has in common with those whose calls need the same programs."""
    if isinstance(given, Tensor):
        return given.shape, given.stride(), given.dtype, given.device
    return given if isinstance(given, NUMBERS) else type(given)
