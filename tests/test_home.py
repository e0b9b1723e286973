"""The tests neither read nor write what belongs to the user who runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oclgen.families import FAMILIES
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tests import home
from tuned_db import Chooser, open_store
from tuned_db.database.opening import locate

PROBLEM = GemmProblem(6, 5, 7)
SAMPLE = (
    "tests/test_home.py::test_folders_of_the_user_are_the_runs_own",
    "tests/test_home.py::test_the_winners_of_the_user_are_not_known",
    "tests/cli/test_errors.py::test_a_damaged_database_is_named_and_left_alone",
    "tests/oclgen/test_exclusive.py",
    "tests/benchmarks/test_bench_results.py",
)


def test_folders_of_the_user_are_the_runs_own() -> None:
    own = Path(os.environ[home.VARIABLE])
    assert Path.home() == own
    assert Path(locate().database or "").is_relative_to(own)
    assert {name for name in os.environ if name.startswith("OCLGEN_")} <= set(home.KEPT)


def test_the_winners_of_the_user_are_not_known(device: object) -> None:
    from oclgen.opencl.device import Device

    assert isinstance(device, Device)
    chosen = Chooser(open_store(), device.info, device.limits).choose(PROBLEM)
    assert chosen.rung != "exact"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_run_leaves_the_link_to_the_runtimes_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "SETTINGS", tmp_path / "cl.cfg")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    for name in os.environ:
        monkeypatch.setenv(name, os.environ[name])  # is set back at the end
    first, second = home.enter(), home.enter()
    home.leave(second)
    assert home.SETTINGS.is_symlink()
    home.leave(first)
    assert not home.SETTINGS.is_symlink()


@pytest.mark.usefixtures("any_device")
def test_a_run_leaves_the_home_that_it_was_given_alone(tmp_path: Path) -> None:
    """The user's database, where it lies and where a variable says, holds a bogus winner."""
    from oclgen.opencl.device import devices

    given = tmp_path / "given"
    database = given / ".local/share/oclgen/tuned.sqlite"
    database.parent.mkdir(parents=True)
    served = Variant("gemm_register", FAMILIES["gemm_register"].DEFAULT)
    for device in devices():
        bogus = Measurement(samples=(1e-6,), error=0.0)
        open_store(database).of(device.info).record(PROBLEM, served, bogus)
    before = files(given)
    assert str(database) in before
    users = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    users |= {"OCLGEN_DB": str(database), "HOME": str(given)}
    users |= {name: str(given / name) for name in users if name.startswith("XDG_")}
    users["XDG_DATA_HOME"] = str(given / ".local/share")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SAMPLE],
        cwd=home.ROOT, env=users, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert files(given) == before
