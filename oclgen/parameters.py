"""What a family's parameters may be: their types and bounds, and the one reader of configs.

A `Config` declares bounds with its fields, by the types below or by an `Annotated` of its own. They
hold for every problem and device; `conflict` and `needs` of a family say what a problem and a
device allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Annotated, Any, NamedTuple, Protocol, get_args, get_origin, get_type_hints

TYPES = (int, bool, str)
"""Types of a parameter: what JSON has, too."""


class ConfigError(ValueError):
    """A config that does not fit its family: a parameter is unknown, missing or out of range."""


class Bound(Protocol):
    """The bounds of a parameter's value, beside its type."""

    def why_not(self, value: Any) -> str | None:
        """Say what the value must be, as in "must be ..."; None if it is that."""
        ...


class Range(NamedTuple):
    """Integers from `low` to `high`, both included."""

    low: int
    high: int

    def why_not(self, value: int) -> str | None:
        """Say what the value must be, None if it is that."""
        return None if self.low <= value <= self.high else f"{self.low} to {self.high}"


Tile = Annotated[int, Range(1, 1024)]
"""Elements of a work-group's tile, or work-items that share it, along one axis."""
Item = Annotated[int, Range(1, 512)]
"""Elements that one work-item keeps in private memory, along one axis."""
Vector = Annotated[int, Range(1, 16)]
"""Lanes of a vector."""
Channels = Annotated[int, Range(1, 32)]
"""Channels of a work-item, which one vector holds, or two of the halves of words."""
Local = Annotated[int, Range(1, 8192)]
"""Work-items of a work-group along one axis."""
Unroll = Annotated[int, Range(1, 32)]
"""Steps of a loop that are written out one after the other."""
Pad = Annotated[int, Range(0, 64)]
"""Elements of local memory between rows, against bank conflicts."""
Stages = Annotated[int, Range(1, 16)]
"""Copies of a tile in local memory."""
Warps = Annotated[int, Range(1, 32)]
"""Warps of a work-group, or lanes of a warp, along one axis."""
Parts = Annotated[int, Range(1, 1 << 16)]
"""Slices of a reduction, or parts of other work, that work-groups share."""
Head = Annotated[int, Range(0, 1 << 16)]
"""Rows of tiles before those whose reduction is cut; 0 where none is."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of a `Config`: its name, type and bound; `needed` unless it has a default."""

    name: str
    type: type
    bound: Bound | None
    needed: bool

    def why_not(self, value: object) -> str | None:
        """Say with the value why it cannot be the parameter's, or None."""
        if type(value) is not self.type:
            return f"{self.name}={_shown(value)}: it must be of type {self.type.__name__}"
        must = self.bound.why_not(value) if self.bound else None
        return f"{self.name}={_shown(value)}: it must be {must}" if must else None


@cache
def parameters(kind: Any) -> tuple[Parameter, ...]:
    """Return the parameters of a `Config` class, in the order of its fields.

    Raises:
        TypeError: a field has another type than `TYPES`, or is an integer without bounds.
    """
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in fields(kind):
        hint = hints[field.name]
        base, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if base not in TYPES:
            raise TypeError(f"{kind.__qualname__}.{field.name} is {base}, not one of {TYPES}")
        bound = next((extra for extra in extras if hasattr(extra, "why_not")), None)
        if base is int and bound is None:
            raise TypeError(
                f"{kind.__qualname__}.{field.name} is an int without bounds; "
                "write Annotated[int, Range(low, high)]"
            )
        found.append(Parameter(field.name, base, bound, field.default is MISSING))
    return tuple(found)


def values_of(config: Any) -> dict[str, Any]:
    """Return the values of a config's parameters by name, in the order of its fields.

    `dataclasses.asdict` copies each value deeply: 38 us where this takes one.
    """
    kind: Any = type(config)
    return {one.name: getattr(config, one.name) for one in parameters(kind)}


def out_of_range(config: Any) -> str | None:
    """Say with its value which parameter of a config is out of range, or None."""
    kind: Any = type(config)
    for parameter in parameters(kind):
        value, bound = getattr(config, parameter.name), parameter.bound
        if type(value) is not parameter.type or (bound is not None and bound.why_not(value)):
            return parameter.why_not(value)
    return None


def read(family: str, kind: Any, values: Mapping[str, Any]) -> Any:
    """Return the config `kind(**values)` of a family.

    A parameter that came later has a default, which is what older records mean.

    Args:
        family: named in errors.
        kind: the family's `Config`.
        values: parameters by name, as a record or a user gives them.

    Raises:
        ConfigError: a parameter is missing, unknown, of a wrong type or out of range.
    """
    known = parameters(kind)
    unknown = sorted(set(values) - {one.name for one in known})
    missing = sorted({one.name for one in known if one.needed} - set(values))
    if unknown or missing:
        raise ConfigError(
            f"{family}: unknown parameters {unknown}, missing {missing}; "
            "was the config written by another generator version?"
        )
    for one in known:
        if one.name in values and (reason := one.why_not(values[one.name])):
            raise ConfigError(f"{family}: {reason}")
    return kind(**values)


def _shown(value: object) -> str:
    """Return a value for a message: the beginning of one that is long."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
