"""GEMM by `wgmma`: A comes through registers, B by the tensor memory accelerator, both unpacked.

It is not for fp32 that has to be fp32, nor for devices that did not show `oclgen.opencl.probe`
both; `gemm_mma` asks for less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm import gemm_tail as tail
from oclgen.families.gemm.gemm_mma import DTYPES_SERVED
from oclgen.families.gemm.gemm_mma_tiles import Layout, pack
from oclgen.families.gemm.gemm_tiles import lies_along_k, packed_operands
from oclgen.families.parts.blocking import ITEMS_PER_UNIT, fill
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.packing import CHUNK_BYTES, PACK_ROWS, Packing, sizes_of
from oclgen.family import Band, BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import ptx
from oclgen.parameters import Head, Parts, Stages, Tile, Warps
from oclgen.plan import (
    AnyLaunch,
    Launch,
    LazyText,
    Outline,
    Plan,
    Scalar,
    Spread,
    buffer,
    ceil_div,
)
from oclgen.problem import DTYPES, GemmProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "gemm_tma"

GROUP = 128
"""Work-items of four warps, which compute blocks of 64 rows together."""
BLOCK_M, BLOCK_N = 64, 32
MAX_COLUMNS = 256
STEP_BYTES = 64
"""Bytes of k in a step: four lanes read 16 each, which two matrix instructions multiply."""
MAX_REGISTERS = 224
"""32-bit values of C and A per work-item beside which addresses fit in 255 registers."""
MAP_BYTES = 128
BARRIER_BYTES = 12
"""Of a stage: a barrier, and how many warps have read it."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    tile_m: Tile
    tile_n: Tile
    groups: Warps
    ahead: Stages
    stages: Stages
    split_k: Parts
    group_m: Parts
    pack_a: bool
    pack_b: bool
    tail_k: Parts = 1
    head_tiles: Head = 0

    @property
    def work_items(self) -> int:
        """Work-items per work-group."""
        return GROUP * self.groups

    def step(self, problem: GemmProblem) -> int:
        """Elements of k in a step."""
        return STEP_BYTES // DTYPES[problem.dtype]

    def round(self, problem: GemmProblem) -> int:
        """Elements of k in a round of the loop, which uses each register of A once."""
        return self.ahead * self.step(problem)

    def layout(self, problem: GemmProblem, role: str) -> Layout:
        """Return how a tile of b lies in local memory, or how one of a is packed."""
        packed = self.pack_a if role == "a" else self.pack_b
        return Layout(
            tile=self.tile_m if role == "a" else self.tile_n,
            tile_k=self.step(problem),
            elem_bytes=DTYPES[problem.dtype],
            along_k=packed or lies_along_k(problem, role),
            packed=packed,
            by_words=False,
        )

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return the operands that are repacked first, by role."""
        chosen = {"a": self.pack_a * self.tile_m, "b": self.pack_b * self.tile_n}
        return packed_operands(problem, self.step(problem), **chosen)

    def local_bytes(self, problem: GemmProblem) -> int:
        """Bytes of local memory: B's tiles of all stages, their barriers, and a map."""
        return self.stages * (self.layout(problem, "b").bytes + BARRIER_BYTES) + MAP_BYTES

    def with_best_split(self, problem: GemmProblem, limits: Limits) -> Config:
        """Return this config with the slices of k that `problem` wants, or with a tail.

        A group fills a unit.
        """
        if self.tail_k > 1 and (tailed := self.with_tail(problem, limits)).tail_k > 1:
            return tailed
        step = self.round(problem)
        split = fill(problem, limits, self.tile_m, self.tile_n, step, ITEMS_PER_UNIT)
        return replace(self, split_k=split, tail_k=1, head_tiles=0)

    def with_tail(self, problem: GemmProblem, limits: Limits) -> Config:
        """Return this config, its slices of k replaced by the tail that `problem` wants, if any."""
        last = tail.wanted(problem, limits, self.tile_m, self.tile_n, self.round(problem))
        return replace(self, split_k=1, tail_k=last.tail_k, head_tiles=last.head_tiles)

    def bands(self, problem: GemmProblem) -> tuple[Band, ...]:
        """Return head and tail."""
        return tail.bands_of(problem, self)

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return (
            limits.why_no("wgmma")
            or limits.why_no("tma")
            or tail.conflict(problem, self, self.round(problem))
            or self._block_conflict()
            or self._register_conflict()
            or self._layout_conflict(problem)
            or parts.empty_slice(problem.k, self.split_k, self.round(problem))
        )

    def _block_conflict(self) -> str | None:
        if self.tile_m % (BLOCK_M * self.groups) or not self.tile_m:
            return (
                f"groups={self.groups} take blocks of {BLOCK_M} rows each, which "
                f"tile_m={self.tile_m} does not divide into"
            )
        if self.tile_n % BLOCK_N or not 0 < self.tile_n <= MAX_COLUMNS:
            return f"tile_n={self.tile_n} is no multiple of {BLOCK_N} up to {MAX_COLUMNS}"
        if not 0 < self.ahead < self.stages:
            return f"ahead={self.ahead} steps at a time leave stages={self.stages} none to copy"
        return None

    def _register_conflict(self) -> str | None:
        rows = self.tile_m // self.groups
        accumulators = rows * self.tile_n // GROUP
        # A as it is read for the next round, and as wgmma reads it in this one
        operands = 2 * self.ahead * rows * STEP_BYTES // 4 // GROUP
        if accumulators + operands <= MAX_REGISTERS:
            return None
        return (
            f"{rows} x {self.tile_n} of C and {self.ahead} steps of A are {accumulators} + "
            f"{operands} values per work-item; at most {MAX_REGISTERS} fit"
        )

    def _layout_conflict(self, problem: GemmProblem) -> str | None:
        if problem.trans_a and not self.pack_a:
            return "A is read along k; it does not lie so. Use pack_a"
        if self.pack_a and self.tile_m % PACK_ROWS:
            return f"pack_a packs {PACK_ROWS} rows at a time; the tile has {self.tile_m}"
        if self.pack_b and self.tile_n % PACK_ROWS:
            return f"pack_b packs {PACK_ROWS} columns at a time; the tile has {self.tile_n}"
        layout = self.layout(problem, "b")
        if layout.along_k:
            return None
        if problem.dtype == "tf32":
            return "wgmma reads tf32 along k alone; B does not lie so. Use pack_b"
        if self.tile_n % layout.panel:
            return f"tile_n={self.tile_n} does not divide into panels of {layout.panel}"
        return None

    def spread(self, problem: GemmProblem, rows: tail.Rows) -> Spread:
        """Return the sizes of a launch of the product."""
        sizes = self.tiles(problem, rows) * self.work_items, 1, problem.batch * rows.slices
        return Spread(NAME, sizes, (self.work_items, 1, 1), self.local_bytes(problem))

    def workspaces(self, problem: GemmProblem) -> tuple[tuple[str, int], ...]:
        """Return role and bytes of packed operands, of descriptions of B, and of planes."""
        spaces = sizes_of(self.packed(problem).values())
        if not self.pack_b:
            each = (self.tiles(problem, r) * r.slices for r in tail.rows_of(problem, self))
            spaces = (*spaces, ("maps", MAP_BYTES * problem.batch * max(each)))
        return (*spaces, *tail.space(problem, self))

    def outline(self, problem: GemmProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        launches = _around(problem, self, lambda rows: self.spread(problem, rows))
        return Outline(launches, self.workspaces(problem))

    def tiles(self, problem: GemmProblem, rows: tail.Rows) -> int:
        """Return the tiles of C of these rows of a batch item."""
        return ceil_div(rows.end - rows.first, self.tile_m) * ceil_div(problem.n, self.tile_n)


DEFAULT = Config(
    tile_m=64, tile_n=64, groups=1, ahead=2, stages=4, split_k=1, group_m=8, pack_a=True,
    pack_b=True,
)  # fmt: skip
TRAITS = Traits(rank=20, instructions=frozenset({"tma", "wgmma"}), packing=DEFAULT)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype in DTYPES_SERVED


def guesses(problem: GemmProblem, limits: Limits) -> Iterator[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    The larger the tile, the less of the cache's bandwidth it needs, which is what runs out first.
    """
    if not {"wgmma", "tma"} <= limits.instructions:
        return iter(())
    shapes = (
        (256, 128, 2, 2, 5), (128, 128, 1, 2, 5), (128, 64, 1, 2, 8), (64, 128, 1, 2, 5),
        (64, 64, 1, 2, 8),
    )  # fmt: skip
    guessed = (
        Config(
            tile_m=tile_m, tile_n=tile_n, groups=groups, ahead=ahead, stages=stages,
            split_k=1, group_m=8, pack_a=packs_a(problem), pack_b=packs_b(problem),
        ).with_best_split(problem, limits)
        for tile_m, tile_n, groups, ahead, stages in shapes
        if tile_m < 2 * problem.m or tile_m == 64
    )  # fmt: skip
    return tail.with_tails(guessed, problem, limits)


def packs_a(problem: GemmProblem) -> bool:
    """Say whether the kernel reads A fast only when it is packed: across k, or not aligned."""
    return problem.trans_a or problem.k * DTYPES[problem.dtype] % 16 != 0


def packs_b(problem: GemmProblem) -> bool:
    """Say the same of B; tf32 is read along k alone."""
    row = problem.k if problem.trans_b else problem.n
    across = problem.dtype == "tf32" and not problem.trans_b
    return across or row * DTYPES[problem.dtype] % 16 != 0


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the repacking of operands, the product, and the sum of planes where k is split."""
    launches = _around(problem, config, lambda rows: _product(problem, config, rows))
    return Plan(launches, config.workspaces(problem))


def _around(
    problem: GemmProblem, config: Config, product: Callable[[tail.Rows], AnyLaunch]
) -> tuple[Launch | AnyLaunch, ...]:
    """Return the launches that pack, those of the product, and the sum behind each of these."""
    packs = [
        pack(tiles, config.layout(problem, role), swizzled=role == "b")
        for role, tiles in config.packed(problem).items()
    ]
    return *packs, *tail.products(problem, config, product)


def _product(problem: GemmProblem, config: Config, rows: tail.Rows) -> Launch:
    operands = {role: tiles.argument() for role, tiles in config.packed(problem).items()}
    arguments = tail.arguments(problem, rows, config.round(problem), operands)
    maps = () if config.pack_b else (*buffer("maps"), Scalar(problem.batch))
    text = LazyText(lambda: ptx.with_target(_source(problem, config, rows), "sm_90a"))
    return config.spread(problem, rows).launch(text, (*arguments, *maps))


def _source(problem: GemmProblem, config: Config, rows: tail.Rows) -> str:
    split = rows.slices > 1
    shared: dict[str, Any] = {
        "dtype": problem.dtype,
        "b": config.layout(problem, "b"),
        "tile_n": config.tile_n,
        "tile_k": config.step(problem),
        "chunk": CHUNK_BYTES // DTYPES[problem.dtype],
        "items": config.work_items,
        "pairs": split or problem.dtype == "tf32",
        "c_type": "float" if split else "elem_t",
        **epilogue(problem, split=split),
    }
    return render(
        NAME,
        **shared,
        functions=render(f"{NAME}_functions", **shared),
        preamble=f"{dtype_preamble(problem.dtype)}\n{parts.ALIGNED}",
        elem_bytes=DTYPES[problem.dtype],
        tile_m=config.tile_m,
        groups=config.groups,
        ahead=config.ahead,
        stages=config.stages,
        split_k=rows.slices,
        tail=rows.first > 0,
        group_m=config.group_m,
        pack_a=config.pack_a,
        edge_m=problem.m % config.tile_m != 0,
        edge_n=problem.n % config.tile_n != 0,
        edge_k=problem.k % config.round(problem) != 0,
    )
