"""Checks claims of others once on a device before they serve, in processes that may crash.

`oclgen.measuring.quick_check` does the check, and the store keeps its result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress

from oclgen.measuring.quick_check import Checker
from oclgen.opencl.device import Device
from tuned_db import Choice, DatabaseError
from tuned_db.choosing.remembered_winners import RememberedWinners
from tuned_db.records.digests import digest_of


def checking(store: RememberedWinners, device: Device) -> Callable[[Choice], str]:
    """Return a function that says why a claim must not serve on `device`, "" if it may, and warns.

    Results that do not depend on the moment are kept in `store`.
    """
    checker = Checker(device.index, device.info)

    def check(choice: Choice) -> str:
        reason, holds = checker.check(choice.problem, choice.variant, choice.ms)
        digest = digest_of(choice.problem, choice.variant)
        if holds and digest is not None:
            with suppress(DatabaseError):  # what cannot be kept is checked again
                store.note_check(device.info, digest, reason)
        if reason:
            warnings.warn(
                f"{choice.problem.key()}: {choice.variant.family} of rung {choice.source!r} does "
                f"not serve. {reason}",
                stacklevel=2,
            )
        return reason

    return check
