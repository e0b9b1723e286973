"""The device without an import of ours: torch's entry point, what it costs, how it stays away."""

from __future__ import annotations

import ctypes.util
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import ocl_autoload
import ocl_backend  # noqa: F401 (compiles the shim and notes where it lies)
from ocl_backend.runtime import shim
from tests import torch_processes

pytestmark = pytest.mark.usefixtures("any_device")

ENTRY_POINT = "[torch.backends]\nocl = ocl_autoload:load\n"
ROOT = Path(__file__).parents[2]
LATER = (
    *("alembic", "mako", "numpy", "pydantic", "pyopencl", "sqlalchemy", "tuned_db"),
    *("oclgen.families", "oclgen.opencl", "ocl_backend.kernels", "ocl_backend.ops"),
)
"""Packages that the first use of a device loads, or the first choice of a kernel, or nothing."""


def searched(path: Path) -> str:
    """Let torch find the entry point in `path`, also if this project is not installed.

    Returns:
        What a process has to search for packages.
    """
    info = path / "ocl_autoload_test-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ocl-autoload-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    return os.pathsep.join((str(path), str(ROOT), os.environ.get("PYTHONPATH", "")))


LAST = """
import os, sys, torch
sys.path[1:1] = os.environ["PYTHONPATH"].split(os.pathsep)
if torch._is_device_backend_autoload_enabled():
    torch._import_device_backends()
"""
"""What torch's import does last. A process that is forked from one with torch, and without entry
points, has it still to do."""


def run(program: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `program` with torch as its import leaves it, which finds the entry point."""
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1", **variables}
    return torch_processes.run(LAST + program, PYTHONPATH=searched(path), **variables)


def test_the_entry_point_is_the_projects() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points."torch.backends"]\nocl = "ocl_autoload:load"\n' in text


INTERRUPTED = """
import signal, sys, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it

class Interrupting:
    def find_spec(self, name, *others):
        if name == "{when}":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
try:
    {first_use}
except KeyboardInterrupt:
    print("interrupted")
print(torch.ones(3, device="ocl").sum().item())
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "first_use", ["torch.ones(3, device='ocl')", "torch.accelerator.synchronize()"]
)
@pytest.mark.parametrize("when", ["ocl_backend.opened", "ocl_backend.ops.linear.matmul"])
def test_an_interrupt_of_the_opening_is_not_lost(first_use: str, when: str, tmp_path: Path) -> None:
    done = run(INTERRUPTED.format(first_use=first_use, when=when), tmp_path)
    assert done.stdout.splitlines() == ["interrupted", "3.0"], done.stdout + done.stderr


def test_torch_alone_is_enough(tmp_path: Path) -> None:
    """In a process that begins with torch's whole import."""
    program = (
        "import sys, torch\n"
        "print('ocl_backend' in sys.modules, torch.ocl.is_initialized())\n"
        "torch.manual_seed(7)\n"
        "first = torch.rand(5, device='ocl')\n"
        "torch.manual_seed(7)\n"
        "print(torch.equal(first.cpu(), torch.rand(5, device='ocl').cpu()))\n"
        "x = torch.full((3,), 2.0, device='ocl', requires_grad=True)\n"
        "(x * x).sum().backward()\n"
        "print(x.grad.tolist(), torch.ocl.is_initialized())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": searched(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["False False", "True", "[4.0, 4.0, 4.0] True"], done.stderr


def test_training_on_the_cpu_opens_no_device_and_may_fork(tmp_path: Path) -> None:
    done = run(
        "import multiprocessing, sys, torch\n"
        "from torch.utils.checkpoint import checkpoint\n"
        "model = torch.nn.Linear(3, 3)\n"
        "steps = torch.optim.Adam(model.parameters())\n"
        "loader = torch.utils.data.DataLoader([torch.ones(3)] * 4, num_workers=1)\n"
        "for x in loader:\n"
        "    checkpoint(model, x, use_reentrant=False).sum().backward(); steps.step()\n"
        "print('ocl_backend' in sys.modules)\n"
        "def child(): sys.exit(int(torch.ones(3, device='ocl').sum().item()))\n"
        "process = multiprocessing.get_context('fork').Process(target=child)\n"
        "process.start(); process.join(); print(process.exitcode)\n"
        "x = torch.ones(2, device='ocl', requires_grad=True); (3 * x).sum().backward()\n"
        "print(x.grad.tolist())\n",
        tmp_path,
    )
    assert done.stdout.splitlines() == ["False", "3", "[3.0, 3.0]"], done.stderr


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    done = run(
        "import torch; print(hasattr(torch, 'ocl'))", tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )
    assert (done.stdout, done.returncode) == ("False\n", 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "stamp", [None, "", '{"sources": []}', '{"sources": [["/nowhere", [1, 2]]], "library": "x"}']
)
def test_nothing_amiss_stops_torch(stamp: str | None, tmp_path: Path) -> None:
    ours = ocl_autoload._stamp()
    theirs = tmp_path / "oclgen" / "shim" / ours.name
    theirs.parent.mkdir(parents=True)
    if stamp is not None:
        theirs.write_text(stamp)
    done = run("import torch; print(hasattr(torch, 'ocl'))", tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    ("built_for", "driver", "stays_away"),
    [
        ({}, True, False),
        ({"cuda": "13.0"}, True, True),
        ({"cuda": "13.0"}, False, False),
        ({"xpu": "2026"}, False, True),
    ],
)
def test_another_accelerator_is_one_whose_driver_is_there(
    built_for: dict[str, str], driver: bool, stays_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyPI's torch is a CUDA build on Linux, also on machines without an NVIDIA GPU."""
    for name in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(torch.version, name, built_for.get(name))
    monkeypatch.setattr(ocl_autoload, "_is_loadable", lambda _: driver)
    announced: list[bool] = []
    monkeypatch.setattr(ocl_autoload, "announce_known", lambda: announced.append(True))
    ocl_autoload.load()
    assert announced == [] if stays_away else [True]


def test_a_driver_is_there_if_it_can_be_loaded() -> None:
    assert ocl_autoload._is_loadable(ctypes.util.find_library("c") or "")
    assert not ocl_autoload._is_loadable("libnobody_has_this.so.1")


def test_word_is_left_where_nothing_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel's shim leaves no folder in the cache, and the device is to be known afterwards."""
    stamp = tmp_path / "oclgen" / "shim" / "known.json"
    monkeypatch.setattr(ocl_autoload, "_stamp", lambda: stamp)
    ocl_autoload.remember(Path("shim.so"), [ROOT / "pyproject.toml"], 2)
    assert json.loads(stamp.read_text())["devices"] == 2


def test_a_new_source_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shim of the older sources would lack what the new one defines."""
    monkeypatch.setattr(ocl_autoload, "_stamp", lambda: tmp_path / "cache" / "known.json")
    monkeypatch.setattr(ctypes, "PyDLL", lambda path: path)
    (folder := tmp_path / "csrc").mkdir()
    (first := folder / "first.cpp").write_text("")
    ocl_autoload.remember(Path("shim.so"), [first], 2)
    assert (known := ocl_autoload._known()) is not None and known[1] == 2
    (folder / "second.cpp").write_text("")
    assert ocl_autoload._known() is None


def test_a_shim_of_other_sources_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that change while a program runs would be taken for those of its shim."""
    assert shim.is_of_these_sources()
    monkeypatch.setattr(shim, "path", lambda: Path("ocl-torch2.13.0-0123456789ab.so"))
    assert not shim.is_of_these_sources()


def test_a_device_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    done = run(
        "import sys, torch\n"
        "sys.modules['ocl_backend'] = None\n"
        "try: torch.ones(3, device='ocl')\n"
        "except RuntimeError as error: print(error)\n",
        tmp_path,
    )
    assert done.stdout.startswith("the ocl device cannot be opened: import of ocl_backend"), done


def test_the_import_of_torch_opens_one_library_and_few_files(tmp_path: Path) -> None:
    """What it opens is what it costs: no process, no compiler, no package of this project."""
    program = (
        "import sys, torch, ocl_autoload; known = set(sys.modules); events = []\n"
        "sys.addaudithook(lambda event, _: events.append(event))\n"
        "ocl_autoload.load(); seen = tuple(events)\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - known}))\n"
        "print(*map(seen.count, ('ctypes.dlopen', 'subprocess.Popen', 'open')))\n"
        "print(ocl_autoload.library is not None)\n"
    )
    done = run(program, tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    loaded, counted, is_there = done.stdout.splitlines()
    assert is_there == "True", done.stderr
    assert set(loaded.split()) <= {"platformdirs", "torch"}
    libraries, processes, files = map(int, counted.split())
    assert (libraries, processes) == (1, 0)
    assert files < 40


def test_an_import_loads_what_registering_needs(tmp_path: Path) -> None:
    """The first use opens the device, and the first call of an operator defines it."""
    done = run(
        "import sys, torch; known = set(sys.modules)\n"
        "import ocl_backend; print(*sorted(set(sys.modules) - known))\n"
        "print(torch.backends.ocl.is_built())\n"
        "print(torch.ones(3, device='ocl').sum().item(), torch.backends.ocl.is_available())\n"
        "from ocl_backend.fusion import recall\n"
        "before = set(recall.uncalled())\n"
        "rows = torch.ones(3, 4, device='ocl') + torch.ones(4, device='ocl')\n"
        "print(*sorted(name for key, name in before - set(recall.uncalled())))\n"
        "print('sympy' in sys.modules, 'oclgen.families.gemm.gemm_mma' in sys.modules)\n",
        tmp_path,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    loaded, *rest = done.stdout.splitlines()
    assert "ocl_backend.registration" in loaded.split()
    found = [
        name for name in loaded.split() for later in LATER if f"{name}.".startswith(f"{later}.")
    ]
    assert found == []
    assert rest == ["True", "3.0 True", "aten::add.Tensor", "False False"], done.stderr


def test_word_is_left_of_the_shim_and_its_sources() -> None:
    known = json.loads(ocl_autoload._stamp().read_text())
    assert Path(known["library"]).exists()
    assert known["devices"] >= 1
    assert len(known["sources"]) > 10


def test_the_collector_rests_while_devices_are_opened_and_goes_on() -> None:
    frozen = gc.get_freeze_count()
    with ocl_autoload._uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
    gc.disable()
    try:
        with ocl_autoload._uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_done_for_a_name_that_is_missing_once_devices_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch asks for such names: 309 times when it loads the training of a resnet18."""
    torch.ones(1, device="ocl")
    asked = torch.get_device_module("ocl")
    assert not hasattr(asked, "no_such_name")
    rests: list[bool] = []
    monkeypatch.setattr(ocl_autoload, "_uncollected", lambda: rests.append(True))
    assert not hasattr(asked, "no_such_name")
    if hasattr(type(asked), "_lazy_init"):  # it was announced before it was opened
        type(asked)._lazy_init(asked)
    assert rests == []


def test_what_a_program_froze_stays_frozen() -> None:
    before = gc.get_freeze_count()
    gc.freeze()
    try:
        with ocl_autoload._uncollected():
            pass
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
