"""Decides in which of two layouts a convolution is faster; `tuned` chooses a variant within one."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ocl_backend.dispatch import tuned, varying
from oclgen.families import FAMILIES
from oclgen.families.parts.strided_weights import STRIDES
from oclgen.limits import Limits
from oclgen.predictor.model import LAUNCH_MS, has_model, rates_of
from oclgen.problem import DTYPES, ConvProblem
from oclgen.variant import Variant
from tuned_db import Choice, NoVariantError
from tuned_db.choosing.choice import Rung

RELATED: tuple[Rung, ...] = ("architecture", "shipped")
"""Rungs of other devices' records."""
PREDICTED: frozenset[Rung] = frozenset({*RELATED, "guess"})
"""Rungs of what a processor's model ranks in either layout: nothing of it was measured there."""

DOUBT = 1.15
"""What a predicted time must leave for its error: copies of images are certain to take theirs."""


def better_known(device: int, first: ConvProblem, second: ConvProblem) -> ConvProblem:
    """Return the convolution that is served by what is known better: `first` if both are as good.

    Only one of them may have been raced, so that what races showed does not count. Of two layouts
    this is the one that was tuned or, where times are predicted, that is expected to be clearly
    faster, copies of the images included. What a record of another device says of `second` is said
    of `first`, too, if its variant serves both: then the times decide. On processors they always
    do: depthwise layers in channels_last took 2.1 ms by a record for planes, and 0.22 in place.

    Args:
        device: its index.
        first: in the layout that the images have.
        second: the same in the other layout; is returned if no family serves `first`.
    """
    try:
        met = [varying.typical(tuned.as_met(device, one)) for one in (first, second)]
        found = [tuned.chooser(device).choose(one) for one in met]
    except NoVariantError:
        return second
    made, other = (one.beaten or one for one in found)
    limits = tuned.chooser(device).limits
    first_step, (step, cost) = made.step, other.order
    are_times = has_model(met[1], limits)  # without one, costs are distances
    if are_times and limits.kind == "cpu" and {made.rung, other.rung} <= PREDICTED:
        first_step = step = max(first_step, step)
    elif first_step > step and other.ms is None and _serves(other, met[0], limits):
        step = first_step
    if are_times:
        roles = copied(met[1], other.variant)
        copying = _copying_ms(met[1], roles, limits)
        cost = cost * (DOUBT if other.ms is None else 1.0) + copying
    return first if (first_step, made.cost) <= (step, cost) else second


def is_for_matrix_units(device: int, dtype: str) -> bool:
    """Say whether a GPU's matrix units multiply the dtype."""
    instructions = tuned.chooser(device).limits.instructions
    return dtype != "fp32" and not {"mma", "wgmma"}.isdisjoint(instructions)


def is_for_tiles(device: int, dtype: str) -> bool:
    """Say whether a processor's tile registers multiply the dtype."""
    from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS  # 4 ms, where half precision is met

    return PRODUCTS.get(dtype) in tuned.chooser(device).limits.instructions


def suits_pixels(device: int, problem: ConvProblem) -> bool:
    """Say whether a convolution in planes may be slower than in channels_last with copies."""
    return (
        _leaves_lanes(device, problem)
        or _sums_blocks(device, problem)
        or (_scatters(problem) and is_for_matrix_units(device, problem.dtype))
    )


def _scatters(problem: ConvProblem) -> bool:
    """Say whether each phase of the results takes every second pixel, or less, of many channels."""
    strided = max(problem.stride_h, problem.stride_w) > 1
    is_depthwise = problem.groups == problem.in_channels
    return problem.direction == "bwd_data" and strided and not is_depthwise


def _leaves_lanes(device: int, problem: ConvProblem) -> bool:
    """Say whether rows of a depthwise layer's results fill no half of a processor's vectors.

    So it is in planes. In channels_last lanes are channels, however short rows are.
    """
    limits = tuned.chooser(device).limits
    rows = {"fwd": problem.out_w, "bwd_data": problem.width}
    row = rows.get(problem.direction, limits.native_float_width)
    is_depthwise = 1 < problem.groups == problem.in_channels
    return limits.kind == "cpu" and is_depthwise and 2 * row <= limits.native_float_width


def _sums_blocks(device: int, problem: ConvProblem) -> bool:
    """Say whether a processor has blocks of Winograd's sums for a gradient, with channels as lanes.

    Planes cost such lanes a transpose, which copies do for all blocks at once.
    """
    limits = tuned.chooser(device).limits
    if limits.kind != "cpu":
        return False
    from oclgen.families.conv.conv_pixels_weights import is_multiplied  # 12 ms, for a gradient

    if is_multiplied(problem.dtype, limits):
        return False
    return FAMILIES["winograd_blocked_weights"].serves(replace(problem, layout="nhwc"))


def _serves(choice: Choice, problem: ConvProblem, limits: Limits) -> bool:
    return choice.rung in RELATED and choice.variant.why_not(problem, limits) is None


def copied(problem: ConvProblem, variant: Variant) -> str:
    """Return the roles of what is copied if images, and a gradient of weights, lie otherwise.

    The gradient is not where its variant stores to any strides, or where there is but one tap.
    """
    has_taps = problem.kernel_h * problem.kernel_w > 1
    if problem.direction != "bwd_weights" or not has_taps:
        return "xy"
    return "xy" if variant.plan(problem).replaceable >= {*STRIDES} else "xyw"


def _copying_ms(problem: ConvProblem, roles: str, limits: Limits) -> float:
    """Return the time in ms of copies of such tensors."""
    _, gbytes = rates_of(limits)
    items = sum(prod(problem.buffers[role]) for role in roles)
    return len(roles) * LAUNCH_MS + 2 * items * DTYPES[problem.dtype] / gbytes * 1e-6
