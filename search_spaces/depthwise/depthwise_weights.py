"""What is worth trying for `depthwise_weights`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from dataclasses import replace

from oclgen.families.depthwise import depthwise_weights
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces.depthwise.depthwise import patch_values, patches, pixel_values, widest
from search_spaces.values import Values

GROUPS_PER_UNIT = 8
"""Work-groups that hide each other's latency on a compute unit of a GPU."""


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_weights`."""
    if problem.layout == "nhwc":
        return _pixel_values(problem, limits)
    if limits.kind == "cpu":
        return {**patch_values(problem.out_w, limits), "local_k": (1,), "split": (1, 2, 4, 8)}
    return {
        "patch_h": (1, 2, 4, 7, 8, 14),
        "patch_w": (1, 2, 4),
        "vec": (1, 2, 4),
        "guarded": (True,),
        "local_size": (32, 64, 128, 256),
        "local_k": (1, 32, 64, 128, 256),
        "split": (1, 2, 4, 8, 16, 32, 64),
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[depthwise_weights.Config]:
    """Return start points for `depthwise_weights`, best guess first; some may not be valid."""
    if problem.layout == "nhwc":
        return _pixel_seeds(problem, limits)
    if limits.kind == "cpu":
        return [
            depthwise_weights.Config(*patch, local_k=1, split=1)
            for patch in patches(problem.out_w, limits)
        ]
    # neighbours along a row read neighbours, and enough planes for every unit
    split = 1 << (ceil_div(GROUPS_PER_UNIT * limits.compute_units, problem.groups) - 1).bit_length()
    return [
        depthwise_weights.Config(patch_h, patch_w, patch_w, True, local, local, min(split, most))
        for patch_h, patch_w, local in ((8, 1, 128), (4, 1, 64), (14, 1, 64), (4, 2, 128))
        for most in (64, 8)
    ]


def _pixel_values(problem: ConvProblem, limits: Limits) -> Values:
    shared = {
        **pixel_values(problem, limits),
        "patch_h": (1, 2, 4, 8),
        "patch_w": (1, 2, 4),
        "split": (1, 2, 4, 8, 16, 32, 64, 128),
    }
    if limits.kind == "cpu":
        return {**shared, "local_size": (1,), "local_c": (1,)}
    return {**shared, "local_size": (32, 64, 128, 256, 512), "local_c": (16, 32, 64)}


def _pixel_seeds(problem: ConvProblem, limits: Limits) -> list[depthwise_weights.Config]:
    vec, shapes = widest(problem, limits), ((1, 4), (2, 4), (1, 2), (4, 4))
    if limits.kind == "cpu":
        tried = [(1, split) for split in (8, 2)]
    else:
        # enough planes for every unit
        groups = ceil_div(problem.in_channels, 32 * vec)
        split = 1 << (ceil_div(GROUPS_PER_UNIT * limits.compute_units, groups) - 1).bit_length()
        tried = [(32 * 8, min(split, 128)), (32 * 4, min(split, 64))]
    return [
        replace(
            depthwise_weights.DEFAULT, patch_h=h, patch_w=w, local_size=size, split=split,
            vec_c=vec, local_c=min(size, 32),
        )
        for h, w in shapes
        for size, split in tried
    ]  # fmt: skip
