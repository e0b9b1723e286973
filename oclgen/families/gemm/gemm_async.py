"""GEMM in fp32 whose tiles come by `cp.async`, on GPUs that have it; of tf32 it rounds nothing.

It is `gemm_staged` without the registers that hold a tile on its way, which leaves them to larger
blocks of C; other dtypes have to be widened on the way and stay there. Few tiles, as of skinny
products, still fill a GPU when work-groups share them: slices of k of each tile, or equal parts
of the steps of several, laid end to end (Stream-K, Osama et al. 2023). The work-group that ends
last adds the sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import chain, product
from typing import Annotated, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_async_shapes import Shape, is_filled, narrow, usual
from oclgen.families.gemm.gemm_async_text import Text
from oclgen.families.gemm.gemm_tiles import lies_along_k, packed_operands
from oclgen.families.parts.blocking import fill
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.packing import Packing, pack_tiles, sizes_of
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Local, Pad, Parts, Range, Stages, Tile, Warps
from oclgen.plan import (
    COUNTERS,
    Arg,
    Launch,
    LazyText,
    Outline,
    Plan,
    Scalar,
    Spread,
    buffer,
    ceil_div,
)
from oclgen.problem import GemmProblem, Problem
from oclgen.render import render

NAME = "gemm_async"

WARP = 32
"""Rows, and steps of k, that a work-group turns."""
MAX_ACCUMULATORS = 128
"""Private floats per work-item beside which the operands still fit in 255 registers."""
REGISTERS = 65536
"""What a work-group shares on every GPU that has `cp.async`."""
FLAG_BYTES = 4
"""Local memory in which a work-group notes how many came before it."""
INT_MAX = 2**31 - 1
SHARING_GUESSES = 2
"""Guesses that are also made with all tiles shared by the work-groups."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE
    RAGGED = True
    SLICES = "split_k"

    tile_m: Tile
    tile_n: Tile
    tile_k: Tile
    local_m: Local
    local_n: Local
    warp_m: Warps
    pad_a: Pad
    pad_b: Pad
    stages: Stages
    split_k: Parts
    group_m: Parts
    pack_a: bool
    pack_b: bool
    local_k: Local = 1
    order: str = "m"
    groups: Annotated[int, Range(0, 1 << 16)] = 0

    @property
    def item_m(self) -> int:
        """Rows of C per work-item."""
        return self.tile_m // self.local_m

    @property
    def item_n(self) -> int:
        """Columns of C per work-item."""
        return self.tile_n // self.local_n

    @property
    def work_items(self) -> int:
        """Work-items per group: local_m x local_n for each of local_k slices."""
        return self.local_m * self.local_n * self.local_k

    @property
    def sum_rows(self) -> int:
        """Rows of a work-item that slices exchange at a time; 0 if local memory holds not one."""
        row = 4 * self.work_items * self.item_n
        fits = (count for count in range(self.item_m, 0, -1) if self.item_m % count == 0)
        return next((count for count in fits if count * row <= self.local_bytes), 0)

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory: the padded tiles of all stages."""
        return 4 * self.stages * self.tile_k * (self.tile_m + self.pad_a + self.tile_n + self.pad_b)

    @property
    def shared(self) -> bool:
        """Whether work-groups share tiles."""
        return self.split_k > 1 or self.groups > 0

    def tiles(self, problem: GemmProblem) -> int:
        """Return the tiles of C, those of all batch items."""
        rows, columns = ceil_div(problem.m, self.tile_m), ceil_div(problem.n, self.tile_n)
        return problem.batch * rows * columns

    def counters(self, problem: GemmProblem) -> int:
        """Return how many tiles work-groups may share: all, or less than two for each group."""
        return self.shared * min(self.tiles(problem), 2 * self.groups or INT_MAX)

    def partials_bytes(self, problem: GemmProblem) -> int:
        """Return the bytes of tiles' partial sums: a tile for each slice, or two for each group."""
        count = 2 * self.groups or self.split_k * self.tiles(problem)
        return self.shared * count * self.tile_m * self.tile_n * FLOAT_BYTES

    def products(self, problem: GemmProblem) -> int:
        """Return the products that slices, or the groups that share a tile, add for one result."""
        shared = (
            ceil_div(self.tiles(problem) * problem.k, self.groups) if self.groups else problem.k
        )
        return min(problem.k, shared)

    def with_best_split(self, problem: GemmProblem, limits: Limits) -> Config:
        """Return this config with the slices of k that `problem` wants, none if groups share it."""
        if self.groups:
            return self
        items = self.work_items
        split = fill(problem, limits, self.tile_m, self.tile_n, self.tile_k, items)
        return replace(self, split_k=split)

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no("cp_async"):
            return reason
        return (
            self.shape_conflict()
            or self._copy_conflict(problem, "a", self.tile_m, self.pad_a, self.pack_a)
            or self._copy_conflict(problem, "b", self.tile_n, self.pad_b, self.pack_b)
            or parts.empty_slice(problem.k, self.split_k, self.tile_k)
            or self._sharing_conflict(problem)
            or parts.sliced_rows(problem, self.split_k, self.pack_a or self.pack_b)
        )

    def shape_conflict(self) -> str | None:
        """Say with numbers why work-items cannot share a tile so, or None."""
        for axis in ("m", "n"):
            tile, local = getattr(self, f"tile_{axis}"), getattr(self, f"local_{axis}")
            if tile % (4 * local):
                return f"tile_{axis}={tile} is no multiple of 4 x local_{axis}={local}"
        if self.local_m % self.warp_m or WARP % self.warp_m:
            return f"warp_m={self.warp_m} divides not both {WARP} and local_m={self.local_m}"
        if self.local_n % (WARP // self.warp_m):
            return f"warp_m={self.warp_m} puts {WARP // self.warp_m} along local_n={self.local_n}"
        if self.stages < 2:
            return f"stages={self.stages} leaves none to copy; use 2 or more"
        if self.order not in ("m", "n"):
            return f"order={self.order!r} is unknown; multiply-adds run along 'm' or 'n'"
        return self._register_conflict() or self._slice_conflict()

    def _register_conflict(self) -> str | None:
        accumulators = self.item_m * self.item_n
        if accumulators > MAX_ACCUMULATORS:
            return (
                f"tile {self.tile_m}x{self.tile_n} on {self.local_m}x{self.local_n} work-items "
                f"needs {accumulators} accumulators each; at most {MAX_ACCUMULATORS} fit"
            )
        each = accumulators + 2 * (self.item_m + self.item_n)
        if each * self.work_items > REGISTERS:
            return (
                f"{self.work_items} work-items with {each} sums and operands each need more than "
                f"{REGISTERS} registers; use a smaller local_k={self.local_k}"
            )
        return None

    def _slice_conflict(self) -> str | None:
        if self.tile_k % (2 * self.local_k):
            return f"tile_k={self.tile_k} is no multiple of 2 x local_k={self.local_k}"
        if self.local_k > 1 and not self.sum_rows:
            return (
                f"local_k={self.local_k} slices of {self.item_n} sums per work-item do not fit in "
                f"the tiles' {self.local_bytes} B of local memory"
            )
        return None

    def _sharing_conflict(self, problem: GemmProblem) -> str | None:
        if self.shared and problem.free:
            return "tiles are shared for as many steps as there are; a size of them is free"
        if self.groups and self.split_k > 1:
            return f"groups={self.groups} share all tiles; split_k={self.split_k} has to be 1"
        tiles, span = self.tiles(problem), ceil_div(problem.k, self.tile_k)
        steps = tiles * span
        if self.groups > steps:
            return f"groups={self.groups} are more than the {steps} steps that they share"
        # a work-group counts on to the turn after its last, or a last slice past k
        if self.shared and steps + self.groups * span + self.split_k * tiles > INT_MAX:
            return f"{steps} steps of tile_k={self.tile_k} in all are more than an int can count"
        return None

    def _copy_conflict(
        self, problem: GemmProblem, role: str, tile: int, pad: int, packed: bool
    ) -> str | None:
        along_k = lies_along_k(problem, role)
        if packed and (pad or not along_k):
            return f"pack_{role} turns what lies along k, into rows without pad_{role}={pad}"
        if pad % 4:
            return f"pad_{role}={pad} misaligns vectors of 4; use a multiple"
        row = self.tile_k if along_k and not packed else tile // 4
        copying = self.copying(tile, words=along_k and not packed)
        if copying % row or tile * self.tile_k % copying:
            return (
                f"{self.work_items} work-items do not share the tile of {role}, "
                f"{tile} x tile_k={self.tile_k}, in whole rows"
            )
        return None

    def copying(self, tile: int, words: bool) -> int:
        """Return how many work-items copy a tile, one word or four at a time each."""
        return min(self.work_items, tile * self.tile_k // (1 if words else 4))

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return the operands that are turned first, by role."""
        chosen = {"a": self.pack_a * self.tile_m, "b": self.pack_b * self.tile_n}
        return packed_operands(problem, self.tile_k, **chosen)

    def workspaces(self, problem: GemmProblem) -> tuple[tuple[str, int], ...]:
        """Return role and bytes of each workspace: packed operands, and partial sums of tiles."""
        packed = sizes_of(self.packed(problem).values())
        size = self.partials_bytes(problem)
        return (*packed, ("partials", size)) if size else packed

    def spread(self, problem: GemmProblem) -> Spread:
        """Return the sizes of the product's launch."""
        items = self.work_items
        if self.shared:
            sizes = (self.groups or self.split_k * self.tiles(problem)) * items, 1, 1
        else:
            tiles, batch = parts.grid(problem, self.tile_m, self.tile_n)
            sizes = tiles * items, 1, batch
        return Spread(NAME, sizes, (items, 1, 1), self.local_bytes + FLAG_BYTES * self.shared)

    def outline(self, problem: GemmProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        packs = [pack(tiles) for tiles in self.packed(problem).values()]
        return Outline(
            (*packs, self.spread(problem)), self.workspaces(problem), self.counters(problem)
        )


DEFAULT = Config(
    tile_m=64, tile_n=64, tile_k=8, local_m=8, local_n=8, warp_m=4, pad_a=4, pad_b=4, stages=2,
    split_k=1, group_m=8, pack_a=False, pack_b=False,
)  # fmt: skip
TRAITS = Traits(
    rank=50,
    conv_rank=340,
    instructions=frozenset({"cp_async"}),
    packing=replace(DEFAULT, pad_a=0, pad_b=0, pack_a=True, pack_b=True),
)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype in ("fp32", "tf32")


def guesses(problem: GemmProblem, limits: Limits) -> Iterator[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    few = [(shape, False) for shape in narrow(problem, limits)]
    packs = (True, False) if is_filled(problem, limits) and problem.k >= 512 else (False,)
    found = [*few, *product(usual(problem, limits), packs)]
    first = (guess(problem, shape, limits, pack) for shape, pack in found[:SHARING_GUESSES])
    return chain(
        (guess(problem, shape, limits, pack) for shape, pack in found),
        (_sharing(one, limits) for one in first),
    )


def guess(problem: GemmProblem, shape: Shape, limits: Limits, pack: bool = False) -> Config:
    """Return the guess of a shape, with the slices of k that the problem wants.

    Args:
        problem: the product.
        shape: of tiles and work-groups.
        limits: of the device.
        pack: whether operands that do not lie in rows of tiles are turned first.
    """
    return Config(
        tile_m=shape.tile_m, tile_n=shape.tile_n, tile_k=shape.tile_k,
        local_m=shape.local_m, local_n=shape.local_n, warp_m=4,
        pad_a=0 if problem.trans_a or pack else 4, pad_b=4 if problem.trans_b > pack else 0,
        stages=shape.stages, split_k=1, group_m=8,
        pack_a=pack and not problem.trans_a, pack_b=pack and problem.trans_b,
        local_k=shape.local_k,
    ).with_best_split(problem, limits)  # fmt: skip


def _sharing(config: Config, limits: Limits) -> Config:
    """Return a config whose tiles are shared by as many work-groups as registers let run."""
    per_unit = max(REGISTERS // (256 * config.work_items), 1)
    return replace(config, split_k=1, groups=per_unit * limits.compute_units)


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the turning of operands, and the product."""
    packs = map(pack, config.packed(problem).values())
    launches = (*packs, _product(problem, config))
    return Plan(launches, config.workspaces(problem), config.counters(problem))


@lru_cache(maxsize=64)
def pack(tiles: Packing) -> Launch:
    """Return the launch that turns an operand into its tiles."""
    quads = tiles.tile // 4
    return pack_tiles(tiles, f"p % {tiles.tile_k} * {quads} + row / 4", tile_along_k=False)


def _product(problem: GemmProblem, config: Config) -> Launch:

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            config=config,
            item_m=config.item_m,
            item_n=config.item_n,
            sum_rows=config.sum_rows,
            text=Text(problem, config),
            preamble=parts.ALIGNED,
            **epilogue(problem, "c"),
            ragged=problem.ragged,
        )

    return config.spread(problem).launch(text, _arguments(problem, config))


def _arguments(problem: GemmProblem, config: Config) -> tuple[Arg, ...]:
    packed = {role: tiles.argument() for role, tiles in config.packed(problem).items()}
    usual = parts.product_args(problem, 1, config.tile_k, packed)
    if not config.shared:
        return usual
    return (*usual, Scalar(problem.batch), *buffer("partials"), *buffer(COUNTERS))
