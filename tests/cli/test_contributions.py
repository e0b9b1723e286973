"""The ways of files between people: contribute, data sets, and kernels of other tuners."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_runs import Run
from tests.tuned_db.files.test_selftest import FINDINGS, facts, filled
from tests.tuned_db.tuners.test_foreign import CLBLAST, KERNEL_TUNER, T4
from tuned_db import open_store
from tuned_db.files.selftest import to_bytes


@pytest.fixture
def check(tmp_path: Path) -> Path:
    path = tmp_path / "check.json"
    path.write_bytes(to_bytes(filled(tmp_path / "check.sqlite"), facts(), FINDINGS, 1.0))
    return path


def test_a_folder_gets_a_file_once_and_a_bad_one_never(
    run: Run, check: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "contributions"
    for _ in range(2):
        assert run("db", "contribute", str(check), str(folder)).exit_code == 0
    (kept,) = folder.iterdir()
    assert "1 of 3 checks failed; 2 records taken into" in run("db", "import", str(kept)).output
    check.write_text('{\n"format": "oclgen check",\n"schema": 1}', encoding="utf-8")
    refused = run("db", "contribute", str(check), str(folder))
    assert (refused.exit_code, "missing" in refused.stderr) == (1, True)
    assert len(list(folder.iterdir())) == 1


def test_a_service_takes_a_check_file_with_its_failures(
    run: Run, check: Path, service: tuple[str, str], tmp_path: Path
) -> None:
    url, token = service
    assert "needs a token" in run("db", "contribute", str(check), url).stderr
    sent = run("db", "contribute", str(check), url, "--token", token).output
    assert "2 records are winners there, 2 were known or not faster" in sent
    again = run("db", "contribute", str(check), url, "--token", token).output
    assert "0 records are winners there, 4 were" in again
    other = str(tmp_path / "other.sqlite")
    assert "2 records of 127.0.0.1 taken into" in run("db", "pull", url, "--db", other).output


def test_another_tuners_user_stores_results_in_a_service_and_asks_the_nearest(
    run: Run, service: tuple[str, str], tmp_path: Path
) -> None:
    url, token = service
    file = tmp_path / "cache.json"
    file.write_text(json.dumps(KERNEL_TUNER))
    sent = run("db", "foreign", "import", str(file), "--url", url, "--token", token).output
    assert "2 of 2 measurements are new in 127.0.0.1" in sent
    asked = ("db", "foreign", "nearest", "convolution_kernel", "2048,2048", "--url", url, "--json")
    (near,) = json.loads(run(*asked).output)
    assert near["parameters"] == {"block_size_x": 16, "use_padding": 0}
    assert near["distance"] == 1.0
    assert json.loads(run(*asked, "--source", "ab").output) == [near]  # its source is not known
    assert "refuses with 422" in run(*asked, "--source", "no digest").stderr


def test_other_tuners_files_are_kept_and_written(
    run: Run, own_database: Path, tmp_path: Path
) -> None:
    file, out = tmp_path / "file.json", tmp_path / "out.json"
    file.write_text(json.dumps(CLBLAST))
    assert "2 of 2 measurements are new" in run("db", "foreign", "import", str(file)).output
    file.write_text(json.dumps(T4))
    refused = run("db", "foreign", "import", str(file))
    assert (refused.exit_code, "--kernel" in refused.stderr) == (1, True)
    arguments = ("--kernel", "mine", "--sizes", "n=64", "--device-name", "A100")
    assert run("db", "foreign", "import", str(file), *arguments).exit_code == 0
    assert run("db", "foreign", "export", "t4", str(out), "--kernel", "mine").exit_code == 0
    assert [one["invalidity"] for one in json.loads(out.read_text())["results"]] == [
        "correct", "constraints",
    ]  # fmt: skip
    assert run("db", "foreign", "export", "clblast", str(out), "--kernel", "Xgemm").exit_code == 0
    assert json.loads(out.read_text())["precision"] == "32"
    shown = run("db", "foreign", "nearest", "mine", "n=128")
    assert "block_size_x=16" in shown.output
    assert run("db", "foreign", "nearest", "mine", "n=").exit_code == 2


def test_a_data_set_travels(run: Run, own_database: Path, tmp_path: Path) -> None:
    filled(own_database)
    folder, other = tmp_path / "set", str(tmp_path / "other.sqlite")
    written = run("db", "dataset", str(folder), "--version", "1").output
    assert "2 records and 4 measurements of" in written
    taken = run("db", "import", str(folder), "--db", other).output
    assert taken.startswith("2 records taken into")
    (file,) = (folder / "measurements").iterdir()
    assert run("db", "import", str(file), "--db", other).output.startswith("0 records taken")
    assert len(open_store(other).all_winners()) == 2


def test_signed_files_are_believed_by_their_key(
    run: Run, check: Path, own_database: Path, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography")
    private, folder = str(tmp_path / "key.pem"), tmp_path / "contributions"
    public = run("db", "key", "make", "--key", private).output.strip()
    assert run("db", "key", "show", "--key", private).output.strip() == public
    refused = run("db", "import", str(check), "--signed")
    assert (refused.exit_code, "is not signed" in refused.stderr) == (1, True)
    assert run("db", "sign", str(check), "--key", private).exit_code == 0
    assert "oclgen db key trust NAME" in run("db", "import", str(check)).stderr
    assert run("db", "key", "trust", "alice", public).exit_code == 0
    assert "alice" in run("db", "key", "list").output
    assert run("db", "contribute", str(check), str(folder)).exit_code == 0
    kept = next(folder.glob("*.json"))
    assert "2 records taken" in run("db", "import", str(kept), "--signed").output
    assert {one.origin for one in open_store(own_database).all_winners()} == {"signed by alice"}
    agreed = json.loads(run("db", "consensus", "--least", "1", "--json").output)
    assert [one["contributors"] for one in agreed] == [1, 1]
    check.write_bytes(check.read_bytes().replace(b"gemm_register", b"gemm_registeR", 1))
    assert "not alice's for these bytes" in run("db", "import", str(check)).stderr
