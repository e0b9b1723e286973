"""What the time of a variant depends on where the device is a GPU: tiles, steps and work-groups.

`of_groups` estimates a time from them, so that trees learn only what it misses: they know no sizes
and tiles but those of the tables, and an estimate holds for others. Times are added rather than the
longest one taken: what one of them hides of another differs less than the times themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import NamedTuple

from oclgen.families import FAMILIES
from oclgen.limits import Limits
from oclgen.plan import Outline, Plan, ceil_div
from oclgen.predictor.products import CHUNK_BYTES, Grid, Tiled, amounts_of, covered
from oclgen.problem import DTYPES, ConvProblem, Problem
from oclgen.variant import Variant

Features = dict[str, float]
Values = Mapping[str, int | bool | str]
REGISTERS, OTHER_REGISTERS = 65536, 40
"""Registers of a unit, and those of a work-item that hold no result."""
MULTIPLY_ADDS, LOADS = 370.0, 4.0
"""Multiply-adds of fp32 that a unit does in a ns, and the time of a load in that of one of them."""
WITHOUT_TILES = 0.3
"""Part of that rate where no parameters say what a work-item reads: depthwise convolutions."""
MATRIX_UNITS = {"wgmma": 9.0, "mma": 6.0}
"""Multiply-adds of 2 bytes in the time of one of fp32, by instruction; half as many of 4 bytes."""
TILE_BYTES, MEMORY_BYTES = 100.0, 10.0
"""Bytes that a unit reads in a ns: of tiles, most of them from a cache, and of all data."""
UNEVEN = 4.0
"""Time of tiles that work-items copy, where rows are no multiple of 16 bytes, in that of TMA."""
STEP_NS, GROUP_NS, LAUNCH_NS = 300.0, 1300.0, 5000.0
"""Latency of a step of the reduction that no other step hides, begin and end of a work-group, and
of a launch."""
STEP_BYTES = 128
"""Of an operand's row, where no parameter says how long a step is."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a work-group does.

    Attributes:
        multiply_adds: of it, those beyond the edges of the problem among them.
        rate: multiply-adds of a unit in a ns.
        tile_bytes: that it reads.
        steps: of its loop over the reduction.
        ahead: steps that are on their way at once.
        registers: of a work-item.
    """

    multiply_adds: float
    rate: float
    tile_bytes: float
    steps: float = 1.0
    ahead: float = 1.0
    registers: float = OTHER_REGISTERS


def of_groups(
    problem: Problem,
    variant: Variant,
    plan: Plan | Outline,
    grid: Grid,
    bands: tuple[Tiled, ...],
    limits: Limits,
) -> Features:
    """Return the estimated time, log2 of ms, and what it is made of, as parts of it.

    Args:
        problem: what is computed.
        variant: how.
        plan: of the variant.
        grid: of its launch that does the work.
        bands: tiles of the variant: of its rows that launches compute one after the other.
        limits: of the device.
    """
    units = limits.compute_units
    flops, size = amounts_of(problem)
    multiply_adds = flops / 2 * variant.config.multiplied(problem)
    rows = sum(tiles.sizes[0] for tiles in bands)
    spent = []
    for at, tiles in enumerate(bands):
        groups = tiles.groups if at else grid.groups
        share = multiply_adds * tiles.sizes[0] / rows
        work = _work(problem, share / groups, tiles, groups, grid.items)
        spent.append(_spent(work, groups, grid, units))
    first = spent[0]
    ns = {name: sum(one.ns[name] for one in spent) for name in first.ns}
    ns["copies"] = grid.space / units / MEMORY_BYTES
    others = sum(one.turns for one in spent) * GROUP_NS + size / units / MEMORY_BYTES
    total = sum(ns.values()) + others + len(plan.launches) * LAUNCH_NS
    return {
        "estimated time": log2(total * 1e-6),
        "work-groups at once": log2(first.held),
        "steps of a work-group": log2(first.steps),
        **{f"time of {name}": log2(max(each, 1.0) / total) for name, each in ns.items()},
    }


class Spent(NamedTuple):
    """The time of a launch by what takes it, in ns; work-groups are `held` at once, in turns."""

    ns: dict[str, float]
    held: int
    turns: float
    steps: float


def _spent(work: Work, groups: float, grid: Grid, units: int) -> Spent:
    by_registers = int(REGISTERS / grid.items / work.registers)
    held = max(min(grid.resident, by_registers), 1)
    full, rest = divmod(groups, units * held)
    turns, in_turn = full + (rest > 0), full * held + ceil(rest / units)
    ns = {
        "products": in_turn * work.multiply_adds / work.rate,
        "tiles": in_turn * work.tile_bytes / TILE_BYTES,
        "steps": turns * work.steps * STEP_NS / work.ahead,
    }
    return Spent(ns, held, turns, work.steps)


def of_copies(tiles: Tiled) -> Features:
    """Return how many bytes of operands a work-item copies at once."""
    chunks = {f"bytes of a copy of {role}": log2(each) for role, each in tiles.chunks.items()}
    return chunks | ({"bytes of a copy": min(chunks.values())} if chunks else {})


def of_patches(problem: Problem, variant: Variant) -> Features:
    """Return what patches of results waste and reuse, of families of depthwise convolutions."""
    config = variant.config
    if not isinstance(problem, ConvProblem) or not hasattr(config, "patch_w"):
        return {}
    steps = problem.stride_h, problem.stride_w
    taps = problem.kernel_h, problem.kernel_w
    patch = config.patch_h, config.patch_w
    if problem.direction == "bwd_data":  # each phase of the strides has a patch
        sizes = [
            ceil_div(*each) for each in zip((problem.height, problem.width), steps, strict=True)
        ]
        window = [p + ceil_div(t, s) - 1 for p, t, s in zip(patch, taps, steps, strict=True)]
        phases = prod(steps)
    else:
        sizes = [problem.out_h, problem.out_w]
        window = [(p - 1) * s + t for p, t, s in zip(patch, taps, steps, strict=True)]
        phases = 1
    used = prod(size / covered(size, each) for size, each in zip(sizes, patch, strict=True))
    lanes = config.vec_c * config.local_c if problem.layout == "nhwc" else 1
    channels = problem.in_channels
    kept = (prod(window) + prod(patch)) * config.vec_c
    return {
        "used of patches": used,
        "used of channels": channels / covered(channels, lanes),
        "reads of a result": log2(prod(window) / prod(patch) / phases),
        "results of a work-item": log2(prod(patch) * config.vec_c * getattr(config, "rounds", 1)),
        "numbers of a patch": log2(kept),
    }


def least_ms(features: Features) -> float:
    """Return the estimated time in ms, of a variant's features."""
    ms: float = 2.0 ** features["estimated time"]
    return ms


def _work(problem: Problem, multiply_adds: float, tiles: Tiled, groups: float, items: int) -> Work:
    """Return what a work-group does, of whose tiles the problem has these multiply-adds."""
    values, _, tile_m, tile_n = tiles.parameters
    if not tile_m or not tile_n:
        return Work(
            multiply_adds, WITHOUT_TILES * MULTIPLY_ADDS, amounts_of(problem).bytes / groups
        )
    m, n, _, _ = tiles.sizes
    size = DTYPES[problem.dtype]
    depth, results = _depth(values, size), tile_m * tile_n
    steps = tiles.slice
    used = m / covered(m, tile_m) * (n / covered(n, tile_n)) * (steps / covered(steps, depth))
    multiply_adds /= used
    has_tma = "tma" in FAMILIES[tiles.variant.family].TRAITS.instructions
    is_uneven = has_tma and min(tiles.chunks.values(), default=CHUNK_BYTES) < CHUNK_BYTES
    sums = results * int(values.get("local_k", 1)) / items
    return Work(
        multiply_adds,
        _rate(tiles, size, has_tma),
        multiply_adds * (1 / tile_m + 1 / tile_n) * size * (UNEVEN if is_uneven else 1),
        max(multiply_adds / results / depth, 1.0) * _longest(problem),
        _ahead(values),
        OTHER_REGISTERS + sums,
    )


def _longest(problem: Problem) -> float:
    """Return the taps of the phase of a strided gradient that has most, over their mean."""
    if not isinstance(problem, ConvProblem) or problem.direction != "bwd_data":
        return 1.0
    rows = ceil_div(problem.kernel_h, problem.stride_h) * problem.stride_h / problem.kernel_h
    columns = ceil_div(problem.kernel_w, problem.stride_w) * problem.stride_w / problem.kernel_w
    return rows * columns


def _depth(values: Values, size: int) -> int:
    """Return the elements of the reduction in a step."""
    if "tile_k" in values:
        return int(values["tile_k"])
    if "unroll_k" in values or "vec_k" in values:
        vector = max(int(values.get("vec_k", 1)), int(values.get("unroll_k", 1)))
        return vector * int(values.get("local_k", 1))
    return STEP_BYTES // size


def _ahead(values: Values) -> float:
    """Return how many steps of the reduction are on their way at once."""
    if "double_buffer" in values:
        return 1.0 + bool(values["double_buffer"])
    return float(values.get("stages", values.get("buffers", 2)))


def _rate(tiles: Tiled, size: int, has_tma: bool) -> float:
    """Return multiply-adds of a unit in a ns: on matrix units, or beside loads of operands."""
    config, (_, _, tile_m, tile_n) = tiles.variant.config, tiles.parameters
    unit = getattr(config, "unit", "wgmma" if has_tma else "")
    if unit:
        return MULTIPLY_ADDS * MATRIX_UNITS[unit] * 2 / size
    rows = tile_m / getattr(config, "local_m", 1)
    columns = tile_n / getattr(config, "local_n", 1)
    return MULTIPLY_ADDS / (1 + LOADS * (1 / rows + 1 / columns))
