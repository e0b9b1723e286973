"""Devices without records and without instructions of their own, on any machine.

That is what a user of another vendor's GPU meets. With `OCLGEN_UNKNOWN=1` no device has
instructions beyond OpenCL C, and no records come with the package; processes that measure inherit
it. What is tuned then goes into the user's database as ever: give it one of its own.
"""

from __future__ import annotations

import os

VARIABLE = "OCLGEN_UNKNOWN"


def is_pretended() -> bool:
    """Return whether devices are to be taken for unknown ones."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")
