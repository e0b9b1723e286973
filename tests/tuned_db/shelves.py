"""Winners without a database, and the choices that rest on them."""

from __future__ import annotations

from typing import Any

from oclgen.limits import DeviceInfo
from oclgen.problem import Problem
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE, record, variant
from tuned_db import (
    Chooser,
    Record,
)


class Shelf:
    """Winners without a database, and how often they were read."""

    def __init__(self, *records: Record) -> None:
        self.records, self.reads = list(records), 0
        self.others: list[Record] = []
        self.said: dict[str, str] = {}

    def relatives(self, info: DeviceInfo) -> list[Record]:
        self.reads += 1
        same = (info.architecture, info.kind)
        return [r for r in self.records if (r.device.architecture, r.device.kind) == same]

    def runners_up(self, info: DeviceInfo, problem: Problem) -> list[Record]:
        return [one for one in self.others if one.problem == problem.key()]

    def checks(self, info: DeviceInfo) -> dict[str, str]:
        return self.said

    def unsettled(self, info: DeviceInfo) -> list[Record]:
        return [one for one in self.others if not one.verified]


def chooser(*records: Record, info: DeviceInfo = INFO) -> Chooser:
    return Chooser(Shelf(*records), info, LIMITS)


def with_item_m(item_m: int, problem: Problem = SQUARE, **changes: Any) -> Record:
    """A record that is told apart by its config."""
    return record(problem, config=variant(item_m=item_m).to_json(), **changes)
