"""Why variants failed: by kind, with a reason that names no folder."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from tuned_db.database.models import MeasurementRow, TuningRow

LONGEST = 300
"""Characters of a reason that are shown."""
_PATH = re.compile(r"[^\s'\"()<>,;]*[/\\][^\s'\"()<>,;:]*")
_FILE = re.compile(r"[^/\\]+\.(?:bc|c|cl|cpp|h|ll|o|ptx|py|so|spv)$")
"""A name that says what a file is; another may be a person's."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How often variants of a family failed in one way, and what the last of them was told."""

    family: str
    invalidity: str
    count: int
    reason: str


def shown(reason: str) -> str:
    """Return a reason for everybody to read: of a path its last part alone, and not too long.

    A compiler's message may name a folder, and with it a person.
    """
    text = _PATH.sub(_file_of, " ".join(reason.split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _file_of(path: re.Match[str]) -> str:
    found = _FILE.search(path[0])
    return found[0] if found else "…"


def list_failures(
    connection: Connection, *, device: int | None = None, tuning: int | None = None
) -> list[Failure]:
    """Return the failures of a device or of one tuning, the most frequent first.

    Args:
        connection: of the database.
        device: its id.
        tuning: its id.
    """
    place = TuningRow.device_id == device if tuning is None else TuningRow.id == tuning
    kind = (MeasurementRow.family, MeasurementRow.invalidity)
    count = func.count().label("count")
    asked = (
        select(*kind, count, func.max(MeasurementRow.id).label("last"))
        .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        .where(place, MeasurementRow.ms.is_(None))
        .group_by(*kind)
        .order_by(count.desc(), *kind)
    )
    found = connection.execute(asked).all()
    last = MeasurementRow.id.in_([row.last for row in found])
    texts = select(MeasurementRow.id, MeasurementRow.reason).where(last)
    reasons = {row.id: row.reason for row in connection.execute(texts)}
    return [Failure(*row[:3], shown(reasons[row.last])) for row in found]
