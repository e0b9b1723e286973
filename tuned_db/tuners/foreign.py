"""Kernels of other tuners: their measurements, kept beside the records and searched by size.

A foreign kernel has a name, the digest of its source if that is known, sizes, parameters and times.
Nothing here builds, checks or serves it: a user gets parameters that were good for the nearest
sizes, and measures them. `tuned_db.tuners.adapters` reads and writes files of other tuners.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, log2
from operator import attrgetter
from statistics import median
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter
from sqlalchemy import Connection, Select, Text, cast, func, select
from sqlalchemy.dialects import postgresql, sqlite

from oclgen.measurement import Invalidity
from tuned_db.database.models import ForeignRow
from tuned_db.records.exchange import ImportFileError
from tuned_db.records.fields import Line, Milliseconds, several, strict, why_wrong
from tuned_db.storage.arrivals import CHUNK
from tuned_db.storage.batches import Source, count_batch, open_batch
from tuned_db.storage.rows import now
from tuned_db.storage.store import Store

SOURCE = r"^[0-9a-f]{0,64}$"
"""A digest of a kernel's source, empty if it is not known."""
MOST_ANSWERS = 100
"""Answers to a question for the nearest."""


def _value(value: Any) -> Any:
    """Refuse what is no plain value: parameters of other tuners are numbers, switches and words."""
    if isinstance(value, str):
        fits = len(value) <= 400 and value.isprintable()
    elif isinstance(value, float):
        fits = abs(value) < inf
    else:
        fits = value is None or type(value) is bool or (type(value) is int and abs(value) < 2**63)
    if not fits:
        raise ValueError("a number, a switch, a word or null is needed")
    return value


_KEY = Annotated[Line, Field(min_length=1, max_length=100)]
_FIELDS: dict[str, Any] = {
    "tuner": Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")],
    "kernel": Annotated[Line, Field(min_length=1)],
    "source": Annotated[str, Field(pattern=SOURCE)],
    "device": Line,
    "sizes": Annotated[dict[_KEY, Annotated[int, Field(ge=0, lt=2**63)]], Field(max_length=32)],
    "words": several(Line, 32),
    "parameters": Annotated[
        dict[_KEY, Annotated[Any, AfterValidator(_value)]], Field(max_length=128)
    ],
    "samples": several(Milliseconds, 10_000),
    "invalidity": Invalidity,
}
_SCHEMA: TypeAdapter[Any] = TypeAdapter(strict("Foreign", _FIELDS))
_COLUMNS = tuple(getattr(ForeignRow, name) for name in _FIELDS)


@dataclass(frozen=True)
class Foreign:
    """One variant of a foreign kernel, measured on a device for some sizes.

    Attributes:
        tuner: the program that measured, such as "kernel_tuner".
        kernel: its name.
        source: a digest of its source in hex, empty if it is not known.
        device: the device's name, empty if it is not known.
        sizes: the problem's sizes by name; an array without names has "0", "1" and so on.
        words: what else says which problem it is, such as dtypes.
        parameters: of the variant.
        samples: milliseconds, none for a failure.
        invalidity: why there are none, "none" if there are.

    Raises:
        ImportFileError: a value is of a wrong type, too long or out of its range.
    """

    tuner: str
    kernel: str
    source: str
    device: str
    sizes: Mapping[str, int]
    words: tuple[str, ...]
    parameters: Mapping[str, Any]
    samples: tuple[float, ...]
    invalidity: Invalidity = "none"

    def __post_init__(self) -> None:
        """Raise `ImportFileError` where a value cannot be."""
        if reason := why_wrong(_SCHEMA, self.values()):
            raise ImportFileError(f"kernel {self.kernel[:60]!r}: {reason}")
        if (self.invalidity == "none") != bool(self.samples):
            raise ImportFileError(
                f"kernel {self.kernel[:60]!r}: {self.invalidity} with {len(self.samples)} times; "
                "a failure has none"
            )

    @property
    def ms(self) -> float | None:
        """Median time in milliseconds, None for a failure."""
        return median(self.samples) if self.samples else None

    def values(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        return asdict(self) | {"words": list(self.words), "samples": list(self.samples)}

    @classmethod
    def from_values(cls, values: Any) -> Foreign:
        """Return what `values` gave.

        Raises:
            ImportFileError: a field is missing, unknown or wrong.
        """
        if reason := why_wrong(_SCHEMA, values):
            raise ImportFileError(f"no foreign kernel: {reason}")
        lists = {"words": tuple(values["words"]), "samples": tuple(values["samples"])}
        return cls(**values | lists)

    def digest(self) -> str:
        """Return the SHA-256 of all that is measured."""
        text = json.dumps(self.values(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Near:
    """An answer: the best variant of the nearest sizes, and how far those are.

    `distance` is the sum of |log2 of the ratio| over all sizes, as between problems of records.
    """

    foreign: Foreign
    distance: float


def keep(store: Store, found: Iterable[Foreign], origin: str, source: Source | None = None) -> int:
    """Keep what other tuners measured; return how many were new.

    Args:
        store: what is written to.
        found: measurements in any order; one that is known changes nothing.
        origin: how they came, such as "import".
        source: who sent them; they are one batch, which `oclgen db undo` takes back.

    Raises:
        DatabaseError: the database fails; whole chunks before that are kept.
    """
    rows = sorted((_row(one, origin) for one in found), key=lambda row: str(row["digest"]))
    source = source or Source()
    new = 0
    for start in range(0, len(rows), CHUNK):
        with store.database.writing() as connection:
            batch = open_batch(connection, origin[:100], source)
            chunk = [row | {"batch_id": batch} for row in rows[start : start + CHUNK]]
            added = _insert(connection, chunk)
            count_batch(connection, batch, added)
        source = replace(source, batch=batch)
        new += added
        store.database.let_others_write()
    return new


def _row(one: Foreign, origin: str) -> dict[str, Any]:
    more = {"digest": one.digest(), "ms": one.ms, "origin": origin[:100], "created": now()}
    return one.values() | more


def _insert(connection: Connection, rows: list[dict[str, Any]]) -> int:
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(ForeignRow).on_conflict_do_nothing().returning(ForeignRow.id)
    return len(connection.execute(insert, rows).all())


def select_kernels(
    store: Store, kernel: str = "", tuner: str = "", device: str = ""
) -> list[Foreign]:
    """Return what is kept, in the order in which it came.

    Args:
        store: what is read.
        kernel: only of this name; empty: of all.
        tuner: only of this program; empty: of all.
        device: only of this device; empty: of all.

    Raises:
        DatabaseError: the database fails.
    """
    asked = select(*_COLUMNS).order_by(ForeignRow.id)
    for column, wanted in (("kernel", kernel), ("tuner", tuner), ("device", device)):
        if wanted:
            asked = asked.where(getattr(ForeignRow, column) == wanted)
    with store.database.reading() as connection:
        return [Foreign.from_values(dict(row)) for row in connection.execute(asked).mappings()]


def nearest(
    store: Store,
    kernel: str,
    sizes: Mapping[str, int],
    words: Sequence[str] = (),
    device: str = "",
    source: str = "",
    most: int = MOST_ANSWERS,
) -> list[Near]:
    """Return the best variant of each problem of a kernel, those of the nearest sizes first.

    Problems with other names of sizes, or with other words, are never compared. Measurements
    of the device come before those of others.

    Args:
        store: what is read.
        kernel: its name.
        sizes: those that are asked for, each at least 1.
        words: what else says which problem it is.
        device: the device's name; empty: any.
        source: the digest of its source; empty: any.
        most: answers that are returned, at most `MOST_ANSWERS`.

    Raises:
        DatabaseError: the database fails.
    """
    best: dict[tuple[Any, ...], Any] = {}
    with store.database.reading() as connection:
        for row in connection.execute(_fastest(kernel, source)):
            if set(row.sizes) == set(sizes) and sorted(row.words) == sorted(words):
                # two texts may say the same: names of sizes have no order, nor have words
                place = (row.device, *sorted(row.sizes.items()))
                best[place] = min(row, best.get(place, row), key=attrgetter("ms"))

        def order(row: Any) -> tuple[bool, float, float]:
            is_elsewhere = bool(device) and row.device != device
            return is_elsewhere, _distance(row.sizes, sizes), row.ms

        chosen = [row.id for row in sorted(best.values(), key=order)[: min(most, MOST_ANSWERS)]]
        asked = select(ForeignRow.id, *_COLUMNS).where(ForeignRow.id.in_(chosen))
        found = [dict(row) for row in connection.execute(asked).mappings()]
    whole = {one.pop("id"): Foreign.from_values(one) for one in found}
    near = (whole[key] for key in chosen if key in whole)
    return [Near(one, _distance(one.sizes, sizes)) for one in near]


def _fastest(kernel: str, source: str) -> Select[*tuple[Any, ...]]:
    """Return the statement for the fastest row of each device, sizes and words of a kernel.

    The database finds them: of a kernel there may be millions of rows.
    """
    problem = ForeignRow.device, cast(ForeignRow.sizes, Text), cast(ForeignRow.words, Text)
    rank = func.row_number().over(partition_by=problem, order_by=(ForeignRow.ms, ForeignRow.id))
    known = ForeignRow.kernel == kernel, ForeignRow.ms.is_not(None)
    wanted = (*known, ForeignRow.source.in_(("", source))) if source else known
    columns = (getattr(ForeignRow, name) for name in ("id", "device", "sizes", "words", "ms"))
    ranked = select(*columns, rank.label("rank")).where(*wanted).subquery()
    return select(ranked).where(ranked.c.rank == 1)


def _distance(ours: Mapping[str, int], theirs: Mapping[str, int]) -> float:
    return sum(abs(log2(max(ours[name], 1)) - log2(max(theirs[name], 1))) for name in theirs)
