"""The records that come with the package; how they are written is `tuned_db.records.exchange`."""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from oclgen import profiles
from tuned_db.records.exchange import read_checked
from tuned_db.records.record import Record


def has_shipped() -> bool:
    """Say whether the records of the package are there; a profile may hide them."""
    profile = profiles.chosen()
    return profile is None or profile.has_records


@cache
def shipped_records() -> tuple[Record, ...]:
    """Return the records of every `shipped/*.jsonl` in the package, in the order of the names.

    There are none under a profile that says so (`oclgen.profiles`).
    """
    if not has_shipped():
        return ()
    folder = resources.files("tuned_db").joinpath("shipped")
    if not folder.is_dir():
        return ()
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".jsonl")), key=lambda f: f.name)
    return tuple(record for file in files for record in _read(file))


def _read(file: Traversable) -> list[Record]:
    with file.open("rb") as stream:
        return read_checked(stream)  # the tests have checked them
