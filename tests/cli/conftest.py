"""A database of its own for every test of the command, and two ways to run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oclgen_cli.main import main
from tests.cli.command_runs import Process, Run


@pytest.fixture(autouse=True)
def own_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "tuned.sqlite"
    monkeypatch.setenv("OCLGEN_DB", str(path))
    return path


@pytest.fixture
def run() -> Run:
    """Run the command in this process; what is no message for users is raised."""

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def process() -> Process:
    """Run the command as users do, with more environment variables as keywords."""

    def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "oclgen_cli", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr + done.stdout
        return done

    return start
