"""Where the database lies: as the environment says, else in the user's data folder."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_data_path

ENVIRONMENT = "OCLGEN_DB"


def chosen(where: str | os.PathLike[str] | None = None) -> str:
    """Return the URL or path of `where`, else of $OCLGEN_DB, else of the user's file."""
    named = os.fspath(where) if where else os.environ.get(ENVIRONMENT, "")
    return named or str(user_data_path("oclgen") / "tuned.sqlite")


def file_of(where: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the file of a database that `chosen` names by a path, None where it names a URL."""
    text = chosen(where)
    return None if "://" in text else Path(text).expanduser().absolute()
