"""A winner with its provenance, as it is kept, exported and shared; and its line of JSON.

Where records lie is `tuned_db.store`, and which one serves a problem is `tuned_db.choose`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from statistics import median
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from oclgen.families import ConfigError
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo
from oclgen.measurement import Cache
from oclgen.problem import ProblemError
from oclgen.variant import Variant

LEAST_MS = 1e-6
"""A nanosecond, in which devices count: times are kept to it, and none is less."""


class RecordError(ValueError):
    """A record that contradicts itself, or a line that holds none; the message says where."""


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


_Line = Annotated[str, Field(max_length=400), AfterValidator(_line)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")]
_Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+!-]{1,64}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
_Created = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_time)
]
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Milliseconds = Annotated[float, Field(ge=LEAST_MS, lt=1e12, allow_inf_nan=False)]
_Error = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]
_Rate = Annotated[float, Field(gt=0, lt=1e12, allow_inf_nan=False)]
_Condition = Annotated[float, Field(gt=-1e12, lt=1e12, allow_inf_nan=False)]
_Parameters = Annotated[
    dict[_Name, Annotated[Any, AfterValidator(_parameter)]], Field(max_length=64)
]


@dataclass(frozen=True, slots=True)
class Record:
    """The fastest variant known for one problem on one device, driver and generator.

    `problem` is a key that `oclgen.keys.parse_key` reads, `config` canonical JSON of the family's
    parameters, `samples` milliseconds, `error` the relative L2 error against float64 (None if
    unknown), `trials` the number of variants that had been tried, `created` UTC in ISO 8601.
    `peak` is what the device reaches at most, if known: fp32 GFLOP/s and GB/s of a copy. `cache`,
    `seed` and `conditions` are those of `oclgen.measurement.Measurement`. `digest` names the
    kernels' text (`tuned_db.digests`), None if unknown. `origin` is empty where the owner of
    the database measured the times, else it says how they came there.

    Raises:
        RecordError: a value is of a wrong type, too long or out of its range.
    """

    problem: _Line
    family: _Name
    config: str
    samples: Annotated[tuple[_Milliseconds, ...], Field(min_length=1, max_length=10_000)]
    error: _Error | None
    trials: _Count
    device: DeviceInfo
    generator: _Version
    created: _Created
    version: _Version
    peak: tuple[_Rate, _Rate] | None = field(default=None, compare=False)
    cache: Cache = "warm"
    seed: _Count | None = None
    conditions: Annotated[dict[_Name, _Condition], Field(max_length=32)] | None = field(
        default=None, hash=False
    )
    digest: _Digest | None = None
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Raise `RecordError` where a value cannot be, whatever the generator."""
        values = {name: getattr(self, name) for name in _IN_LINE}
        _check(values | {"device": asdict(self.device), "config": json_object(self.config)})

    @property
    def ms(self) -> float:
        """Median time in milliseconds."""
        return median(self.samples)

    @property
    def parameters(self) -> dict[str, Any]:
        """The config as values by name."""
        return json_object(self.config)

    @property
    def variant(self) -> Variant:
        """The variant that was measured.

        Raises:
            ConfigError: no family has this name and these parameters today.
        """
        return Variant.from_values(self.family, self.parameters)

    @property
    def verified(self) -> bool:
        """Whether the database's owner measured it, so that the times are no mere claim."""
        return not self.origin

    @property
    def order(self) -> tuple[Any, ...]:
        """Key that sorts records for export: by device, generator, problem, state of the caches."""
        device = tuple(getattr(self.device, name) for name in _DEVICE_HINTS)
        return (*device, self.generator, self.problem, self.cache != "warm")

    def why_unreadable(self) -> str | None:
        """Say why problem, family or config cannot be read today, None if they can.

        Such a record is kept: it may be of a later version, or of a family that is gone.
        """
        try:
            parse_key(self.problem)
            _ = self.variant
        except (ProblemError, ConfigError) as error:
            return str(error)
        return None

    def to_line(self) -> str:
        """Return the record as one line of JSON, without the line feed."""
        values = {name: getattr(self, name) for name in _IN_LINE}
        values |= {"device": asdict(self.device), "config": json.loads(self.config)}
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Return the record that `to_line` wrote, now or as schema 1 or 2 of export files.

        Raises:
            RecordError: the line is no JSON object, or a field is missing, unknown or wrong.
        """
        values = _LATER | json_object(line)
        for name in ("samples", "peak"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        _check(values)
        config = json.dumps(values.pop("config"), sort_keys=True, separators=(",", ":"))
        return cls(**values | {"device": DeviceInfo(**values["device"]), "config": config})


_LOCAL = {"origin"}
"""Fields that say something about this database alone; they are in no line."""
_IN_LINE = tuple(one.name for one in fields(Record) if one.name not in _LOCAL)
_LATER: dict[str, Any] = {
    name: Record.__dataclass_fields__[name].default
    for name in ("peak", "cache", "seed", "conditions", "digest")
}
"""Fields that came after schema 1, and what a line means that does not have them."""
_MEANINGS = {
    "samples": "times are milliseconds, one at least, and none under a nanosecond",
    "peak": "it is GFLOP/s and GB/s, or null",
    "created": "it is UTC in ISO 8601, such as 2026-01-02T03:04:05Z",
    "cache": "it is warm or cold",
    "config": "parameters are numbers, switches and words by name",
}
_DEVICE_HINTS = get_type_hints(DeviceInfo)


def _schema() -> type[BaseModel]:
    """Return what `Record` and `DeviceInfo` say of their fields, as a schema that checks it."""
    strict = ConfigDict(strict=True, extra="forbid")
    narrowed: dict[Any, Any] = {str: _Line, int: _Count}
    device: Any = {name: (narrowed.get(hint, hint), ...) for name, hint in _DEVICE_HINTS.items()}
    hints = get_type_hints(Record, include_extras=True) | {
        "device": create_model("Device", __config__=strict, **device),
        "config": _Parameters,
    }
    parts: Any = {name: (hints[name], ...) for name in _IN_LINE}
    return create_model("Line", __config__=strict, **parts)


_SCHEMA = _schema()


def _check(values: dict[str, Any]) -> None:
    """Raise `RecordError` unless the schema takes `values`; it names field, value and remedy."""
    try:
        _SCHEMA.model_validate(values)
    except ValidationError as error:
        raise RecordError(_sentence(error)) from error


def _sentence(error: ValidationError) -> str:
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
    return f"{said}; {_MEANINGS[name]}" if name in _MEANINGS else said


def json_object(line: str) -> dict[str, Any]:
    """Return the JSON object in `line`.

    Raises:
        RecordError: it holds something else, NaN or infinity, or is nested too deeply to be parsed.
    """
    try:
        values = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from error
    if not isinstance(values, dict):
        raise RecordError(f"a JSON {type(values).__name__} instead of an object")
    return values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
