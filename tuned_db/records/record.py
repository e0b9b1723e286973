"""A winner with its provenance, as it is kept, exported and shared; and its line of JSON.

`tuned_db.storage` keeps records, and `tuned_db.choosing` decides which one serves a problem.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any

from oclgen.families import ConfigError
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo
from oclgen.measurement import Cache
from oclgen.problem import ProblemError
from oclgen.variant import Variant

if TYPE_CHECKING:
    from tuned_db.records.fields import (
        Conditions,
        Count,
        Created,
        Digest,
        Error,
        Line,
        Name,
        Peaks,
        Rate,
        Samples,
        Version,
    )


class RecordError(ValueError):
    """A record that contradicts itself, or a line that holds none; the message says where."""


@dataclass(frozen=True, slots=True)
class Record:
    """The fastest variant known for one problem on one device, driver and generator.

    `problem` is a key that `oclgen.keys.parse_key` reads, `config` canonical JSON of the family's
    parameters, `samples` milliseconds, `error` the relative L2 error against float64 (None if
    unknown), `trials` the number of variants that had been tried, `created` UTC in ISO 8601.
    `peak` is what the device reaches at most, if known: fp32 GFLOP/s and GB/s of a copy; `peaks`
    are GFLOP/s of other dtypes by name. `cache`, `seed` and `conditions` are those of
    `oclgen.measurement.Measurement`. `digest` names the kernels' text (`tuned_db.records.digests`),
    None if unknown. `origin` is empty where the owner of the database measured the times, else it
    says how they came there.

    Raises:
        RecordError: a value is of a wrong type, too long or out of its range.
    """

    problem: Line
    family: Name
    config: str
    samples: Samples
    error: Error | None
    trials: Count
    device: DeviceInfo
    generator: Version
    created: Created
    version: Version
    peak: tuple[Rate, Rate] | None = field(default=None, compare=False)
    cache: Cache = "warm"
    seed: Count | None = None
    conditions: Conditions | None = field(default=None, hash=False)
    digest: Digest | None = None
    peaks: Peaks | None = field(default=None, compare=False)
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Raise `RecordError` where a value cannot be, whatever the generator."""
        from tuned_db.records.schema import check

        values = {name: getattr(self, name) for name in IN_LINE}
        check(values | {"device": _values(self.device), "config": json_object(self.config)})

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
        device = tuple(getattr(self.device, name) for name in _OF_DEVICE)
        return (*device, self.generator, self.problem, self.cache != "warm")

    def why_unreadable(self) -> str | None:
        """Say why problem, family or config cannot be read today, None if they can.

        Such a record is kept: it may be of a later version, or of a family that is gone.
        """
        return _why_unreadable(self.problem) or _why_unreadable(self.family, self.config)

    def to_line(self) -> str:
        """Return the record as one line of JSON, without the line feed."""
        values = {name: getattr(self, name) for name in IN_LINE}
        values |= {"device": _values(self.device), "config": json.loads(self.config)}
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Return the record that `to_line` wrote, now or as an older schema of export files.

        Raises:
            RecordError: the line is no JSON object, or a field is missing, unknown or wrong.
        """
        from tuned_db.records.schema import values_of

        return cls.of_checked(values_of(line))

    @classmethod
    def of_checked(cls, values: dict[str, Any], origin: str = "") -> Record:
        """Return the record of a line's values, which are not checked again.

        Args:
            values: as JSON or `record_schema.values_of` reads them.
            origin: the record's.
        """
        made = object.__new__(cls)
        config = json.dumps(values["config"], sort_keys=True, separators=(",", ":"))
        device = _device(tuple(values["device"][name] for name in _OF_DEVICE))
        values = LATER | values | {"config": config, "device": device, "origin": origin}
        values["samples"] = tuple(values["samples"])
        values["peak"] = values["peak"] and tuple(values["peak"])
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made


_OF_DEVICE = tuple(one.name for one in fields(DeviceInfo))
_LOCAL = {"origin"}
"""Fields that say something about this database alone; they are in no line."""
IN_LINE = tuple(one.name for one in fields(Record) if one.name not in _LOCAL)
LATER: dict[str, Any] = {
    name: Record.__dataclass_fields__[name].default
    for name in ("peak", "cache", "seed", "conditions", "digest", "peaks")
}
"""Fields that came after schema 1, and what a line means that does not have them."""


@lru_cache(maxsize=4096)
def _why_unreadable(*texts: str) -> str | None:
    """Say why a problem's key, or a family and its config, cannot be read, None if they can."""
    try:
        if len(texts) == 1:
            parse_key(texts[0])
        else:
            Variant.from_values(texts[0], json_object(texts[1]))
    except (ProblemError, ConfigError) as error:
        return str(error)
    return None


def _values(device: DeviceInfo) -> dict[str, Any]:
    return {name: getattr(device, name) for name in _OF_DEVICE}


@lru_cache(maxsize=1024)
def _device(values: tuple[Any, ...]) -> DeviceInfo:
    """Return a device: all records of a file share a few."""
    return DeviceInfo(*values)


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
