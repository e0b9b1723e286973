"""Files that several processes read and write."""

from __future__ import annotations

import os
from pathlib import Path
from threading import get_ident


def write_atomically(target: Path, text: str) -> None:
    """Write a file so that others read all of it, or what it was before; make its folder.

    Raises:
        OSError: it cannot be written, and is as it was.
    """
    part = target.with_name(f"{target.name}.{os.getpid()}.{get_ident()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
