"""Callables whose forward and backward passes are graphs: torch.cuda.make_graphed_callables.

A graph computes on memory of its own. So a call copies its arguments there, replays, and returns
tensors on the graph's memory, which the next call overwrites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import arg_tree_leaves, tree_flatten, tree_unflatten

from ocl_backend.runtime import graphs, streams

Graphable = nn.Module | Callable[..., Any]


class _Pass(NamedTuple):
    """A captured pass: what it reads, and what it writes; None where there is no gradient."""

    graph: graphs.OCLGraph
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor | None]

    def run(self, given: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Copy what is given where the graph reads it, replay, and return what it writes."""
        for place, value in zip(self.inputs, given, strict=False):
            if place is not None and value is not None and place.data_ptr() != value.data_ptr():
                place.copy_(value)
        self.graph.replay()
        return tuple(None if out is None else out.detach() for out in self.outputs)


class _Call:
    """A callable with sample arguments, and its passes once they are captured."""

    def __init__(self, function: Graphable, sample: tuple[Any, ...], allow_unused: bool) -> None:
        self.function, self.sample, self.allow_unused = function, sample, allow_unused
        self.arguments: list[Tensor] = arg_tree_leaves(*sample)
        self.parameters: list[Tensor] = []
        if isinstance(function, nn.Module):
            _check(function)
            self.parameters = [*function.parameters()]
        if not all(isinstance(one, Tensor) for one in self.arguments):
            kinds = sorted({type(one).__name__ for one in self.arguments})
            raise TypeError(f"sample_args of a graphed callable are tensors; got {kinds}")
        self.read = [*self.arguments, *self.parameters]
        self.outputs: list[Tensor] = []

    def gradients(self, outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradient of each tensor that is read; None where it needs none."""
        wanted = [one for one in self.read if one.requires_grad]
        found = iter(torch.autograd.grad(outputs, wanted, given, allow_unused=self.allow_unused))
        return [next(found) if one.requires_grad else None for one in self.read]

    def warm_up(self, times: int) -> None:
        """Run both passes, so that programs are built and what weights are packed to is kept."""
        for _ in range(times):
            outputs = [o for o in tree_flatten(self.function(*self.sample))[0] if _learns(o)]
            if outputs and any(one.requires_grad for one in self.read):
                self.gradients(outputs, [torch.zeros_like(o) for o in outputs])

    def capture_forward(self, pool: graphs.Pool) -> None:
        """Capture the forward pass."""
        graph = graphs.OCLGraph()
        with graphs.graph(graph, pool):
            result = self.function(*self.sample)
        self.outputs, self.structure = tree_flatten(result)
        self.forward = _Pass(graph, self.read, self.outputs)

    def capture_backward(self, pool: graphs.Pool) -> None:
        """Capture the backward pass, if there is one."""
        graph = graphs.OCLGraph()
        given = [torch.zeros_like(o) if _learns(o) else None for o in self.outputs]
        found: list[Tensor | None] = [None] * len(self.read)
        outputs = [o for o in self.outputs if _learns(o)]
        self.backward: _Pass | None = None
        if outputs:
            with graphs.graph(graph, pool):
                found = self.gradients(outputs, [g for g in given if g is not None])
            self.backward = _Pass(graph, given, found)

    def graphed(self) -> Callable[..., Any]:
        """Return a function of the sample's arguments that replays both passes."""
        forward, backward, structure = self.forward, self.backward, self.structure

        class Replayed(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *inputs: Tensor) -> Any:
                del context
                return forward.run(inputs[: len(self.arguments)])

            @staticmethod
            @once_differentiable
            def backward(context: Any, *given: Tensor) -> Any:
                del context
                return backward.run(given) if backward else (None,) * len(self.read)

        def call(*arguments: Any) -> Any:
            outputs: Any = Replayed.apply(  # type: ignore[no-untyped-call]
                *arg_tree_leaves(*arguments), *self.parameters
            )
            return tree_unflatten([*outputs], structure)

        return call


def make_graphed_callables(
    callables: Graphable | tuple[Graphable, ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: graphs.Pool | None = None,
) -> Any:
    """Return callables whose forward and backward passes are replayed, for tensors as the samples.

    A module is changed in place: in the mode (training or evaluation) that it has now its `forward`
    replays. Results are overwritten by the callable's next call.

    Args:
        callables: modules or functions, in the order in which a step calls them.
        sample_args: for each a tuple of tensors with the shapes, dtypes and `requires_grad` of
            later calls; for one callable its tuple alone. The graphs read arguments there.
        num_warmup_iters: calls ahead of the capture.
        allow_unused_input: whether results may not depend on an input that requires a gradient.
        pool: of memory, as `graph_pool_handle` returns it.

    Raises:
        RuntimeError: autocast keeps casts (`cache_enabled=False`), or a pass cannot be captured.
        TypeError: an argument is no tensor.
        ValueError: a module has hooks, or a buffer that requires a gradient.
    """
    if torch.is_autocast_enabled("ocl") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "a graph would read weights that autocast cast before. Pass cache_enabled=False to it"
        )
    several = callables if isinstance(callables, tuple) else (callables,)
    samples = sample_args if isinstance(callables, tuple) else (sample_args,)
    calls = [
        _Call(function, sample, allow_unused_input)
        for function, sample in zip(several, samples, strict=True)
    ]
    for call in calls:
        call.warm_up(num_warmup_iters)
    streams.synchronize()
    # the graphs share memory, so they are captured in the order in which a step replays them
    shared = pool or graphs.graph_pool_handle()
    for call in calls:
        call.capture_forward(shared)
    for call in reversed(calls):
        call.capture_backward(shared)
    made = tuple(_installed(call) for call in calls)
    return made if isinstance(callables, tuple) else made[0]


def _learns(output: Any) -> bool:
    return isinstance(output, Tensor) and output.requires_grad


def _check(module: nn.Module) -> None:
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks
    if any(hooks):
        raise ValueError("a graphed module has hooks. Register them behind the capture")
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise ValueError("a graphed module has a buffer that requires a gradient")


def _installed(call: _Call) -> Graphable:
    """Return a function that replays, or the module with it as `forward`."""
    graphed, module = call.graphed(), call.function
    if not isinstance(module, nn.Module):
        return graphed
    eager, mode = module.forward, module.training

    @wraps(eager)
    def forward(*arguments: Any, **named: Any) -> Any:
        return (graphed if module.training == mode else eager)(*arguments, **named)

    module.forward = forward
    return module
