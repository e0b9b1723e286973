"""Files that others read while they are written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from oclgen.files import write_atomically


def test_a_file_that_cannot_be_written_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "known.json"
    write_atomically(target, "before")

    def full(path: Path, text: str, **_: object) -> None:
        with path.open("w", encoding="utf-8") as stream:
            stream.write(text[:2])
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(target, "afterwards")
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]
