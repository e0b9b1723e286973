"""What the time of a variant depends on where the device is a processor: registers and caches.

The model of GPUs has none of these features: a work-item there is a lane, not a core. `least_ms`
estimates a time from them, so that trees learn only what it misses: they know no sizes, families
and instructions but those of the tables, and an estimate holds for others.
"""

from __future__ import annotations

from math import log2

from oclgen.families import FAMILIES
from oclgen.limits import Limits
from oclgen.plan import Outline, Plan
from oclgen.predictor.products import amounts_of
from oclgen.problem import Problem
from oclgen.registers import Registers
from oclgen.variant import Variant

Features = dict[str, float]
IN_FLIGHT = 8
"""Multiply-adds of vectors that a core has begun and not ended: two pipelines of four steps."""
VECTORS, WIDE_VECTORS, TILES = 16, 32, 8
"""Registers of a core: vectors of AVX2 and of AVX-512, and tiles of AMX."""
TILE = 2
"""Time of a tile's product over that of a vector's, each in units of what it waits for: its loads
and its latency. A product of tiles takes 16 cycles, to load a tile 8, the latency is 52 (Intel 64
and IA-32 Architectures Optimization Reference Manual, chapter 20)."""
MOST_STEPS = 2.0
"""Of log2 of the steps of a multiply-add that an estimate believes: caches hide what is beyond."""
FLOAT, LINE, PAGE = 4, 64, 4096
"""Bytes."""
SPILLED = 2
"""Accesses to memory per step of a register that is spilled: it is read and written."""
MOST_SPILLED = 32
"""More do not cost more: all sums are in memory."""


def of_sizes(sizes: tuple[float, float, float, int]) -> Features:
    """Return the sizes of the matrices of a product m, n, k, batch, which caches hold or do not."""
    m, n, k, _ = sizes
    return {"items of a": log2(m * k), "items of b": log2(k * n), "items of c": log2(m * n)}


def of_registers(k: float, registers: Registers, limits: Limits) -> Features:
    """Return how the inner loop fills the registers, and what of the operands it reads.

    Args:
        k: steps of the reduction that a work-item adds.
        registers: of the inner loop.
        limits: of the device.
    """
    width = limits.native_float_width
    parts = registers.of_vector(width)
    sums, multiply_adds = registers.sums * parts, registers.multiply_adds * parts
    spare = _registers(registers, limits) - sums - registers.operands * parts
    loads = (registers.vectors * parts + registers.scalars) / multiply_adds
    if registers.of_tiles:
        sums, loads = sums * TILE, loads / TILE
    lanes = registers.lanes(width)
    used = registers.used * lanes / (width * parts)
    step = max(1.0, loads + SPILLED * max(-spare, 0) / multiply_adds, IN_FLIGHT / sums)
    columns = max(registers.operands - 1, 1) * lanes
    rows = max(registers.sums * lanes / columns, 1.0)
    found = {
        "registers to spare": float(max(spare, -MOST_SPILLED)),
        "registers of sums": log2(sums),
        "registers of a vector": log2(lanes / width),
        "loads of a multiply-add": log2(loads),
        "lanes used": used,
        "steps of a multiply-add": log2(step / used),
        "items of a panel": log2(k * columns),
        "items of a strip": log2(k * rows),
        "columns": log2(columns),
        "rows": log2(rows),
    }
    if registers.steps:
        found["steps of the inner loop"] = log2(registers.steps)
    if registers.written:
        found["text of a multiply-add"] = log2(registers.written / registers.multiply_adds)
    if registers.panel_step:
        found["pages of a panel"] = _pages(k, registers.panel_step, columns)
        found["bytes of a panel's lines"] = _lines(k, registers.panel_step, columns)
    if registers.strip_step:
        found["pages of a strip"] = _pages(k, registers.strip_step, rows)
        found["bytes of a strip's lines"] = _lines(k, registers.strip_step, rows)
    return found


def _registers(loop: Registers, limits: Limits) -> int:
    if loop.of_tiles:
        return TILES
    return WIDE_VECTORS if limits.has_32_vectors else VECTORS


def _pages(steps: float, step: int, items: float) -> float:
    """Return log2 of the pages that a work-item reads of an operand, of `items` at each step."""
    if step == 1:  # rows along the reduction
        return log2(max(items, steps * items * FLOAT / PAGE))
    return log2(max(steps * min(step * FLOAT / PAGE, 1.0), 1.0))


def _lines(steps: float, step: int, items: float) -> float:
    """Return log2 of the bytes of the lines of a cache that it reads."""
    of_step = max(items * FLOAT, LINE if step > items else 0)
    return log2(max(steps * of_step, 1.0))


def of_copies(problem: Problem, plan: Plan | Outline) -> Features:
    """Return what is written to workspaces for each operation."""
    written = sum(size for _, size in plan.workspaces)
    return {"copied bytes of an operation": log2((written + 1) / amounts_of(problem).flops)}


def least_ms(
    problem: Problem,
    variant: Variant,
    features: Features,
    limits: Limits,
    rates: tuple[float, float],
) -> float:
    """Return the time in ms of a variant's multiply-adds, and of what it reads, writes and copies.

    The products of Winograd's transformed tiles count, and not the problem's: then what is known of
    kernels of 3x3 holds for 5x5. Times are added rather than the longer one taken, because a
    processor that waits for memory multiplies little.

    Args:
        problem: what is computed.
        variant: how.
        features: of the variant, as `features.of_variant` has them.
        limits: of the device.
        rates: of fp32's multiply-adds in GFLOP/s, and of copies in GB/s.
    """
    gflops, gbytes = rates
    faster = FAMILIES[variant.family].TRAITS.rate(limits)
    steps = min(max(features.get("steps of a multiply-add", 0.0), 0.0), MOST_STEPS)
    flops, size = amounts_of(problem)
    multiplied = flops * variant.config.multiplied(problem) / faster * 2.0**steps
    copied = flops * 2.0 ** features["copied bytes of an operation"]
    ms: float = (multiplied / gflops + (size + copied) / gbytes) * 1e-6
    return ms
