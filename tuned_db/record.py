"""A winner with its provenance, as it is kept, exported and shared; and its line of JSON.

Where records lie is `tuned_db.store`, and which one serves a problem is `tuned_db.choose`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any, get_type_hints

from oclgen import GENERATOR_VERSION
from oclgen.families import ConfigError, config_from_dict
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo
from oclgen.problem import ProblemError

_TEXT_LIMIT = 400
_COUNT_LIMIT = 2**31
_NAME = re.compile(r"\w{1,64}", re.ASCII)
_VERSION = re.compile(r"[\w.+!-]{1,64}", re.ASCII)
_LOCAL = {"origin"}
"""Fields that say something about this database alone; they are in no line."""
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DEVICE_TYPES: dict[str, Any] = {**get_type_hints(DeviceInfo), "kind": str}


class RecordError(ValueError):
    """A record that contradicts itself, or a line that holds none; the message says where."""


@dataclass(frozen=True, slots=True)
class Record:
    """The fastest variant known for one problem on one device, driver and generator.

    `problem` is a key that `oclgen.keys.parse_key` reads, `config` canonical JSON of the family's
    parameters, `samples` milliseconds, `error` the relative L2 error against float64 (None if
    unknown), `trials` the number of variants that had been tried, `created` UTC in ISO 8601.
    `peak` is what the device reaches at most, if known: fp32 GFLOP/s and GB/s of a copy. `origin`
    is empty where the times were measured by who owns the database, else how they came there.
    """

    problem: str
    family: str
    config: str
    samples: tuple[float, ...]
    error: float | None
    trials: int
    device: DeviceInfo
    generator: str
    created: str
    version: str
    peak: tuple[float, float] | None = field(default=None, compare=False)
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Raise `RecordError` where a value cannot be, whatever the generator."""
        _require_text("problem", self.problem)
        for name, form in (("family", _NAME), ("generator", _VERSION), ("version", _VERSION)):
            _require_name(name, getattr(self, name), form)
        _require_text("created", self.created)
        _require(_CREATED.fullmatch(self.created), f"created is {self.created!r}, not UTC ISO 8601")
        _require_count("trials", self.trials)
        _require_samples(self.samples)
        _require(self.error is None or _is_time(self.error), f"error is {self.error!r}")
        _require_device(self.device)
        _require_peak(self.peak)
        for name, value in json_object(self.config).items():
            _require_parameter(name, value)

    @property
    def ms(self) -> float:
        """Median time in milliseconds."""
        return median(self.samples)

    @property
    def parameters(self) -> dict[str, Any]:
        """The config as values by name."""
        return json_object(self.config)

    @property
    def verified(self) -> bool:
        """Whether who owns the database measured it, so that the times are no mere claim."""
        return not self.origin

    @property
    def order(self) -> tuple[Any, ...]:
        """Key that sorts records for export: by device, generator, problem."""
        return (*asdict(self.device).values(), self.generator, self.problem)

    def check(self) -> None:
        """Raise `RecordError` if this generator cannot read problem, family or config.

        What another generator wrote is not judged: it is kept, and a chooser steps over it.
        """
        if self.generator != GENERATOR_VERSION:
            return
        try:
            parse_key(self.problem)
            config_from_dict(self.family, json_object(self.config))
        except (ProblemError, ConfigError) as error:
            raise RecordError(str(error)) from error

    def to_line(self) -> str:
        """Return the record as one line of JSON, without the line feed."""
        values = asdict(self) | {"config": json.loads(self.config), "samples": list(self.samples)}
        for name in _LOCAL:
            del values[name]
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Return the record that `to_line` wrote.

        Raises:
            RecordError: the line is no JSON object, or a field is missing, unknown or wrong.
        """
        values = {"peak": None} | json_object(line)  # schema 1 knew no peaks
        _require_fields("record", values, {one.name for one in fields(cls)} - _LOCAL)
        device = values.pop("device")
        _require(isinstance(device, dict), f"device is {device!r}, not an object")
        _require_fields("device", device, set(_DEVICE_TYPES))
        samples = values.pop("samples")
        _require(isinstance(samples, list), f"samples are {samples!r}, not a list")
        config = json.dumps(values.pop("config"), sort_keys=True, separators=(",", ":"))
        values |= {"device": DeviceInfo(**device), "samples": tuple(samples), "config": config}
        if isinstance(values["peak"], list):
            values["peak"] = tuple(values["peak"])
        return cls(**values)


def json_object(line: str) -> dict[str, Any]:
    """Return the JSON object in `line`.

    Raises:
        RecordError: it holds something else, NaN or infinity, or is nested past all reason.
    """
    try:
        values = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from error
    _require(isinstance(values, dict), f"a JSON {type(values).__name__} instead of an object")
    return dict(values)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _require(fits: object, message: str) -> None:
    if not fits:
        raise RecordError(message)


def _require_fields(what: str, values: dict[str, Any], names: set[str]) -> None:
    unknown, missing = sorted(set(values) - names), sorted(names - set(values))
    _require(not unknown and not missing, f"{what}: unknown fields {unknown}, missing {missing}")


def _require_text(name: str, value: Any) -> None:
    fits = isinstance(value, str) and len(value) <= _TEXT_LIMIT and value.isprintable()
    _require(fits, f"{name} is {str(value)[:60]!r}; it must be a line of text")


def _require_name(name: str, value: Any, form: re.Pattern[str]) -> None:
    fits = isinstance(value, str) and form.fullmatch(value)
    _require(fits, f"{name} is {str(value)[:60]!r}; it must look like {form.pattern}")


def _require_parameter(name: str, value: Any) -> None:
    """Raise unless it is a small number, a switch or a word, named by an identifier."""
    _require(_NAME.fullmatch(name), f"config: {name[:60]!r} is no parameter's name")
    if isinstance(value, str):
        _require_text(f"config: {name}", value)
    else:
        fits = type(value) is bool or (type(value) is int and abs(value) < _COUNT_LIMIT)
        _require(fits, f"config: {name} is {str(value)[:60]!r}")


def _require_peak(peak: Any) -> None:
    if peak is not None:
        fits = isinstance(peak, tuple) and len(peak) == 2 and all(_is_time(one) for one in peak)
        _require(fits, f"peak is {str(peak)[:60]}; it is GFLOP/s and GB/s, or null")


def _require_count(name: str, value: Any) -> None:
    fits = type(value) is int and 0 <= value < _COUNT_LIMIT
    _require(fits, f"{name} is {str(value)[:60]}; it must be a count")


def _require_samples(samples: tuple[Any, ...]) -> None:
    _require(samples, "samples are empty; a record needs at least one time in milliseconds")
    for sample in samples:
        _require(_is_time(sample), f"samples hold {str(sample)[:60]!r}; they are milliseconds")


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12 and math.isfinite(value)


def _require_device(device: DeviceInfo) -> None:
    for name, kind in _DEVICE_TYPES.items():
        value = getattr(device, name)
        (_require_count if kind is int else _require_text)(f"device {name}", value)
    _require(device.kind in ("cpu", "gpu", "other"), f"device kind is {device.kind!r}")
