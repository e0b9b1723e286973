"""`python -m benchmarks` lists its commands, refuses mistakes in words and writes what it found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from benchmarks.__main__ import main
from benchmarks.comparison.run import KINDS, Options
from benchmarks.report.rows import LEFT_OUT, load

ROOT = Path(__file__).parents[2]


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m benchmarks` in a folder."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def test_the_command_lists_its_commands_and_imports_none_of_them(tmp_path: Path) -> None:
    text = run("--help", folder=tmp_path)
    assert text.returncode == 0
    listed = set(re.findall(r"^  ([a-z-]+)  ", text.stdout, flags=re.MULTILINE))
    assert listed == set(main.commands)
    assert {"all", *KINDS, "validate", "replay", "report"} < listed
    code = (
        "import sys, benchmarks.__main__\n"
        "print([name for name in sys.modules if name == 'torch' or name.startswith('benchmarks.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    commands = [
        *("benchmarks.costs", "benchmarks.options", "benchmarks.costs.commands"),
        *("benchmarks.shapes", "benchmarks.shapes.commands"),
    ]
    assert done.stdout == f"{[*commands, 'benchmarks.__main__']}\n"


def test_documents_name_commands_and_files_of_the_benchmarks_that_exist() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(path.read_text() for path in documents)
    commands = set(re.findall(r"python -m benchmarks([. ][\w-]+)", text))
    assert {command.removeprefix(" ") for command in commands} <= set(main.commands)
    assert {" all", " validate", " replay"} <= commands
    for name in set(re.findall(r"benchmarks/[\w/.]*\w", text)):
        assert "NAME" in name or (ROOT / name).exists(), name


@pytest.mark.parametrize("command", main.commands)
def test_every_command_explains_itself(command: str) -> None:
    done = CliRunner().invoke(main, [command, "--help"])
    assert done.exit_code == 0
    assert "--help" in done.output


def test_every_option_of_the_commands_is_one_of_the_suite() -> None:
    options = {parameter.name for parameter in main.commands["gemm"].params}
    assert options == {field.name for field in fields(Options)} - {"kinds"}


def test_a_mistake_in_an_option_is_a_sentence() -> None:
    for arguments, words in (
        (["gemm", "--dtype", "fp23"], "unknown: fp23; known: fp32"),
        (["validate", "--only", "resnet19"], "unknown: resnet19; known: alexnet"),
        (["validate"], "give --all or --only; there are alexnet"),
        (["table", "8x8x8", "gemm_register", "x.csv.gz", "--only", "order"], "is not NAME=VALUE"),
    ):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2
        assert words in done.output


@pytest.mark.usefixtures("any_device")
def test_the_command_starts_both_sides_and_writes_what_it_was_asked_for(tmp_path: Path) -> None:
    rows, text = "rows.json", "report.md"
    asked = ["all", "--only", "squares,drawn", "--time-budget", "1e-9", "--seed", "5"]
    asked += ["--json", rows, "--markdown", text, "--note", "no time at all"]
    done = run(*asked, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Drawn by --seed 5." in done.stdout
    assert " of squares fp32, " in done.stdout
    assert " of drawn products fp32, " in done.stdout
    result = load(tmp_path / rows)
    assert result.peers["torch"].startswith("torch 2.")
    assert result.roofs.gflops > 1
    assert all(row.reason.startswith(LEFT_OUT) for row in result.rows)
    assert {row.seed for row in result.rows} == {5, None}
    report = (tmp_path / text).read_text()
    assert "Note: no time at all" in report
    assert "Seeds of the drawn shapes: 5." in report


@pytest.mark.usefixtures("any_device")
def test_drawn_products_are_measured_on_both_sides_and_known_to_be_untuned(tmp_path: Path) -> None:
    done = run(
        *["gemm", "--only", "drawn", "--drawn", "2", "--seed", "1", "--json", "rows.json"],
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    rows = load(tmp_path / "rows.json").rows
    assert [row.key.split(":")[0] for row in rows] == ["1x1545x36", "1x276x73"]
    for row in rows:
        assert row.reason == ""
        assert row.ratio("torch")
        assert row.error is not None
        assert row.error < 1e-5
        assert row.tuned == (0, 1)
        assert row.seed == 1
    assert "| drawn products fp32 | 2 | 0 |" in done.stdout
    assert done.stdout.count("tuned: no") == 2
