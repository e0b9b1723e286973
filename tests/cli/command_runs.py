"""Types of the fixtures that run the command; they stand here since `conftest` is many's name."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from click.testing import Result

Run = Callable[..., Result]
Process = Callable[..., subprocess.CompletedProcess[str]]
