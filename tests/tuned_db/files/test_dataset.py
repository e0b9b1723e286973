"""Data sets: the same bytes each time, read back whole, and nothing of who contributed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oclgen.problem import GemmProblem
from tests.tuned_db.files.test_selftest import filled
from tests.tuned_db.tuned_samples import INFO, SQUARE, record
from tuned_db import ImportFileError, Store, open_store
from tuned_db.files.dataset import from_lines, manifest_of, read, to_lines, write
from tuned_db.files.measured import of_store, take
from tuned_db.storage.batches import Source


@pytest.fixture
def shared(tmp_path: Path) -> Store:
    """What was measured there, and what came from alice."""
    store = filled(tmp_path / "shared.sqlite")
    store.merge([record(GemmProblem(8, 4, 2))], origin="push by alice")
    return store


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_database_gives_the_same_bytes_without_names(
    shared: Store, tmp_path: Path
) -> None:
    manifest = write(shared, tmp_path / "one", "2026.11", "CC-BY-4.0")
    write(shared, tmp_path / "two", "2026.11", "CC-BY-4.0")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert (manifest["records"], manifest["measurements"]) == (3, 5)
    assert manifest_of(tmp_path / "one")["licence"] == "CC-BY-4.0"
    assert not any(b"alice" in content for content in contents(tmp_path / "one").values())


def test_it_is_read_back_whole_failures_too(shared: Store, tmp_path: Path, store: Store) -> None:
    write(shared, tmp_path / "set", "1")
    (one,) = read(tmp_path / "set")
    assert sorted(row["invalidity"] for row in one.rows) == ["compile", *["none"] * 4]
    assert list(of_store(shared, everyone=True)) == [one]
    came = take(store, [one], "import", Source())
    assert (came.improved, came.kept) == (3, 2)
    key = [(one.problem, one.ms) for one in shared.all_winners()]
    assert [(one.problem, one.ms) for one in store.all_winners()] == key
    write(store, tmp_path / "again", "1")
    assert contents(tmp_path / "again") == contents(tmp_path / "set")


def test_a_new_version_takes_the_place_of_the_old(shared: Store, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write(shared, folder, "1")
    write(open_store(tmp_path / "empty.sqlite"), folder, "2")
    assert sorted(contents(folder)) == ["dataset.json", "records.jsonl", "schema.json"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with pytest.raises(ImportFileError, match="holds no data set"):
        write(shared, tmp_path / "full", "1")


def test_a_file_that_was_changed_is_refused(shared: Store, tmp_path: Path) -> None:
    write(shared, tmp_path / "set", "1")
    (path,) = (tmp_path / "set" / "measurements").iterdir()
    path.write_bytes(path.read_bytes().replace(b"1.25", b"0.25"))
    with pytest.raises(ImportFileError, match=r"is not what dataset\.json says"):
        list(read(tmp_path / "set"))


@pytest.mark.parametrize(
    "files", [["a"], "a", None, {"../a": ""}, {"/etc/passwd": ""}, {"a\0": ""}, [[1, 2]]]
)
def test_a_manifest_that_names_no_files_is_refused(tmp_path: Path, files: Any) -> None:
    manifest = {"format": "oclgen dataset", "schema": 1, "files": files}
    (tmp_path / "dataset.json").write_text(json.dumps(manifest))
    with pytest.raises(ImportFileError, match="holds no data set"):
        list(read(tmp_path))


@pytest.mark.parametrize(
    ("line", "change", "said"),
    [
        (1, {"schema": 2}, "schema 2; this version"),
        (1, {"peak": [1.0]}, "line 1: peak"),
        (3, {"origin": "x"}, "line 3: record: unknown fields"),
        (3, {"samples": [], "invalidity": "none"}, "line 3: none with 0 samples"),
    ],
)
def test_a_wrong_line_is_refused_by_its_number(
    shared: Store, line: int, change: dict[str, Any], said: str
) -> None:
    (one,) = of_store(shared)
    lines = to_lines(one).splitlines()
    lines[line - 1] = json.dumps(json.loads(lines[line - 1]) | change).encode()
    with pytest.raises(ImportFileError, match=said):
        from_lines("x", b"\n".join(lines))
    with pytest.raises(ImportFileError, match="empty"):
        from_lines("x", b"")


def test_the_device_is_the_one_that_was_measured(shared: Store) -> None:
    (one,) = of_store(shared)
    assert from_lines("x", to_lines(one)).device == INFO
    assert {row["problem"] for row in one.rows} == {SQUARE.key(), GemmProblem(8, 8, 8).key()}
