"""What fields of shared files may contain, and the sentence for a wrong one: pydantic types.

Files come from strangers: every text is bounded, every number has a range, and no field is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NotRequired, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic's before Python 3.12

from oclgen.limits import DeviceInfo, Limits
from oclgen.problem import DTYPES

LEAST_MS = 1e-6
"""A nanosecond, in which devices count: times are kept to it, and none is less."""


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a line of text is needed")
    return text


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _parameter(value: Any) -> Any:
    if type(value) is str:
        fits = len(value) <= 400 and value.isprintable()
    else:
        fits = type(value) is bool or (type(value) is int and abs(value) < 2**31)
    if not fits:
        raise ValueError("a number of 32 bits, a switch or a word is needed")
    return value


Line = Annotated[str, Field(max_length=400), AfterValidator(_line)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")]
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+!-]{1,64}$")]
Dtype = Annotated[str, Field(pattern=f"^({'|'.join(sorted(DTYPES.keys() - {'fp32'}))})$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Created = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_time)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Bytes = Annotated[int, Field(ge=0, lt=2**63)]
Milliseconds = Annotated[float, Field(ge=LEAST_MS, lt=1e12, allow_inf_nan=False)]
Samples = Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=10_000)]
Error = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, lt=1e12, allow_inf_nan=False)]
Peaks = dict[Dtype, Rate]
"""GFLOP/s of dtypes other than fp32."""
Condition = Annotated[float, Field(gt=-1e12, lt=1e12, allow_inf_nan=False)]
Conditions = Annotated[dict[Name, Condition], Field(max_length=32)]
Parameters = Annotated[dict[Name, Annotated[Any, AfterValidator(_parameter)]], Field(max_length=64)]

_NARROWED: dict[Any, Any] = {str: Line, int: Count}
MEANINGS = {
    "samples": "times are milliseconds, one at least, and none under a nanosecond",
    "peak": "it is GFLOP/s and GB/s, or null",
    "peaks": "they are GFLOP/s by dtype, or null",
    "created": "it is UTC in ISO 8601, such as 2026-01-02T03:04:05Z",
    "cache": "it is warm or cold",
    "config": "parameters are numbers, switches and words by name",
}


def strict(name: str, hints: Mapping[str, Any]) -> Any:
    """Return the type of an object with exactly these fields, none of which is converted.

    Args:
        name: of the type, for messages.
        hints: the fields' types by name.
    """
    typed: Any = TypedDict  # made of values, which mypy does not follow
    made = typed(name, dict(hints))
    made.__pydantic_config__ = ConfigDict(strict=True, extra="forbid")
    return made


def several(kind: Any, most: int, least: int = 0) -> Any:
    """Return the type of a list.

    Args:
        kind: of its items.
        most: items that it may have.
        least: items that it must have.
    """
    return Annotated[list[kind], Field(min_length=least, max_length=most)]


DEVICE_HINTS: dict[str, Any] = get_type_hints(DeviceInfo)
Device = strict("Device", {name: _NARROWED.get(hint, hint) for name, hint in DEVICE_HINTS.items()})
"""`DeviceInfo` as JSON."""
_NAMES = several(Line, 1000)
_LIMITS: dict[str, Any] = {
    "max_work_items": several(Bytes, 16, least=3),
    "extensions": _NAMES,
    "instructions": _NAMES,
    "declared_local_bytes": NotRequired[Bytes],  # check files are older than this limit
}
LimitsJson = strict(
    "Limits",
    {
        name: _LIMITS.get(name, Bytes if hint is int else hint)
        for name, hint in get_type_hints(Limits).items()
    },
)
"""`Limits.to_json()`; a work-item's sizes are a list, as JSON has it."""


def why_wrong(adapter: TypeAdapter[Any], values: Any) -> str | None:
    """Say which field of `values` the type does not take, its value and a remedy; None if none."""
    try:
        adapter.validate_python(values)
    except ValidationError as error:
        return sentence(error)
    return None


def sentence(error: ValidationError) -> str:
    """Return what is wrong first, in one sentence that names the field."""
    found = error.errors(include_url=False)
    unknown, missing = (
        [one["loc"] for one in found if one["type"] == kind]
        for kind in ("extra_forbidden", "missing")
    )
    if unknown or missing:
        where = " ".join(map(str, (unknown or missing)[0][:-1])) or "record"
        names = [sorted(str(loc[-1])[:60] for loc in locs)[:20] for locs in (unknown, missing)]
        return f"{where}: unknown fields {names[0]}, missing {names[1]}"
    first = found[0]
    name, *inner = (part if isinstance(part, int) else str(part)[:60] for part in first["loc"])
    place = "".join(f"[{part}]" if isinstance(part, int) else f" {part}" for part in inner[:1])
    message = first["msg"].removeprefix("Value error, ")
    said = f"{name}{place} is {repr(first['input'])[:60]}: {message[0].lower()}{message[1:]}"
    return f"{said}; {MEANINGS[name]}" if name in MEANINGS else said
