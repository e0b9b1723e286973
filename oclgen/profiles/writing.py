"""Writes the limits of a device as a profile, a file that `oclgen.profiles` reads.

Each figure names one source, the run that read it. Before a profile is committed, its source is put
into words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from oclgen.limits import DeviceInfo, Limits
from oclgen.profiles import ASKED
from oclgen.texts import printable


def name_of(info: DeviceInfo) -> str:
    """Return a file's name for a device, without its ending: letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", info.name.lower()).strip("_")[:64] or "device"


def to_toml(info: DeviceInfo, limits: Limits, source: str) -> str:
    """Return the text of a profile.

    What a device only shows when kernels ask it is left out: a profile takes it away.

    Args:
        info: who the device is.
        limits: what it allows.
        source: where its figures were read, in words.
    """
    figures = {name: value for name, value in limits.to_json().items() if name not in ASKED}
    extensions = figures.pop("extensions")
    lines = [
        f"# {printable(info.name)}: {printable(info.runtime_version)}, "
        f"driver {printable(info.driver_version)}.",
        f"device = {_text(info.name)}",
        "",
        "[sources]",
        f"here = {_text(source)}",
        "",
        "[limits]",
        *(
            f'{name} = {{ value = {_value(value)}, source = "here" }}'
            for name, value in figures.items()
        ),
        "[limits.extensions]",
        'source = "here"',
        "value = [",
        *(f"    {_text(name)}," for name in extensions),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Iterable):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:_}"


def _text(text: str) -> str:
    """Return a TOML string: one of JSON, without what only JSON allows in it."""
    return json.dumps(printable(text), ensure_ascii=False)
