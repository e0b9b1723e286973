"""The other forms of an operator: with `out=` of several kinds, and in place.

Each is called on the CPU first: the device must give the same numbers, or raise where it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

Form = Callable[[Any, Any, torch.device], Any]
"""Of a sample on a device and the operator's result on the CPU; returns what was written."""


def forms_of(info: Any) -> Iterator[tuple[str, Form]]:
    """Yield the forms that the operator has, by name."""
    if info.supports_out:
        for name, made in OUTPUTS.items():
            yield name, _writing(info, made)
    if info.inplace_variant is not None:
        yield "in place", _in_place(info.inplace_variant)


def _same(result: Tensor) -> Tensor:
    return torch.zeros_like(result)


def _empty(result: Tensor) -> Tensor:
    return result.new_empty(0)


def _strided(result: Tensor) -> Tensor:
    return result.new_zeros((*result.shape, 2))[..., 1]


def _other_dtype(result: Tensor) -> Tensor:
    narrower = torch.int64 if result.dtype.is_floating_point else torch.bool
    return torch.zeros_like(result, dtype=narrower)


def _wider_dtype(result: Tensor) -> Tensor:
    wider = torch.float64 if result.dtype.is_floating_point else torch.float32
    return torch.zeros_like(result, dtype=wider)


OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "out": _same,
    "out resized": _empty,
    "out strided": _strided,
    "out of another dtype": _other_dtype,
    "out of a wider dtype": _wider_dtype,
}
"""What each form writes to, made from a result of the right shape."""


def _writing(info: Any, made: Callable[[Tensor], Tensor]) -> Form:
    def form(sample: Any, result: Any, place: torch.device) -> Any:
        out = tree_map(lambda leaf: made(leaf.detach()).to(place, copy=True), result)
        strides = [leaf.stride() for leaf in _leaves(out)]
        with torch.no_grad():
            info(sample.input, *sample.args, **sample.kwargs, out=out)
        kept = made is _empty or strides == [leaf.stride() for leaf in _leaves(out)]
        assert kept, "an output of the right shape was laid out anew"
        return out

    return form


def _leaves(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else list(out)


def _in_place(operator: Callable[..., Any]) -> Form:
    def form(sample: Any, result: Any, place: torch.device) -> Any:
        with torch.no_grad():
            target = sample.input.detach().clone()
            operator(target, *sample.args, **sample.kwargs)
        return target

    return form
