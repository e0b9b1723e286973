"""What a run leaves to the nightly run, which sets `THOROUGH=1` and leaves out nothing.

A sample is chosen by digests of texts, and so is the same in every run and in every process.
"""

from __future__ import annotations

import os
from collections import defaultdict
from hashlib import sha256

import pytest

THOROUGH = os.environ.get("THOROUGH", "0") not in ("", "0")
OTHER_DEVICES = 4
"""Devices after the first run one case of a test in four: what only one of them gets wrong is
seldom wrong in a single case."""


def number(text: str) -> int:
    """Return a number that is spread evenly over texts and that a text always has."""
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")


def device_of(item: pytest.Function) -> int:
    """Return the index of the device that the test asks for, 0 if it asks for none."""
    device = item.callspec.params.get("device") if hasattr(item, "callspec") else None
    return getattr(device, "index", 0)


def _every(item: pytest.Function) -> int:
    """Return N if one case in N of this test on this device is in the sample."""
    mark = item.get_closest_marker("sampled")
    return max(mark.args[0] if mark else 1, OTHER_DEVICES if device_of(item) else 1)


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that are not in the sample: of every function, at least one is in it."""
    cases = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function):
            cases[item.path, item.cls, item.originalname, device_of(item)].append(item)
    out: list[pytest.Item] = []
    for group in cases.values():
        group.sort(key=lambda item: number(item.nodeid))
        out += group[-(-len(group) // _every(group[0])) :]
    return out
