"""Whether a variant can serve a problem on a device; a rule that fails says no.

A record from elsewhere may hold any numbers, and a family's rule need not have thought of them.
"""

from __future__ import annotations

from typing import Any

from oclgen.families import FAMILIES
from oclgen.limits import Limits
from oclgen.problem import Problem


def why_not(problem: Problem, family: str, config: Any, limits: Limits) -> str | None:
    """Return why a family's `Config` cannot serve `problem` on such a device; None if it can."""
    try:
        if not FAMILIES[family].serves(problem):
            return f"{family} does not compute {problem.key()}"
        reason: str | None = config.why_not(problem, limits)
    except Exception as error:  # any arithmetic with any numbers
        return f"the rule of {family} fails: {error!r}"
    return reason
