"""Gives a run of the tests a home folder of its own; imported before anything that looks for one.

Data and configuration lie in a temporary folder that ends with the run. What is compiled, the shim
and the kernels, lies below the repository and stays, so that no process of a run and no later run
compiles it again: its files are named after what they were made from.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "tests"
VARIABLE = "OWN_TEST_HOME"
"""Tells the workers of a run, which inherit the environment, where its home lies."""
KEPT = ("OCLGEN_RUNTIMES", "OCLGEN_FAULTY", "OCLGEN_TARGET_TOOLS")
"""Say which devices and compilers there are, as other variables of the system do."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Threads of numpy and torch on the host: matrices of tests are small, and a second thread waits
in a loop for the first, which triples the CPU time of a search."""

SETTINGS = ROOT / "cl.cfg"
"""Link to what Intel's runtime reads for each kernel that it loads: in the working folder first,
then beside its library. To find that one, it reads the list of the process's mapped files, of which
a worker has 1,500: that took two thirds of the time to load a program."""


def enter() -> Path | None:
    """Point every variable that names a user's folder to the run's own.

    Returns:
        The folder that this process made and that ends with it; None in a worker of a run.
    """
    made = None
    if "PYTEST_XDIST_WORKER" not in os.environ:
        made = Path(tempfile.mkdtemp(prefix="oclgen-tests-"))
        os.environ[VARIABLE] = str(made)
        # a shell's background job ignores it, and so would a tuning that a test interrupts
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError):  # another run's is there, or links are not
            SETTINGS.symlink_to(Path(sys.prefix) / "lib" / SETTINGS.name)
            (made / SETTINGS.name).touch()
    for name in [name for name in os.environ if name.startswith("OCLGEN_") and name not in KEPT]:
        del os.environ[name]
    os.environ.update(folders(Path(os.environ[VARIABLE])))
    for name in THREADS:
        os.environ.setdefault(name, "1")
    CACHE.mkdir(parents=True, exist_ok=True)
    # hundreds of processes would compile what they import, a second each, and rewrite all asserts
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    return made


def folders(home: Path) -> dict[str, str]:
    """Return the variables by which libraries find the folders of a user who lives in `home`."""
    caches = {
        "XDG_CACHE_HOME": ".",  # oclgen, pyopencl, pytools, PoCL, matplotlib, transformers
        "CUDA_CACHE_PATH": "nvidia",  # NVIDIA's OpenCL, too
        "NEO_CACHE_DIR": "neo",  # Intel's for GPUs
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
    }
    own = {
        "HOME": ".",
        "XDG_CONFIG_HOME": ".config",
        "XDG_DATA_HOME": ".local/share",
        "XDG_STATE_HOME": ".local/state",
        "MPLCONFIGDIR": ".config/matplotlib",
    }
    shared = {name: str(CACHE / folder) for name, folder in caches.items()}
    return shared | {name: str(home / folder) for name, folder in own.items()}


def of_worker(*_: object) -> Path:
    """Return a folder of this worker of the run alone."""
    return Path(os.environ[VARIABLE]) / os.environ.get("PYTEST_XDIST_WORKER", "alone")


def leave(made: Path | None) -> None:
    """Remove the folder that `enter` made."""
    if made is not None:
        if (made / SETTINGS.name).exists():  # the link is this run's
            SETTINGS.unlink(missing_ok=True)
        shutil.rmtree(made, ignore_errors=True)
