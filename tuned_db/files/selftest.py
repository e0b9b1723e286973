"""The file that `oclgen check` writes: what a self-test found on a device, as one JSON document.

It can be attached to an issue: it does not contain the person, the machine's name, or its folders.
Others import it as measurements, failures included (`measured`), and as a device profile
(`oclgen.profiles.writing`). `search_spaces.selftest` tests the device.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from oclgen import GENERATOR_VERSION
from oclgen.limits import DeviceInfo, Limits
from oclgen.profiles.writing import to_toml
from oclgen.texts import printable
from tuned_db.files.measured import ROW, Measured, of_store, why_contradictory
from tuned_db.files.personal import without_names
from tuned_db.records.exchange import ImportFileError
from tuned_db.records.fields import (
    Created,
    Device,
    Error,
    LimitsJson,
    Line,
    Name,
    Peaks,
    Rate,
    Version,
    sentence,
    several,
    strict,
)
from tuned_db.storage.rows import now
from tuned_db.storage.store import Store

LARGEST = 16 * 2**20
"""Bytes of a file that is read; one of five minutes has some 200 kB."""
MOST_FINDINGS, MOST_ROWS = 10_000, 20_000

_FINDING = strict(
    "Finding",
    {
        "step": Name,
        "what": Line,
        "verdict": Literal["ok", "skipped", "fail"],
        "found": Annotated[str, Field(max_length=1000)],
    },
)
_SYSTEM = strict("System", {"os": Line, "machine": Line, "python": Version, "torch": Line | None})
_RATES = strict(
    "Rates",
    {
        "gflops": Rate,
        "gbytes": Rate,
        "peaks": Peaks,
    },
)
FIELDS: dict[str, Any] = {
    "format": Literal["oclgen check"],
    "schema": Literal[1],
    "created": Created,
    "version": Version,
    "generator": Version,
    "seconds": Error,
    "system": _SYSTEM,
    "devices": several(Device, 64),
    "device": Device,
    "limits": LimitsJson,
    "rates": _RATES | None,
    "findings": several(_FINDING, MOST_FINDINGS),
    "measurements": several(strict("Measurement", ROW), MOST_ROWS),
}
"""The document's fields; `schema` rises when their meaning changes."""
_DOCUMENT: TypeAdapter[dict[str, Any]] = TypeAdapter(strict("Check", FIELDS))


class Fact(NamedTuple):
    """A line of the verdict, as `oclgen.measuring.steps.Finding`."""

    step: str
    what: str
    verdict: str
    found: str


@dataclass(frozen=True)
class SelfTest:
    """What a file says: when, of which device with which limits, and what was found."""

    created: str
    device: DeviceInfo
    limits: Limits
    findings: tuple[Fact, ...]
    measured: Measured

    def profile(self) -> str:
        """Return the device's profile, the text of a TOML file."""
        source = f"oclgen check, {self.created}, {self.device.runtime}"
        return to_toml(self.device, self.limits, source)


def to_bytes(
    store: Store, facts: Mapping[str, Any], findings: Sequence[tuple[str, ...]], seconds: float
) -> bytes:
    """Return the file of a self-test.

    Args:
        store: what was measured.
        facts: `devices`, `device` and `limits`; `rates` and `torch` where they are known.
        findings: step, what, verdict and found.
        seconds: that the test took.

    Raises:
        ValueError: the values contradict the format.
        DatabaseError: the store fails.
    """
    rows = next((one.rows for one in of_store(store)), [])
    python = platform.python_version()
    document = {
        "format": "oclgen check",
        "schema": 1,
        "created": now(),
        "version": version("oclgen"),
        "generator": GENERATOR_VERSION,
        "seconds": round(seconds, 1),
        "system": {
            "os": platform.system(),
            "machine": platform.machine(),
            "python": python,
            "torch": facts.get("torch"),
        },
        "devices": facts["devices"],
        "device": facts["device"],
        "limits": facts["limits"],
        "rates": facts.get("rates"),
        "findings": [_fact(one)._asdict() for one in findings[:MOST_FINDINGS]],
        "measurements": rows[:MOST_ROWS],
    }
    text = _text(document)
    _DOCUMENT.validate_json(text)
    return text.encode()


def _fact(finding: Sequence[str]) -> Fact:
    step, what, verdict, found = finding
    return Fact(step, without_names(printable(what))[:400], verdict, without_names(found)[:1000])


def _text(document: Mapping[str, Any]) -> str:
    """Return JSON with a line for each field, and for each item of a field that is a list."""
    fields = (f'"{name}": {_value(value)}' for name, value in document.items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def is_selftest(head: bytes) -> bool:
    """Say whether a file that begins so is one of a self-test."""
    return b'"format": "oclgen check"' in head[:200]


def read_selftest(name: str, content: bytes) -> SelfTest:
    """Return what `to_bytes` wrote.

    Args:
        name: of the file, for messages.
        content: the whole file.

    Raises:
        ImportFileError: it is too large, of another schema, or a field is missing, unknown or
            wrong; the message names it.
    """
    if len(content) > LARGEST:
        raise ImportFileError(
            f"{name} is larger than {LARGEST} bytes; a check file has some 200 kB"
        )
    try:
        values = _DOCUMENT.validate_json(content)
    except ValidationError as error:
        raise ImportFileError(f"{name} is no check file of schema 1: {sentence(error)}") from error
    for reason in _contradictions(values):
        raise ImportFileError(f"{name}: {reason}")
    device, rates = DeviceInfo(**values["device"]), values["rates"]
    peak = (rates["gflops"], rates["gbytes"]) if rates else None
    limits = Limits.from_json(values["limits"])
    peaks = (rates["peaks"] or None) if rates else None
    measured = Measured(device, values["limits"], peak, peaks, values["measurements"])
    findings = tuple(Fact(**one) for one in values["findings"])
    return SelfTest(values["created"], device, limits, findings, measured)


def _contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    for number, row in enumerate(values["measurements"]):
        if reason := why_contradictory(row):
            yield f"measurement {number}: {reason}"
