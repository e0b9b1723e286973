"""What a device shows of itself, whatever its driver writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyopencl as cl
from pydantic import TypeAdapter

from oclgen.opencl.shown import info_of
from tuned_db.records.fields import Line


def handle(text: str) -> Any:
    platform = SimpleNamespace(name=text, version=text)
    return SimpleNamespace(
        name=text, vendor=text, type=cl.device_type.GPU, platform=platform, driver_version=text,
        extensions="", max_compute_units=2,
    )  # fmt: skip


def test_what_a_driver_says_can_be_kept_and_shared() -> None:
    line = TypeAdapter(Line)
    for text in ("A  GPU\0\0", "one\nline\u2028more", "\x1b[31mred", "long " * 400):
        info = info_of(handle(text))
        said = info.name, info.vendor, info.runtime, info.runtime_version, info.driver_version
        for found in said:
            assert line.validate_python(found) == found != ""
    assert info_of(handle("A  GPU\0\0")).name == "A GPU"
    assert info_of(handle(" A  version ")).driver_version == "A  version"
