"""GEMM on a GPU's matrix units, by `mma.sync` or `wgmma` in inline PTX, for fp16, bf16 and tf32.

It is not for fp32 that has to be fp32, nor for devices whose units `oclgen.opencl.probe` did not
see work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm import gemm_tail as tail
from oclgen.families.gemm.gemm_mma_shapes import shapes_of, split_of
from oclgen.families.gemm.gemm_mma_text import Text
from oclgen.families.gemm.gemm_mma_tiles import (
    ROW_BYTES,
    Layout,
    Pieces,
    pack,
)
from oclgen.families.gemm.gemm_tiles import lies_along_k, packed_operands, uneven_rows
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.mma_staging import Staging, staging
from oclgen.families.parts.packing import CHUNK_BYTES, PACK_ROWS, Packing, sizes_of
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import Band, BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import ptx
from oclgen.parameters import Head, Parts, Range, Stages, Tile, Warps
from oclgen.plan import AnyLaunch, Launch, LazyText, Outline, Plan, Spread, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "gemm_mma"

DTYPES_SERVED = ("fp16", "bf16", "tf32")
WARP = 32
MAX_ACCUMULATORS = {"mma": 128, "wgmma": 192}
"""Private floats per work-item beside which the operands still fit in 255 registers."""
STAGE_BYTES = 1024
"""What the bytes of a stage are a multiple of: wgmma's swizzle is one of addresses."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE
    RAGGED = True

    unit: str
    tile_m: Tile
    tile_n: Tile
    tile_k: Tile
    warps_m: Warps
    warps_n: Warps
    stages: Stages
    pending: Annotated[int, Range(0, 16)]
    split_k: Parts
    group_m: Parts
    pack_a: bool
    pack_b: bool
    tail_k: Parts = 1
    head_tiles: Head = 0

    @property
    def work_items(self) -> int:
        """Work-items per group."""
        return WARP * self.warps_m * self.warps_n

    @property
    def block_m(self) -> int:
        """Rows of C that one warp, or with wgmma four warps, hold."""
        return self.tile_m // self.warps_m * (4 if self.unit == "wgmma" else 1)

    @property
    def block_n(self) -> int:
        """Columns of C that a warp holds."""
        return self.tile_n // self.warps_n

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of C that one instruction adds to: of wgmma, 8 columns at least."""
        return (64 if self.unit == "wgmma" else 16), 8

    @property
    def blocks(self) -> tuple[int, int]:
        """Such blocks in what a warp holds, along m and n."""
        return self.block_m // self.block[0], self.block_n // self.block[1]

    def staging(self, problem: GemmProblem) -> Staging:
        """Return which results leave at once through the local memory of the tiles."""
        return staging(
            (self.tile_m, self.tile_n),
            (self.block_m, self.block_n),
            self.block,
            FLOAT_BYTES if self.split_k > 1 else DTYPES[problem.dtype],
            self.local_bytes(problem),
        )

    def shifts_c(self, problem: GemmProblem) -> bool:
        """Say whether dense rows of C are no multiple of 16 bytes, and a part has whole rows."""
        part = self.staging(problem)
        is_even = problem.n * part.result_bytes % CHUNK_BYTES == 0
        return not is_even and "n" not in problem.free and part.has_whole_rows

    def layout(self, problem: GemmProblem, role: str) -> Layout:
        """Return how tile a or b lies in local memory."""
        size = DTYPES[problem.dtype]
        packed = self.pack_a if role == "a" else self.pack_b
        along_k = packed or lies_along_k(problem, role)
        return Layout(
            tile=self.tile_m if role == "a" else self.tile_n,
            tile_k=self.tile_k,
            elem_bytes=size,
            along_k=along_k,
            packed=packed,
            by_words=problem.dtype == "tf32" and not along_k,
        )

    def pieces(self, problem: GemmProblem) -> dict[str, Pieces]:
        """Return how the operands are copied whose rows are no multiple of 16 bytes, by role."""
        packed = {"a": self.pack_a, "b": self.pack_b}
        return {
            role: Pieces(self.layout(problem, role), row_bytes, self.work_items)
            for role, row_bytes in uneven_rows(problem).items()
            if not packed[role]
        }

    def evened(self, problem: GemmProblem) -> frozenset[str]:
        """Return the operands that are copied in pieces."""
        return frozenset(self.pieces(problem))

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return the operands that are repacked first, by role."""
        chosen = {"a": self.pack_a * self.tile_m, "b": self.pack_b * self.tile_n}
        return packed_operands(problem, self.tile_k, **chosen)

    @property
    def ahead(self) -> int:
        """Tiles that are copied ahead."""
        return self.stages - 1 - self.pending

    def local_bytes(self, problem: GemmProblem) -> int:
        """Bytes of local memory: the tiles of all stages."""
        return self.stages * sum(self.layout(problem, role).bytes for role in "ab")

    def beyond_bytes(self, problem: GemmProblem) -> int:
        """Bytes behind the tiles of a stage: the words in which rows end that are shifted."""
        rows = sum(pieces.rows for pieces in self.pieces(problem).values())
        return round_up(4 * rows, STAGE_BYTES)

    def declared_bytes(self, problem: GemmProblem) -> int:
        """Bytes of local memory that the kernel declares."""
        return self.local_bytes(problem) + self.stages * self.beyond_bytes(problem)

    def with_best_split(self, problem: GemmProblem, limits: Limits) -> Config:
        """Return this config with the slices of k that `problem` wants, or with a tail."""
        if self.tail_k > 1 and (tailed := self.with_tail(problem, limits)).tail_k > 1:
            return tailed
        split = split_of(problem, limits, self.tile_m, self.tile_n, self.tile_k)
        return replace(self, split_k=split, tail_k=1, head_tiles=0)

    def with_tail(self, problem: GemmProblem, limits: Limits) -> Config:
        """Return this config, its slices of k replaced by the tail that `problem` wants, if any."""
        last = tail.wanted(problem, limits, self.tile_m, self.tile_n, self.tile_k)
        return replace(self, split_k=1, tail_k=last.tail_k, head_tiles=last.head_tiles)

    def bands(self, problem: GemmProblem) -> tuple[Band, ...]:
        """Return head and tail."""
        return tail.bands_of(problem, self)

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no(self.unit):
            return f"unit={reason}"
        return (
            tail.conflict(problem, self, self.tile_k)
            or self._block_conflict()
            or self._pipeline_conflict()
            or self._layout_conflict(problem)
            or self._slice_conflict(problem)
            or parts.sliced_rows(problem, self.split_k, self.pack_a or self.pack_b)
            or parts.empty_slice(problem.k, self.split_k, self.tile_k)
        )

    def _slice_conflict(self, problem: GemmProblem) -> str | None:
        if self.split_k > 1 and "k" in problem.free:
            return f"split_k={self.split_k} slices of a free k may be empty; use 1"
        return None

    def _block_conflict(self) -> str | None:
        wide_m, wide_n = (64, 8) if self.unit == "wgmma" else (16, 16)
        if self.block_m % wide_m or self.block_n % wide_n or self.block_m * self.block_n == 0:
            return (
                f"{self.unit} works on blocks of {wide_m} x {wide_n}; warps_m={self.warps_m} "
                f"warps_n={self.warps_n} cut {self.tile_m}x{self.tile_n} into "
                f"{self.block_m} x {self.block_n}"
            )
        if self.unit == "wgmma" and (self.warps_m % 4 or self.block_n > 256):
            return (
                f"wgmma takes four warps along m and at most 256 columns; warps_m={self.warps_m}, "
                f"{self.block_n} columns"
            )
        accumulators = self.tile_m * self.tile_n // self.work_items
        if accumulators > MAX_ACCUMULATORS[self.unit]:
            return (
                f"tile {self.tile_m}x{self.tile_n} on {self.work_items} work-items needs "
                f"{accumulators} accumulators each; at most {MAX_ACCUMULATORS[self.unit]} fit"
            )
        return None

    def _pipeline_conflict(self) -> str | None:
        if self.unit == "mma" and self.pending:
            return f"pending={self.pending} belongs to wgmma; mma waits for each step, use 0"
        if self.stages < 2 + self.pending:
            return f"stages={self.stages} leaves none to copy; pending={self.pending} takes more"
        return None

    def _layout_conflict(self, problem: GemmProblem) -> str | None:
        for role, block in (("a", self.block_m), ("b", self.block_n)):
            layout = self.layout(problem, role)
            if layout.row_bytes not in ROW_BYTES:
                return (
                    f"tile_k={self.tile_k} of {problem.dtype} makes rows of {layout.row_bytes} B; "
                    f"use 32, 64 or 128"
                )
            if layout.bytes % (16 * self.work_items) or self.work_items % 64:
                return (
                    f"the tile of {role} is {layout.bytes} B, which {self.work_items} work-items "
                    f"do not share in chunks of 16"
                )
            if layout.packed and layout.tile % PACK_ROWS and PACK_ROWS % layout.tile:
                return f"pack_{role} packs {PACK_ROWS} rows at a time; the tile has {layout.tile}"
            if not layout.along_k and (why := self._panel_conflict(problem, role, block)):
                return why
        return None

    def _panel_conflict(self, problem: GemmProblem, role: str, block: int) -> str | None:
        """Say why an operand that does not lie along k cannot be cut into panels, or None."""
        panel = self.layout(problem, role).panel
        tile = self.tile_m if role == "a" else self.tile_n
        if self.unit == "wgmma" and problem.dtype == "tf32":
            return f"wgmma reads tf32 along k alone; {role} does not lie so. Use unit=mma"
        if tile % panel or (block % panel and (self.unit == "wgmma" or panel % block)):
            return f"blocks of {block} and a tile of {tile} do not divide into panels of {panel}"
        if self.work_items // 8 & (self.work_items // 8 - 1) or self.tile_k & (self.tile_k - 1):
            return f"{self.work_items} work-items and tile_k={self.tile_k} must be powers of two"
        return None

    def spread(self, problem: GemmProblem, rows: tail.Rows) -> Spread:
        """Return the sizes of a launch of the product."""
        tiles, items = parts.grid(rows.of(problem), self.tile_m, self.tile_n)
        sizes = tiles * self.work_items, 1, items * rows.slices
        return Spread(NAME, sizes, (self.work_items, 1, 1), self.declared_bytes(problem))

    def workspaces(self, problem: GemmProblem) -> tuple[tuple[str, int], ...]:
        """Return role and bytes of packed operands, and of planes."""
        spaces = sizes_of(self.packed(problem).values())
        return (*spaces, *tail.space(problem, self))

    def outline(self, problem: GemmProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        launches = _around(problem, self, lambda rows: self.spread(problem, rows))
        return Outline(launches, self.workspaces(problem))


DEFAULT = Config(
    unit="mma", tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2, stages=2, pending=0,
    split_k=1, group_m=8, pack_a=False, pack_b=False,
)  # fmt: skip
TRAITS = Traits(
    rank=10,
    conv_rank=310,
    instructions=frozenset({"mma", "wgmma"}),
    packing=replace(DEFAULT, pack_a=True, pack_b=True),
)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype in DTYPES_SERVED


def guesses(problem: GemmProblem, limits: Limits) -> Iterator[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    size = DTYPES[problem.dtype]
    guessed = (
        Config(
            shape.unit, shape.tile_m, shape.tile_n, shape.row_bytes // size, shape.warps_m,
            shape.warps_n, shape.stages, shape.pending,
            split_k=split_of(
                problem, limits, shape.tile_m, shape.tile_n, shape.row_bytes // size
            ),
            group_m=8, pack_a="a" in packed, pack_b="b" in packed,
        )
        for shape, packed in shapes_of(problem, limits)
        if shape.unit in limits.instructions and (not packed or min(problem.m, problem.n) >= 1024)
    )  # fmt: skip
    return tail.with_tails(guessed, problem, limits)


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the repacking of operands, the product, and the sum of planes where k is split."""
    launches = _around(problem, config, lambda rows: _product(problem, config, rows))
    return Plan(launches, config.workspaces(problem))


def _around(
    problem: GemmProblem, config: Config, product: Callable[[tail.Rows], AnyLaunch]
) -> tuple[Launch | AnyLaunch, ...]:
    """Return the launches that pack, those of the product, and the sum behind each of these."""
    packed = config.packed(problem)
    packs = [pack(tiles, config.layout(problem, role)) for role, tiles in packed.items()]
    return *packs, *tail.products(problem, config, product)


def units(
    problem: GemmProblem, config: Config, unrounded: str, pieces: Iterable[Pieces] = ()
) -> str:
    """Return the text of the matrix units for the config's tiles: see `mma_units`.

    Args:
        problem: in fp16, bf16 or tf32.
        config: unit, tiles, and fragments that are loaded ahead.
        unrounded: "", "a", "b" or "ab": the sides of a product in tf32 that nothing has rounded.
        pieces: of operands that are copied so.
    """
    blocks_m, blocks_n = config.blocks
    return render(
        "mma_units",
        unit=config.unit,
        dtype=problem.dtype,
        elem_bytes=DTYPES[problem.dtype],
        tile_k=config.tile_k,
        blocks_m=blocks_m,
        blocks_n=blocks_n,
        ahead=config.ahead,
        pending=config.pending,
        a=config.layout(problem, "a"),
        b=config.layout(problem, "b"),
        unrounded=unrounded if problem.dtype == "tf32" else "",
        pieces=sorted({one.bytes for one in pieces if one.bytes < CHUNK_BYTES}),
        shifted=any(one.halved for one in pieces),
    )


def _product(problem: GemmProblem, config: Config, rows: tail.Rows) -> Launch:
    config = replace(config, split_k=rows.slices) if rows.first else config
    split = config.split_k > 1
    operands = {role: tiles.argument() for role, tiles in config.packed(problem).items()}

    @LazyText
    def text() -> str:
        pieces = config.pieces(problem)
        texts = Text(problem, config, pieces)
        unrounded = "".join(role for role in "ab" if role not in operands)
        source = render(
            NAME,
            **{k: v for k, v in asdict(config).items() if not k.startswith("pack_")},
            elem_bytes=DTYPES[problem.dtype],
            preamble=f"{dtype_preamble(problem.dtype)}\n{parts.ALIGNED}",
            units=units(problem, config, unrounded, pieces.values()),
            blocks_m=config.blocks[0],
            blocks_n=config.blocks[1],
            staging=config.staging(problem),
            ahead=config.ahead,
            **epilogue(problem, split=split),
            tail=rows.first > 0,
            ragged=problem.ragged,
            edge_m=texts.edge_m,
            edge_n=texts.edge_n,
            edge_k=texts.edge_k,
            text=texts,
            pieces=pieces,
            beyond_bytes=config.beyond_bytes(problem),
            uneven_c=config.shifts_c(problem),
            a=config.layout(problem, "a"),
            b=config.layout(problem, "b"),
        )
        return ptx.with_target(source, "sm_90a") if config.unit == "wgmma" else source

    args = tail.arguments(problem, rows, config.tile_k, operands)
    return config.spread(problem, rows).launch(text, args)
