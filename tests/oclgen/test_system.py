"""Linux, macOS and Windows are told apart in `oclgen.system`; here each system is pretended."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from oclgen import system
from oclgen.measuring import child, worker


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """Pretend Windows: without POSIX's functions, with a kernel32 that notes its calls."""
    calls: list[tuple[str, tuple[Any, ...]]] = []

    class Function:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, *given: Any) -> int:
            calls.append((self.name, given))
            return 2**40 + 7  # a handle that 32 bits do not hold

    class Kernel:
        def __init__(self, name: str) -> None:
            assert name == "kernel32"

        def __getattr__(self, name: str) -> Function:
            vars(self)[name] = Function(name)
            return Function(name)

    monkeypatch.setattr(sys, "platform", "win32")
    for name in ("nice", "sysconf", "sched_getaffinity", "register_at_fork", "fork"):
        monkeypatch.delattr(os, name)
    for name in ("resource", "select", "fcntl"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(ctypes, "WinDLL", Kernel, raising=False)
    startup = lambda **given: SimpleNamespace(**given)  # noqa: E731
    monkeypatch.setattr(subprocess, "STARTUPINFO", startup, raising=False)
    return calls


def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return how `child.spawn` starts a process."""
    seen: dict[str, Any] = {}

    def popen(command: list[str], **options: Any) -> None:
        seen.update(options, number=int(command[4]), arguments=command[5:])

    monkeypatch.setattr(subprocess, "Popen", popen)
    child.spawn("oclgen.measuring.worker", "build", "0")[1].close()
    return seen


def test_windows_hands_a_child_one_end_of_a_pipe(
    windows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inheritable: list[bool] = []
    monkeypatch.setattr(
        socket.socket, "set_inheritable", lambda end, on: inheritable.append(on), raising=False
    )
    seen = started(monkeypatch)
    assert seen["startupinfo"].lpAttributeList == {"handle_list": [seen["number"]]}
    assert inheritable == [True]
    assert seen["creationflags"] == 0x200
    assert seen["arguments"] == ["build", "0"]
    assert not {"pass_fds", "start_new_session"} & seen.keys()  # Windows refuses the first


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_others_pass_its_number(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    seen = started(monkeypatch)
    assert seen["pass_fds"] == [seen["number"]]
    assert seen["start_new_session"] is True
    assert not {"startupinfo", "creationflags"} & seen.keys()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit code 0"),
        (77, "exit code 77"),
        (-6, "SIGABRT"),
        (0xC0000005, "exit code 0xC0000005"),
    ],
)
def test_the_end_of_a_process_is_told_by_each_systems_words(code: int, said: str) -> None:
    assert system.ended(code) == said


def test_on_windows_a_child_waits_for_its_parents_end(windows: list[Any]) -> None:
    system.wait_for_hang_up(5)
    (opened, (right, inherits, parent)), (waited, (handle, how_long)) = windows
    assert (opened, right, inherits, parent) == ("OpenProcess", 0x100000, False, os.getppid())
    assert (waited, handle.value, how_long) == ("WaitForSingleObject", 2**40 + 7, 0xFFFFFFFF)


@pytest.mark.skipif(sys.platform == "win32", reason="sockets tell of their end elsewhere alone")
def test_elsewhere_it_waits_for_the_end_of_the_pipe() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"a question, which is no end")
    ours.close()
    with theirs:
        system.wait_for_hang_up(theirs.fileno())


def test_what_windows_does_not_tell_is_not_asked_for(windows: list[Any]) -> None:
    assert system.memory_bytes() is None
    assert system.used_bytes() is None
    assert system.cores() == (os.cpu_count() or 1)
    assert not system.has_all_cores()
    system.leave_no_core_file()
    assert windows == []
    system.leave_cores_to_others()
    assert [name for name, _ in windows] == ["GetCurrentProcess", "SetPriorityClass"]
    assert windows[1][1][0].value == 2**40 + 7
    assert windows[1][1][1] == 0x40


def test_a_worker_starts_where_memory_is_not_told(
    windows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from oclgen.opencl import device as opencl

    served: list[object] = []
    pipe = SimpleNamespace(fileno=lambda: 5, send=served.append)
    monkeypatch.setattr(system, "wait_for_hang_up", lambda number: Event().wait())
    monkeypatch.setattr(opencl, "opened", lambda index: SimpleNamespace(info=index))
    monkeypatch.setattr(worker, "serve_builds", lambda pipe, device: served.append("builds"))
    worker.main("build", pipe, 3)  # type: ignore[arg-type]
    assert served == [3, "builds"]


def test_macos_tells_the_most_memory_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=1 << 30))
    assert system.used_bytes() == 1 << 30


def test_a_file_is_utf_8_with_plain_ends_of_lines_whatever_the_system_prefers(
    windows: list[Any], tmp_path: Any
) -> None:
    from oclgen.files import write_atomically

    write_atomically(tmp_path / "one", "µ\n")
    assert (tmp_path / "one").read_bytes() == "µ\n".encode()


@pytest.mark.parametrize("module", ["ocl_backend.module", "search_spaces.background", "cli.tune"])
def test_modules_are_imported_where_posix_is_not(module: str) -> None:
    """Names that Windows lacks are used within functions alone, or after a question."""
    if module == "ocl_backend.module":
        pytest.importorskip("torch")
    code = (
        "import os, sys\n"
        "import multiprocessing.connection, filelock, sqlalchemy, optuna, click, numpy\n"
        "torch = __import__('torch') if sys.argv[1].startswith('ocl_backend') else None\n"
        "import oclgen.opencl.device\n"
        "for name in ('nice', 'sysconf', 'sched_getaffinity', 'register_at_fork', 'fork'):\n"
        "    delattr(os, name)\n"
        "sys.modules.update(resource=None, fcntl=None)\n"
        "name = sys.argv[1].replace('cli.', 'oclgen_cli.')\n"
        "__import__(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
