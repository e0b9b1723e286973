"""What a time depends on, as numbers: features of problem, variant, and its plan on a device.

Sizes are logarithms to base 2, so that a factor is a difference. What a family does not have is
missing, not zero. Nothing is measured here, and no text of a kernel is rendered.
"""

from __future__ import annotations

from math import ceil, log2, prod

from oclgen.limits import Limits
from oclgen.opencl.probe import TILES
from oclgen.plan import Launch, Plan
from oclgen.predictor import gpus
from oclgen.predictor.processors import of_copies, of_registers, of_sizes
from oclgen.predictor.products import (
    Tiled,
    amounts_of,
    covered,
    is_predicted,
    product_of,
    tile_of,
    tiled,
)
from oclgen.problem import DTYPES, ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant

Features = dict[str, float]
SMALLEST = 1e-9
"""Replaces zero in a logarithm."""
EVEN = 3.0
"""What `_evenness` says of rows of 8 items, 16 bytes of half precision."""
ALIGNED = 8
"""Items of a row that vectors load at once: other sizes leave edges."""


def of_variant(problem: Problem, variant: Variant, limits: Limits) -> Features:
    """Return what the variant and its plan add to `of_problem`, by name.

    Args:
        problem: what is computed.
        variant: how.
        limits: of the device.

    Raises:
        Exception: whatever a family raises for a config that is not valid.
    """
    plan = variant.plan(problem)
    if limits.kind == "cpu":
        return _on_processor(problem, variant, plan, limits)
    tiles, main = tiled(problem, variant), _main(plan)
    values = tiles.values if tiles.variant is variant else tiles.values | variant.values()
    return {
        **{f"config {name}": _number(value) for name, value in values.items()},
        **_of_plan(problem, plan, main, limits),
        **_of_tiles(tiles, main, limits),
        **gpus.of_groups(problem, variant, plan, main, tiles, limits),
        **gpus.of_copies(tiles),
        **gpus.of_patches(problem, variant),
        **_of_rows(problem, variant),
    }


def _on_processor(problem: Problem, variant: Variant, plan: Plan, limits: Limits) -> Features:
    """Return the same for a processor: by the product that is computed, with registers."""
    values, main = variant.values(), _main(plan)
    computed = variant.config.computed(problem)
    sizes = product_of(computed)
    registers = variant.config.in_registers(problem)
    # `out_tile` are pixels; the model was made without the tiles of `gemm_columns`
    is_tiled = "out_tile" not in values and ("tile_n" in values or "item_n" in values)
    tile = tile_of(variant.config) if is_tiled else (0, 0)
    found = {
        **{f"config {name}": _number(value) for name, value in values.items()},
        **_of_plan(problem, plan, main, limits),
        **_of_tiles(Tiled(sizes, variant, values, *tile, {}), main, limits),
        **of_sizes(sizes),
        **of_copies(problem, plan),
    }
    if registers is not None:
        slices = max(int(values.get("split_k", values.get("split", 1))), 1)
        found |= of_registers(sizes[2] / slices, registers, limits)
    if computed is not problem:
        found |= _of_product(computed) | _of_sizes(sizes)
    return found | _of_rows(computed, variant)


def of_problem(problem: Problem, limits: Limits) -> Features:
    """Return what the problem alone tells, once for all of its variants.

    Problems that are not predicted have no features.
    """
    assert is_predicted(problem), problem.key()
    sizes = m, n, _, batch = product_of(problem)
    units = limits.compute_units
    shared = {
        **_of_sizes(sizes),
        "results of a unit": _log(m * n * batch / units),
        "operations of a unit": _log(problem.flops / units),
        "bytes of a unit": _log(problem.bytes / units),
        "operations per byte": _log(problem.flops / problem.bytes),
        "bytes of an item": float(DTYPES[problem.dtype]),
        "is tf32": float(problem.dtype == "tf32"),
        "is product": float(isinstance(problem, GemmProblem)),
        "units": _log(units),
        "vector width": _log(limits.native_float_width),
        "has tiles": float(TILES in limits.instructions),
    }  # fmt: skip
    return shared | (
        _of_product(problem) if isinstance(problem, GemmProblem) else _of_conv(problem)
    )


def _of_sizes(sizes: tuple[float, float, float, int]) -> Features:
    return {name: _log(size) for name, size in zip(("m", "n", "k", "batch"), sizes, strict=True)}


def _of_product(problem: GemmProblem) -> Features:
    return {
        "a lies along m": float(problem.trans_a),
        "b lies along k": float(problem.trans_b),
        "m has an edge": float(problem.m % ALIGNED != 0),
        "n has an edge": float(problem.n % ALIGNED != 0),
        "k has an edge": float(problem.k % ALIGNED != 0),
        "rows of a lie apart": _evenness(problem.m if problem.trans_a else problem.k),
        "rows of b lie apart": _evenness(problem.k if problem.trans_b else problem.n),
    }


def _of_rows(problem: Problem, variant: Variant) -> Features:
    """Return what replaces the features of rows that a family copies whatever their length."""
    if not isinstance(problem, GemmProblem):
        return {}
    lengths = {"a": "m" if problem.trans_a else "k", "b": "k" if problem.trans_b else "n"}
    roles = variant.config.evened(problem)
    rows = {f"rows of {role} lie apart": EVEN for role in roles}
    return rows | {f"{lengths[role]} has an edge": 0.0 for role in roles}


def _of_conv(problem: ConvProblem) -> Features:
    inputs = problem.in_channels // problem.groups
    return {
        "direction": float(("fwd", "bwd_data", "bwd_weights").index(problem.direction)),
        "is channels_last": float(problem.layout == "nhwc"),
        "is depthwise": float(1 < problem.groups == problem.in_channels),
        "is strided": float(problem.stride_h * problem.stride_w > 1),
        "is dilated": float(problem.dilation_h * problem.dilation_w > 1),
        "taps": _log(problem.kernel_h * problem.kernel_w),
        "in_channels of a group": _log(inputs),
        "out_channels of a group": _log(problem.out_channels // problem.groups),
        "pixels of an image": _log(problem.out_h * problem.out_w),
        "images": _log(problem.batch),
        "channels have an edge": float(inputs % ALIGNED != 0),
        "planes lie apart": _evenness(problem.height * problem.width),
    }


def _of_plan(problem: Problem, plan: Plan, main: Launch, limits: Limits) -> Features:
    flops, size = amounts_of(problem)
    items = prod(main.local_size)
    groups = prod(main.global_size) / items
    units = limits.compute_units
    resident = gpus.resident(items, main.local_bytes, limits)
    rounds = groups / (units * resident)
    return {
        "launches": float(len(plan.launches)),
        "work-items": _log(items),
        "work-groups of a unit": _log(groups / units),
        "part of the last round": groups / units / ceil(groups / units),
        "full rounds": _log(rounds),
        "part of the last full round": rounds / ceil(rounds),
        "local memory": _log(main.local_bytes + 1),
        "work-items in flight": _log(min(groups * items / units, resident * items)),
        "operations of a work-item": _log(flops / (groups * items)),
        "operations of a work-group": _log(flops / groups),
        "workspaces over data": _log((sum(each for _, each in plan.workspaces) + 1) / size),
        "counters": float(plan.counters > 0),
    }


def _of_tiles(tiles: Tiled, main: Launch, limits: Limits) -> Features:
    """Return what tiles of results waste and reuse, of families whose parameters say so."""
    m, n, _, _ = tiles.sizes
    tile_m, tile_n = tiles.tile_m, tiles.tile_n
    if not tile_m or not tile_n:
        return {}
    wasted = (m / covered(m, tile_m), n / covered(n, tile_n))
    accumulators = tile_m * tile_n / prod(main.local_size)
    return {
        "used of m": wasted[0],
        "used of n": wasted[1],
        "used of tiles": wasted[0] * wasted[1],
        "reuse of a tile": _log(tile_m * tile_n / (tile_m + tile_n)),
        "accumulators": _log(accumulators),
        "vectors of accumulators": _log(accumulators / limits.native_float_width),
        "steps of a slice": _log(tiles.slice),
        "panel of b": _log(tiles.slice * tile_n),
    }


def _main(plan: Plan) -> Launch:
    """Return the launch that does the work: of those with most local memory the last of most items.

    Packing comes before it and sums come after it, with fewer work-items or less local memory.
    """
    return max(plan.launches, key=lambda one: (one.local_bytes, prod(one.global_size)))


def _evenness(items: int) -> float:
    """Return the power of two that divides a distance: large ones share few sets of a cache."""
    return float((items & -items).bit_length() - 1)


def _log(value: float) -> float:
    return log2(max(value, SMALLEST))


def _number(value: int | bool | str) -> float:
    """Return a parameter's value as a number; of a text the first letter tells it from others."""
    if isinstance(value, str):
        return float(ord(value[0]))
    return float(value) if isinstance(value, bool) or value <= 0 else log2(value)
