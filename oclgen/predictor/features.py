"""What a time depends on, as numbers: features of problem, variant, and its plan on a device.

Sizes are logarithms to base 2, so that a factor is a difference. What a family does not have is
missing, not zero. Nothing is measured here, and no text of a kernel is rendered.
"""

from __future__ import annotations

from math import ceil, log2

from oclgen.limits import Limits
from oclgen.opencl.probe import TILES
from oclgen.plan import Outline, Plan
from oclgen.predictor import gpus
from oclgen.predictor.processors import of_copies, of_registers, of_sizes
from oclgen.predictor.products import (
    Grid,
    Tiled,
    amounts_of,
    covered,
    grid_of,
    is_predicted,
    parameters_of,
    product_of,
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
    plan = variant.outline(problem)
    grid = grid_of(plan, limits)
    if limits.kind == "cpu":
        return _on_processor(problem, variant, plan, grid, limits)
    tiles = tiled(problem, variant)
    bands = tuple(
        tiles.band(*each) for each in variant.config.bands(variant.config.computed(problem))
    )
    if bands:  # the first has most of the work
        grid = grid._replace(groups=bands[0].groups)
    found = {
        **tiles.parameters.numbers,
        **_of_plan(problem, plan, grid, limits),
        **_of_tiles(tiles, grid, limits),
        **gpus.of_groups(problem, variant, plan, grid, bands or (tiles,), limits),
        **gpus.of_copies(tiles),
        **gpus.of_patches(problem, variant),
        **_of_rows(problem, variant),
    }
    return found if tiles.variant is variant else found | parameters_of(variant).numbers


def _on_processor(
    problem: Problem, variant: Variant, plan: Plan | Outline, grid: Grid, limits: Limits
) -> Features:
    """Return the same for a processor: by the product that is computed, with registers."""
    known = parameters_of(variant)
    values = known.values
    computed = variant.config.computed(problem)
    sizes = product_of(computed)
    registers = variant.config.in_registers(problem)
    # `out_tile` are pixels; the model was made without the tiles of `gemm_columns`
    if "out_tile" in values or ("tile_n" not in values and "item_n" not in values):
        known = known._replace(tile_m=0, tile_n=0)
    if "unroll_k" in values and values.get("pack_b"):  # nor did its guesses write steps out
        known = known._replace(numbers=known.numbers | {"config unroll_k": 0.0})
    found = {
        **known.numbers,
        **_of_plan(problem, plan, grid, limits),
        **_of_tiles(Tiled(sizes, variant, known, known.slices, {}), grid, limits),
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


def _of_plan(problem: Problem, plan: Plan | Outline, grid: Grid, limits: Limits) -> Features:
    flops, size = amounts_of(problem)
    main, items, groups, resident, space = grid
    units = limits.compute_units
    of_unit, rounds = groups / units, groups / (units * resident)
    return {
        "launches": float(len(plan.launches)),
        "work-items": log2(items),
        "work-groups of a unit": log2(of_unit),
        "part of the last round": of_unit / ceil(of_unit),
        "full rounds": log2(rounds),
        "part of the last full round": rounds / ceil(rounds),
        "local memory": log2(main.local_bytes + 1),
        "work-items in flight": log2(min(groups * items / units, resident * items)),
        "operations of a work-item": log2(flops / (groups * items)),
        "operations of a work-group": log2(flops / groups),
        "workspaces over data": log2((space + 1) / size),
        "counters": float(plan.counters > 0),
    }


def _of_tiles(tiles: Tiled, grid: Grid, limits: Limits) -> Features:
    """Return what tiles of results waste and reuse, of families whose parameters say so."""
    m, n, _, _ = tiles.sizes
    _, _, tile_m, tile_n = tiles.parameters
    if not tile_m or not tile_n:
        return {}
    used_m, used_n = m / covered(m, tile_m), n / covered(n, tile_n)
    accumulators, steps = tile_m * tile_n / grid.items, tiles.slice
    return {
        "used of m": used_m,
        "used of n": used_n,
        "used of tiles": used_m * used_n,
        "reuse of a tile": log2(tile_m * tile_n / (tile_m + tile_n)),
        "accumulators": log2(accumulators),
        "vectors of accumulators": log2(accumulators / limits.native_float_width),
        "steps of a slice": log2(steps),
        "panel of b": log2(steps * tile_n),
    }


def _evenness(items: int) -> float:
    """Return the power of two that divides a distance: large ones share few sets of a cache."""
    return float((items & -items).bit_length() - 1)


def _log(value: float) -> float:
    return log2(max(value, SMALLEST))
