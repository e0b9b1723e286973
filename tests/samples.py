"""What a run leaves to the nightly run, which sets `THOROUGH=1` and leaves out nothing.

A sample is chosen by digests of texts, and so is the same in every run and in every process.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from fractions import Fraction
from hashlib import sha256
from math import ceil
from operator import itemgetter
from typing import Any, NamedTuple

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


class Case(NamedTuple):
    """A case of a test, with a device's index and those of its marks that say how many are run."""

    name: str
    device: int
    sampled: pytest.Mark | None
    others: pytest.Mark | None
    asks_for_device: bool


_thinned: set[tuple[object, ...]] = set()
"""The groups whose cases were left out before they were made."""
_unmade: defaultdict[tuple[object, ...], list[Case]] = defaultdict(list)
"""By group, on other devices of a folder: cases that were not made."""
LOW = (1 << 32) // 16
"""Cases with a lower number are made, ten times as many as a folder keeps on another device."""


class Thinning:
    """A plugin of pytest that leaves out cases of tests before each becomes an object."""

    @pytest.hookimpl(wrapper=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Generator[None, Any, Any]:
        """Keep what is in the sample, unless the command asks for some cases: then of these."""
        result = yield
        options, asked = metafunc.config.option, metafunc.config.args
        if not (options.keyword or options.markexpr or any("::" in name for name in asked)):
            thin(metafunc)
        return result


def thin(metafunc: pytest.Metafunc) -> None:
    """Leave out cases of a test that are not in the sample.

    Of those on other devices, of which a whole folder has few, the ones with low numbers stay.
    """
    definition = metafunc.definition
    groups: defaultdict[int, list[tuple[int, Any, Case]]] = defaultdict(list)
    for call in metafunc._calls:  # pytest has no public name for them
        case = _case_of(definition, call)
        groups[case.device].append((number(case.name), call, case))
    out: set[int] = set()
    for index, cases in groups.items():
        cases.sort(key=itemgetter(0))
        if index and not cases[0][2].others:
            gone = [row for row in cases[1:] if row[0] >= LOW]
            _unmade[definition.path.parent, index] += [case for _, _, case in gone]
        else:
            gone = cases[_kept([case for _, _, case in cases]) :]
            _thinned.add((definition.path, metafunc.cls, definition.originalname, index))
        out |= {id(call) for _, call, _ in gone}
    metafunc._calls[:] = [call for call in metafunc._calls if id(call) not in out]


def _case_of(definition: pytest.Function, call: Any) -> Case:
    """Return what a case will be of which pytest has the call alone."""

    def closest(name: str) -> pytest.Mark | None:
        marks = (*definition.own_markers, *call.marks)
        own = next((mark for mark in marks if mark.name == name), None)
        return own or definition.get_closest_marker(name)

    index = getattr(call.params.get("device"), "index", 0)
    marks = closest("sampled"), closest("on_each_device")
    return Case(f"{definition.nodeid}[{call.id}]", index, *marks, closest("device") is not None)


def _case(item: pytest.Function) -> Case:
    closest = item.get_closest_marker
    return Case(
        item.nodeid, device_of(item), closest("sampled"), closest("on_each_device"),
        closest("device") is not None,
    )  # fmt: skip


def _group(item: pytest.Function) -> tuple[object, ...]:
    """Return what the test's case is one of: of its function, on other devices of its folder."""
    if (index := device_of(item)) and not item.get_closest_marker("on_each_device"):
        return item.path.parent, index
    return item.path, item.cls, item.originalname, index


def _kept(cases: list[Case]) -> int:
    """Return how many of a group's cases are in the sample; they are sorted by their numbers."""
    marks = [case.sampled for case in cases]
    if cases[0].device:
        others = cases[0].others
        fewest = others.args[0] if others else OTHER_DEVICES
        return ceil(sum(Fraction(1, max(mark.args[0] if mark else 1, fewest)) for mark in marks))
    kept = ceil(sum(Fraction(1, mark.args[0] if mark else 1) for mark in marks))
    is_long = kept > MANY and not any(marks) and cases[0].asks_for_device
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
    for group, cases in groups.items():
        if group not in _thinned:
            cases.sort(key=lambda item: number(item.nodeid))
            out += cases[_kept([*map(_case, cases), *_unmade[group]]) :]
    return out
