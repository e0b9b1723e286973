"""Runs programs that use torch in processes of their own, forked from one that has imported it.

To import torch takes a process a second and a half, half of what a short program takes. Nothing of
this project is loaded before the fork. Tests of how a process begins or ends, and of torch's
import, start processes by themselves.

    python -m tests.torch_processes    # forks for each line of its input; `run` writes them
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
_server: subprocess.Popen[str] | None = None


class Running:
    """A program that runs: what of `subprocess.Popen` its tests use."""

    def __init__(self, program: str, variables: Mapping[str, str]) -> None:
        """Start it.

        Args:
            program: the text that `python -c` would be given.
            variables: its whole environment.
        """
        self._folder = TemporaryDirectory(prefix="oclgen-process")
        self._files = [Path(self._folder.name) / name for name in ("out", "errors")]
        files = [str(path) for path in self._files]
        asked = {"program": program, "variables": dict(variables), "files": files}
        self.pid = _answer({**asked, "folder": str(Path.cwd())})
        self.returncode: int | None = None

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; return what it wrote to its output and to its errors."""
        self.returncode = _answer({"wait": self.pid})
        out, errors = (path.read_text(encoding="utf-8") for path in self._files)
        self._folder.cleanup()
        return out, errors


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program as `python -c` would, with these variables beside the environment's."""
    running = Running(program, os.environ | variables)
    out, errors = running.communicate()
    assert running.returncode is not None
    return subprocess.CompletedProcess(["-c", program], running.returncode, out, errors)


def run_module(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a module as `python -m` would."""
    program = (
        f"import runpy, sys\nsys.argv = {[name, *arguments]!r}\n"
        f"runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    )
    return run(program, **variables)


def _answer(question: Mapping[str, Any]) -> int:
    """Ask the process that forks, which starts with the first question."""
    global _server
    if _server is None or _server.poll() is not None:
        _server = subprocess.Popen(
            [sys.executable, "-m", "tests.torch_processes"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )  # fmt: skip
    server, _server = _server, None  # an interrupt leaves an answer unread
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(question) + "\n")
    server.stdin.flush()
    answer = int(server.stdout.readline())
    _server = server
    return answer


def _fork() -> Mapping[str, Any] | None:
    """Fork for each question; return the question in the process that has to run it."""
    questions, answers = os.fdopen(os.dup(0), "rb", buffering=0), os.dup(1)
    while line := questions.readline():  # unbuffered: a forked process reads none of them
        question: Mapping[str, Any] = json.loads(line)
        if "wait" in question:
            _, status = os.waitpid(question["wait"], 0)
            os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))
        elif pid := os.fork():
            os.write(answers, b"%d\n" % pid)
        else:
            questions.close()
            os.close(answers)
            return question
    return None


def _become(question: Mapping[str, Any]) -> dict[str, Any]:
    """Take on the environment, the folder and the files of a program; return its names."""
    os.environ.clear()
    os.environ.update(question["variables"])
    os.chdir(question["folder"])
    for number, path in enumerate([os.devnull, *question["files"]]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    main = ModuleType("__main__")
    sys.modules["__main__"], sys.argv, sys.path[0] = main, ["-c"], ""
    return vars(main)


if __name__ == "__main__":
    gc.disable()  # to walk what torch's import made takes each program time, and memory of its own
    import torch  # noqa: F401

    gc.freeze()
    gc.enable()
    if (asked := _fork()) is not None:
        exec(compile(asked["program"], "<string>", "exec"), _become(asked))
