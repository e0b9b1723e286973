"""The records that may serve on a device, and those that were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from oclgen.families import ConfigError
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo
from oclgen.problem import Problem, ProblemError
from tuned_db.choosing.choice import Rung
from tuned_db.choosing.nearest import without_driver
from tuned_db.choosing.plausible import why_implausible
from tuned_db.choosing.pools import Entry, Pool
from tuned_db.choosing.raced import RACED
from tuned_db.records.record import Record


class Winners(Protocol):
    """What a chooser reads: `tuned_db.storage.store.Store` is one."""

    def relatives(self, info: DeviceInfo, /) -> list[Record]:
        """Return the winners of devices of the same architecture and kind."""
        ...

    def runners_up(self, info: DeviceInfo, problem: Problem, /) -> list[Record]:
        """Return measurements of this device that serve if a winner cannot, best first."""
        ...

    def unsettled(self, info: DeviceInfo, /) -> list[Record]:
        """Return the claims about this very device whose variant was not measured here."""
        ...

    def checks(self, info: DeviceInfo, /) -> Mapping[str, str]:
        """Return by digest why plans failed a check on this device, "" for those that did not."""
        ...


class Evidence:
    """Records as a device's choices look them up.

    Attributes:
        exact: winners on this device and driver.
        here: winners on this device, whatever its driver.
        relatives: winners on devices of the same architecture.
        close: records of the package for such devices.
        kin: records of the package for all devices of the kind.
        raced: winners of races on this device, by problem.
        claimed: problems of winners that were not measured here.
        skipped: says of each record that was left out why.
    """

    def __init__(
        self, info: DeviceInfo, winners: Iterable[Record], shipped: Iterable[Record]
    ) -> None:
        """Sort records.

        Args:
            info: the device.
            winners: of the user's database, of devices of its architecture and kind.
            shipped: the records of the package.
        """
        self.skipped: list[str] = []
        read = list(self.read(winners))
        mine = [entry for entry in read if entry.record.origin != RACED]
        of_kind = list(self.read(one for one in shipped if one.device.kind == info.kind))

        def pool(entries: Iterable[Entry], is_one: Callable[[DeviceInfo], bool]) -> Pool:
            return Pool((entry for entry in entries if is_one(entry.record.device)), info.runtime)

        self.exact = pool(mine, lambda device: device == info)
        self.here = pool(mine, lambda device: _same_device(device, info))
        self.relatives = pool(mine, lambda _: True)
        self.close = pool(of_kind, lambda device: device.architecture == info.architecture)
        self.kin = pool(of_kind, lambda _: True)
        raced = (entry for entry in read if entry.record.origin == RACED)
        self.raced: dict[Problem, Entry] = {
            entry.problem: entry for entry in raced if entry.record.device == info
        }
        self.claimed = [entry.problem for entry in mine if not entry.record.verified]

    @property
    def sources(self) -> tuple[tuple[Rung, Pool], ...]:
        """The records that speak for problems near theirs, those of related devices last."""
        return ("nearest", self.here), ("architecture", self.relatives), ("shipped", self.close)

    def read(self, records: Iterable[Record]) -> Iterator[Entry]:
        """Yield the records that a family reads today and that claim what is possible."""
        for record in records:
            try:
                problem = parse_key(record.problem)
                if (reason := why_implausible(record, problem)) is None:
                    yield Entry(record, problem, record.variant)
                else:
                    self.skipped.append(f"{record.problem}: {reason}")
            except (ConfigError, ProblemError) as error:
                self.skipped.append(f"{record.problem} of generator {record.generator}: {error}")


def _same_device(one: DeviceInfo, other: DeviceInfo) -> bool:
    """Say whether two infos name one device, whatever its driver."""
    return without_driver(one) == without_driver(other)
