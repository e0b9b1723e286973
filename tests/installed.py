"""Says what is installed without importing it: `pytest.importorskip` takes a worker seconds."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def require(*names: str) -> None:
    """Skip the file of tests that calls this unless all packages are installed.

    Args:
        names: packages that only what the file runs imports, often in a process of its own.
    """
    for name in names:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
