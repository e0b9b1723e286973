"""What a user can cause ends with exit code 1 or 2 and one sentence, never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from oclgen.problem import ProblemError
from oclgen_cli.main import is_users
from tests.cli.command_runs import Process, Run
from tuned_db import open_store

GARBAGE = b"this is no database" * 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show-source", "foo"], "'foo' is no problem"),
        (["show-source", "64x64"], "2 sizes, a product has 3"),
        (["show-source", "64x64x64:fp99"], "'fp99'"),
        (["show-source", "1,4,3,3,4,5,5"], "does not fit 3 x 3"),
        (["show-source", "1,3,8,8,4,3,3,1,1,1,2"], "multiples of groups=2"),
        (["show-source", "64x64x64", "--family", "magic"], "family 'magic' is unknown; known are"),
        (["show-source", "64x64x64", "--family", "conv_gemm"], "does not serve gemm:64x64x64"),
        (["show-source", "64x64x64", "--config", "{"], "--config is no JSON"),
        (["show-source", "64x64x64", "--config", "[1]"], "it must be an object"),
        (["show-source", "64x64x64", "--config", '{"warp": 3}'], "unknown parameters ['warp']"),
        (
            ["show-source", "64x64x64", "--config", '{"item_m": "x"}'],
            "item_m='x': it must be of type int",
        ),
        (["show-source", "64x64x64", "--config", '{"vec_n": 3}'], "vec_n=3"),
        (["tune", "--gemm", "64x64x0"], "0"),
        (["tune", "--family", "magic"], "family 'magic' is unknown"),
        (["tune", "--gemm", "8x8x8", "--family", "conv_gemm"], "conv_gemm cannot serve gemm:8x8x8"),
        (["db", "import", "nowhere/file"], "No such file or directory"),
        (["db", "export", "nowhere/file"], "No such file or directory"),
        (["db", "stats", "--db", "nosuch://host/name"], "nosuch"),
    ],
)
def test_bad_input_is_a_sentence(
    run: Run,
    own_database: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(own_database.parent)  # a folder without others
    open_store(own_database)  # what is read must be there
    if arguments[0] == "tune":
        pytest.importorskip("pyopencl")
        from oclgen.opencl.device import devices

        if not devices():
            pytest.skip("no OpenCL device here; tune looks for it first")
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["show-source"],
        ["tune", "--trials", "0"],
        ["tune", "--trials", "many"],
        ["tune", "--time-budget", "-1"],
        ["tune", "--no-such-option"],
        ["no-such-command"],
        ["db", "export"],
    ],
)
def test_wrong_usage_has_exit_code_2(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


@pytest.mark.parametrize("command", [["stats"], ["list"], ["export", "-"]])
def test_a_damaged_database_is_named_and_left_alone(
    run: Run, own_database: Path, command: list[str]
) -> None:
    own_database.write_bytes(GARBAGE)
    result = run("db", *command)
    assert result.exit_code == 1
    assert str(own_database) in result.stderr
    assert own_database.read_bytes() == GARBAGE


@pytest.mark.parametrize("text", ["", "no json\n", '{"format":"oclgen records","schema":99}\n'])
def test_a_bad_import_names_its_line(run: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(text)
    result = run("db", "import", str(file))
    assert result.exit_code == 1
    assert f"{file}, line 1: " in result.stderr


@pytest.mark.parametrize("command", [["devices"], ["tune", "--gemm", "8x8x8"]])
def test_without_a_runtime_the_remedy_is_named(process: Process, command: list[str]) -> None:
    done = process(*command, OCLGEN_RUNTIMES="none")
    assert done.returncode == 1
    assert "pip install 'oclgen[cpu]'" in done.stderr


def test_doctor_fails_where_nothing_works(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.icd").write_text("libgone.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setenv("OCLGEN_RUNTIMES", "libgone")
    monkeypatch.setattr("oclgen_cli.doctor._torch", tuple)  # a process that imports torch
    done = run("doctor")
    assert done.exit_code == 1
    assert "libgone.so: cannot open shared object file" in done.stdout
    assert "No OpenCL device works here." in done.stderr


def test_a_fault_of_the_program_is_not_hidden() -> None:
    assert is_users(ProblemError("m is 0"))
    assert is_users(ImportError("no pyopencl", name="pyopencl"))
    assert not is_users(ImportError("cannot import name", name="oclgen.opencl.device"))
    assert not is_users(KeyError("x"))
