"""Products of few rows with packed weights on matrix units, by `mma.sync` in inline PTX.

Quants of up to 8 bits are exact as fp16 or bf16. So the units multiply quants, and the numbers of a
block multiply the sums. x in fp32 is split into two pieces of fp16, times a power of two for each
row and tile: their sum is x except for its last bit at times. Of x in 16 bits, what quants are too
large by is subtracted from sums. An infinite x gives NaN.

It is not the family for many rows, for which weights would be unpacked again and again.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TypeGuard

from oclgen.families.packed.packed_mma_config import NAME, PAD, Config, tile
from oclgen.families.packed.packed_mma_guesses import guesses
from oclgen.families.packed.packed_rows import arguments
from oclgen.family import Traits
from oclgen.packed_problem import PackedProblem
from oclgen.plan import COUNTERS, Launch, LazyText, Plan, buffer
from oclgen.problem import DTYPES, Problem
from oclgen.render import dtype_preamble, render

__all__ = ["DEFAULT", "NAME", "TRAITS", "Config", "guesses", "plan", "serves", "tile", "units"]

MOST_ROWS = 64
"""Rows up to which reading weights anew for every 8 to 32 rows takes less than unpacking them."""
DEFAULT = Config(blocks_m=1, blocks_n=1, tile_k=256, warps=1, stages=2, unroll=1)
TRAITS = Traits(rank=5, instructions=frozenset({"mma"}))


def serves(problem: Problem) -> TypeGuard[PackedProblem]:
    """Say whether it is a product of few rows with packed weights."""
    return isinstance(problem, PackedProblem) and problem.m <= MOST_ROWS


def units(problem: PackedProblem, config: Config) -> str:
    """Return the text of the matrix units and copies: see `packed_mma_units`."""
    return render(
        "packed_mma_units",
        dtype="bf16" if problem.dtype == "bf16" else "fp16",
        elem_bytes=DTYPES[problem.dtype],
        x_bytes=config.text(problem).items * DTYPES[problem.dtype],
        width=tile(problem, config.tile_k).width,
        bulk_rows=config.tile_n if config.bulk else 0,
        is_split=config.split_k > 1,
    )


def plan(problem: PackedProblem, config: Config) -> Plan:
    """Return the launch of the product."""
    cut, elem_bytes = tile(problem, config.tile_k), DTYPES[problem.dtype]

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            units=units(problem, config),
            text=config.text(problem),
            tile=cut,
            slots=config.slots(problem),
            is_partial=config.bulk > 0 and config.shares * config.tile_k > problem.k,
            tiles_bytes=config.tiles_bytes(problem),
            work_items=config.work_items,
            tile_m=config.tile_m,
            tile_n=config.tile_n,
            is_direct=config.is_direct,
            pad=PAD,
            local_bytes=config.local_bytes(problem),
            elem_bytes=elem_bytes,
            rounds=config.rounds(problem),
            share="share" if config.split_k > 1 else "warp",
            shares=config.shares,
            is_repeated=config.is_repeated(problem),
            most_blocks=config.most_blocks(problem),
            k=problem.k,
            row_bytes=cut.row_bytes,
        )

    groups, rows = config.work_groups(problem)
    is_split = config.split_k > 1
    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(groups * config.work_items, rows, config.split_k),
        local_size=(config.work_items, 1, 1),
        args=(
            *arguments(problem),
            *((*buffer("partials"), *buffer(COUNTERS)) if is_split else ()),
        ),
        local_bytes=config.local_bytes(problem),
    )
    return Plan((launch,), config.workspaces(problem), groups * rows if is_split else 0)
