"""Choices that later processes find again, under a name that covers everything they depend on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict

from oclgen.limits import DeviceInfo, Limits
from oclgen.problem import Problem
from oclgen.remembered import of_user
from tuned_db.choosing.choice import Choice
from tuned_db.choosing.raced import RACED
from tuned_db.records.record import Record
from tuned_db.records.shipped import has_shipped


class RememberedChoices:
    """The choices of one device that an earlier process made by the same records and settings.

    A choice is named by the device, the lasting winners and the checks of the database, the
    winner of a race for its own problem, the settings, and the code (`oclgen.remembered`).

    Args:
        info: the device.
        limits: what it allows.
        mark: as `Chooser` takes it.
    """

    def __init__(
        self, info: DeviceInfo, limits: Limits, mark: Callable[[], str | None] | None
    ) -> None:
        self._info, self._mark = info, mark
        self._device = json.dumps([asdict(info), limits.to_json(), has_shipped()])
        self._name: str | None = None
        self._races: dict[str, Record] = {}

    def take(self, winners: Iterable[Record]) -> None:
        """Take the winners that were just read, and what names them."""
        of_races = (one for one in winners if one.origin == RACED and one.device == self._info)
        self._races = {one.problem: one for one in of_races}
        self._name = self._mark() if self._mark else None

    def confirm(self) -> None:
        """Drop the name if the database was read again since, in another state."""
        if self._mark is not None and self._name != self._mark():
            self.stop()

    def stop(self) -> None:
        """Keep and find nothing until the next `take`: choices rest on what has no name."""
        self._name = None

    def note_race(self, record: Record) -> None:
        """Take a race's winner: choices for its problem have another name from now on."""
        self._races[record.problem] = record

    def get(self, problem: Problem, settings: str) -> Choice | None:
        """Return what was chosen for a problem, None where nothing was.

        Args:
            problem: what is computed.
            settings: of the chooser.
        """
        if self._name is None:
            return None
        values = of_user().get(*self._made_from(self._name, problem, settings))
        return None if values is None else Choice.from_json(problem, values)

    def put(self, choice: Choice, settings: str) -> None:
        """Keep a choice.

        Args:
            choice: for its problem.
            settings: of the chooser.
        """
        if self._name is not None:
            made_from = self._made_from(self._name, choice.problem, settings)
            of_user().put(choice.to_json(), *made_from)

    def _made_from(self, name: str, problem: Problem, settings: str) -> tuple[str, ...]:
        race = self._races.get(key := problem.key())
        won = f"{race.family} {race.config} {race.samples} {race.digest}" if race else ""
        return "choice", self._device, name, settings, won, key
