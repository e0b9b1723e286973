"""A drawn operator as plain values, and what a kind of operators is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.tasks.operators.drawing import Drawing, Sizes
from oclgen.problem import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

LAYOUTS = ("rows", "rows", "rows", "turned", "cut out")
"""How the first tensor lies, as often as it stands here: contiguous, with two dimensions exchanged,
or cut out of a wider one. "turned" is channels_last where there are four or five dimensions."""


class Made(NamedTuple):
    """An operator on its tensors: its forward pass, and parameters whose gradients are asked for.

    `forward` returns one tensor, or several of which the first has gradients, or none.
    """

    forward: Callable[[], Any]
    parameters: Sequence[Tensor] = ()


class Kind(NamedTuple):
    """What is drawn and called under one name.

    `make` takes the first tensor and the options that `draw` drew. `part` is the part of the
    elements, at most, that a case has: less than 1 where the operator works long on each.
    """

    area: str
    draw: Drawing
    make: Callable[..., Made]
    has_gradients: bool = False
    dtypes: tuple[str, ...] = ("fp32", "bf16", "fp16")
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator on a first tensor of a shape; `direction` is "forward" or "gradients"."""

    kind: str
    area: str
    direction: str
    dtype: str
    shape: Sizes
    options: tuple[tuple[str, Any], ...]
    layout: str

    @property
    def bytes(self) -> float:
        """Bytes of the first tensor, read and written once."""
        return 2.0 * DTYPES.get(self.dtype, 8) * prod(self.shape)

    def key(self) -> str:
        """Return the case as text."""
        options = "".join(f" {name} {_text(value)}" for name, value in self.options)
        shape = _text(self.shape)
        return f"{self.kind} {shape}{options} {self.dtype} {self.direction} {self.layout}"


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
