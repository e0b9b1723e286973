"""What a run leaves to the nightly run, which sets `THOROUGH=1` and leaves out nothing.

A sample is chosen by digests of texts, and so is the same in every run and in every process.
"""

from __future__ import annotations

import os
from collections import defaultdict
from fractions import Fraction
from hashlib import sha256
from math import ceil

import pytest

THOROUGH = os.environ.get("THOROUGH", "0") not in ("", "0")
OTHER_DEVICES = 160
"""Devices after the first run one case in 160 of all tests of a folder: what only one of them
gets wrong is seldom wrong in a single case, and CI runs more on the newest PoCL and on rusticl."""

MANY, OF_MANY = 5, 6
"""Of a test's cases on a device beyond the first five, one in six is run if it has no mark of
its own: they are mostly shapes, and what a shape breaks shows in several. `sampled(1)` keeps all,
where each is a thing of its own, such as an operator."""


def number(text: str) -> int:
    """Return a number that is spread evenly over texts and that a text always has."""
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")


def device_of(item: pytest.Function) -> int:
    """Return the index of the device that the test asks for, 0 if it asks for none."""
    device = item.callspec.params.get("device") if hasattr(item, "callspec") else None
    return getattr(device, "index", 0)


def _group(item: pytest.Function) -> tuple[object, ...]:
    """Return what the test's case is one of: of its function, on other devices of its folder."""
    if (index := device_of(item)) and not item.get_closest_marker("on_each_device"):
        return item.path.parent, index
    return item.path, item.cls, item.originalname, index


def _kept(cases: list[pytest.Function]) -> int:
    """Return how many of a group's cases are in the sample."""
    marks = [item.get_closest_marker("sampled") for item in cases]
    others = cases[0].get_closest_marker("on_each_device")
    if device_of(cases[0]):
        fewest = others.args[0] if others else OTHER_DEVICES
        return ceil(sum(Fraction(1, max(mark.args[0] if mark else 1, fewest)) for mark in marks))
    kept = ceil(sum(Fraction(1, mark.args[0] if mark else 1) for mark in marks))
    is_long = kept > MANY and not any(marks) and cases[0].get_closest_marker("device")
    return MANY + ceil(Fraction(kept - MANY, OF_MANY)) if is_long else kept


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that are not in the sample.

    Of every function, at least one is in it; of every folder, one on each device.
    """
    groups = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function):
            groups[_group(item)].append(item)
    out: list[pytest.Item] = []
    for cases in groups.values():
        cases.sort(key=lambda item: number(item.nodeid))
        out += cases[_kept(cases) :]
    return out
