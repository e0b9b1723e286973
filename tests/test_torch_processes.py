"""What stands for torch's own ways in tests: forked programs, and a walk along the frames."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import TestCase

import pytest

pytest.importorskip("torch")

from tests import torch_frames, torch_processes


def test_a_program_begins_with_torch_and_nothing_of_this_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = torch_processes.run(
        "import os, sys\n"
        "print('torch' in sys.modules, [name for name in sys.modules if name.startswith('ocl')])\n"
        "print(os.getcwd(), sys.argv, __name__, os.environ['GIVEN'], os.environ.get('PYTHONPATH'))",
        GIVEN="with the call",
    )
    path = os.environ.get("PYTHONPATH")
    assert done.stdout == f"True []\n{tmp_path} ['-c'] __main__ with the call {path}\n", done.stderr


def test_ends_and_outputs_of_programs_are_told_apart() -> None:
    ends = ("raise ValueError(8)", "import sys; sys.exit(3)", "import os; os.abort()", "")
    running = [
        torch_processes.Running(f"print({n}, flush=True)\n{end}", os.environ)
        for n, end in enumerate(ends)
    ]
    told = [one.communicate() for one in reversed(running)]
    assert [one.returncode for one in running] == [1, 3, -6, 0]
    assert [out for out, _ in reversed(told)] == ["0\n", "1\n", "2\n", "3\n"]
    assert told[-1][1].endswith("ValueError: 8\n")


def test_a_module_gets_its_arguments() -> None:
    done = torch_processes.run_module("platform", "--terse")
    assert done.returncode == 0
    assert done.stdout.strip()


class Asking(TestCase):
    """A test as torch's classes of tests are made."""

    def test_is_found(self) -> None:
        self.assertIs(torch_frames.caller(), Asking.test_is_found)
        if torch_frames.theirs:
            self.assertIs(torch_frames.theirs(), Asking.test_is_found)


def test_outside_of_torchs_classes_none_is_found() -> None:
    assert torch_frames.caller() is None
    assert torch_frames.theirs is None or torch_frames.theirs() is None
