"""What is worth trying for `depthwise_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.depthwise.depthwise_weights import ALL_ROWS
from oclgen.families.depthwise.guessed import weight_patches
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.depthwise.depthwise import patch_values, pixel_values, row_values
from search_spaces.values import Value, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_weights`."""
    tap_rows = (ALL_ROWS, *(rows for rows in (1, 2, 3, 4, 6) if rows < problem.kernel_h))
    if problem.layout == "nhwc":
        return {**_pixel_values(problem, limits), "tap_rows": tap_rows}
    if limits.kind == "cpu":
        patches = patch_values(problem.out_w, limits)
        return {**patches, "local_k": (1,), "split": (1, 2, 4, 8), "tap_rows": tap_rows}
    return {
        "patch_h": (1, 2, 4, 7, 8, 14),
        "patch_w": (1, 2, 4),
        "vec": (1, 2, 4),
        "guarded": (True,),
        "local_size": (32, 64, 128, 256),
        "local_k": (1, 32, 64, 128, 256),
        "split": (1, 2, 4, 8, 16, 32, 64),
        "tap_rows": tap_rows,
    }


def _pixel_values(problem: ConvProblem, limits: Limits) -> dict[str, tuple[Value, ...]]:
    split = (1, 2, 4, 8, 16, 32, 64, 128)
    if limits.kind == "cpu":
        guessed = weight_patches(problem)
        rows = row_values(problem, limits, [patch[:2] for patch in guessed])
        return {**rows, "local_size": (1,), "local_c": (1,), "split": split}
    return {
        **pixel_values(problem, limits),
        "patch_h": (1, 2, 4, 8),
        "patch_w": (1, 2, 4),
        "split": split,
        "local_size": (32, 64, 128, 256, 512),
        "local_c": (16, 32, 64),
    }
