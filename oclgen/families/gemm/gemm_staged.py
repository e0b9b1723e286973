"""GEMM with work-group tiles staged in local memory, for GPUs.

It is not the family for CPUs, where local memory is ordinary memory and staging only copies;
that is `gemm_register`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_staged_text import Text
from oclgen.families.parts.blocking import fill, tiles
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Local, Pad, Parts, Tile, Unroll, Vector
from oclgen.plan import Launch, LazyText, Outline, Plan, Spread
from oclgen.problem import DTYPES, GemmProblem, Problem, of_floats
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_staged"

MAX_ACCUMULATORS = 256
"""Private floats per work-item; GPUs have at most 255 registers for one."""
LOAD_WIDTHS = (4, 2, 1)
"""Elements per global load, widest first: 128 bits is what GPUs load at once."""


class Shape(NamedTuple):
    """A tile and the work-items that share it."""

    tile_m: int
    tile_n: int
    tile_k: int
    local_m: int
    local_n: int

    @property
    def accumulators(self) -> int:
        """Sums that each work-item keeps."""
        return self.tile_m * self.tile_n // (self.local_m * self.local_n)


SHAPES = tuple(
    Shape(*sizes)
    for sizes in (
        (128, 128, 16, 16, 16), (128, 128, 8, 16, 16), (128, 256, 8, 16, 16), (128, 64, 16, 16, 8),
        (64, 64, 16, 8, 8), (64, 64, 16, 16, 16), (32, 64, 16, 8, 8), (32, 32, 32, 8, 8),
        (16, 64, 32, 4, 16),
    )
)  # fmt: skip
"""What to guess, best first: 128 x 128 with 8 x 8 per work-item reads 16 words of local memory for
64 multiply-adds, which keeps current GPUs busy."""
FEW_ACCUMULATORS = 32
"""What a work-item with few registers keeps beside vectors of A and B."""


class Fetch(NamedTuple):
    """How a work-group copies one operand's tile: a work-item moves `vectors` of `width`.

    A tile in memory has rows of `length` neighbours; with `along_k` these are steps of the
    reduction, and the copy transposes.
    """

    along_k: bool
    length: int
    width: int
    vectors: int


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
    vec_m: Vector
    vec_n: Vector
    stage_a: bool
    stage_b: bool
    pad_a: Pad
    pad_b: Pad
    double_buffer: bool
    prefetch: bool
    unroll_k: Unroll
    split_k: Parts
    group_m: Parts

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
        """Work-items per group."""
        return self.local_m * self.local_n

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory: fp32 tiles of k rows, padded, twice if double-buffered."""
        rows_a = self.stage_a * (self.tile_m + self.pad_a)
        rows_b = self.stage_b * (self.tile_n + self.pad_b)
        return 4 * (1 + self.double_buffer) * self.tile_k * (rows_a + rows_b)

    def fetch(self, problem: GemmProblem, role: str) -> Fetch | None:
        """Return how tile a or b is copied, or None if it does not divide among work-items."""
        tile, pad, trans = (
            (self.tile_m, self.pad_a, problem.trans_a)
            if role == "a"
            else (self.tile_n, self.pad_b, not problem.trans_b)
        )
        length = tile if trans else self.tile_k
        for width in LOAD_WIDTHS:
            fits = length % width == 0 and (not trans or pad % width == 0)
            if fits and tile * self.tile_k % (self.work_items * width) == 0:
                vectors = tile * self.tile_k // (self.work_items * width)
                return Fetch(not trans, length, width, vectors)
        return None

    def with_best_split(self, problem: GemmProblem, limits: Limits) -> Config:
        """Return this config with the slices of k that `problem` wants."""
        split = fill(problem, limits, self.tile_m, self.tile_n, self.tile_k)
        return replace(self, split_k=split)

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return (
            self._shape_conflict()
            or self._staging_conflict(problem)
            or parts.sliced_rows(problem, self.split_k)
            or parts.empty_slice(problem.k, self.split_k, self.tile_k)
        )

    def spread(self, problem: GemmProblem) -> Spread:
        """Return the sizes of the product's launch."""
        tiles, items = parts.grid(problem, self.tile_m, self.tile_n)
        sizes = tiles * self.work_items, 1, items * self.split_k
        return Spread(NAME, sizes, (self.work_items, 1, 1), self.local_bytes)

    def outline(self, problem: GemmProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        launches = parts.with_sum(problem, self.split_k, self.spread(problem))
        return Outline(launches, planes_space(problem, self.split_k))

    def _shape_conflict(self) -> str | None:
        for axis in ("m", "n"):
            tile, local, vec = (
                getattr(self, f"{name}_{axis}") for name in ("tile", "local", "vec")
            )
            if vec not in VECTOR_WIDTHS:
                return f"vec_{axis}={vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
            if tile % (local * vec):
                return (
                    f"tile_{axis}={tile} is no multiple of local_{axis} x vec_{axis} = "
                    f"{local} x {vec} = {local * vec}"
                )
        if self.item_m * self.item_n > MAX_ACCUMULATORS:
            return (
                f"tile {self.tile_m}x{self.tile_n} on {self.local_m}x{self.local_n} work-items "
                f"needs {self.item_m * self.item_n} accumulators each; at most "
                f"{MAX_ACCUMULATORS} stay in registers"
            )
        if self.tile_k % self.unroll_k:
            return f"unroll_k={self.unroll_k} does not divide tile_k={self.tile_k}"
        return None

    def _staging_conflict(self, problem: GemmProblem) -> str | None:
        for role, staged, pad, vec in (
            ("a", self.stage_a, self.pad_a, self.vec_m),
            ("b", self.stage_b, self.pad_b, self.vec_n),
        ):
            if not staged and pad:
                return f"pad_{role}={pad} pads a tile that stage_{role}=0 does not make; use 0"
            if pad % vec:
                return f"pad_{role}={pad} misaligns vectors of {vec}; use a multiple of {vec}"
            if staged and self.fetch(problem, role) is None:
                tile = self.tile_m if role == "a" else self.tile_n
                return (
                    f"the tile of {role}, {tile} x tile_k={self.tile_k}, does not divide among "
                    f"{self.work_items} work-items"
                )
        if (self.double_buffer or self.prefetch) and not (self.stage_a or self.stage_b):
            return "double_buffer and prefetch need an operand in local memory; stage_a=stage_b=0"
        return None


DEFAULT = Config(
    tile_m=32, tile_n=32, tile_k=8, local_m=8, local_n=8, vec_m=4, vec_n=4,
    stage_a=True, stage_b=True, pad_a=4, pad_b=0, double_buffer=False, prefetch=False,
    unroll_k=8, split_k=1, group_m=8,
)  # fmt: skip
TRAITS = Traits(rank=60, conv_rank=350)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return of_floats(problem)


def guesses(problem: GemmProblem, limits: Limits) -> Iterator[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    return (
        guess(problem, shape, limits).with_best_split(problem, limits)
        for shape in shapes(problem, limits)
    )


def shapes(problem: GemmProblem, limits: Limits) -> list[Shape]:
    """Return the tiles to guess by: the largest ones that leave no compute unit of a GPU idle.

    Where none fills it, the smaller ones, whose reduction is worth splitting. None on CPUs.
    """
    if limits.kind == "cpu":
        return []
    units, most = limits.compute_units, FEW_ACCUMULATORS if limits.has_few_registers else None
    fits = [one for one in SHAPES if not most or one.accumulators <= most]
    fills = [one for one in fits if tiles(problem, one.tile_m, one.tile_n) >= units]
    return fills or [one for one in fits if one in SHAPES[4:]]


def guess(problem: GemmProblem, shape: Shape, limits: Limits) -> Config:
    """Return the config with such tiles that has served best.

    Args:
        problem: says which operands are transposed.
        shape: tile and work-group.
        limits: of the device.
    """
    # other compilers than NVIDIA's load early what all written steps read: of 16, registers spill
    few = limits.has_few_registers
    unroll = 4 if few else 16 if "cp_async" in limits.instructions else 8
    return Config(
        *shape, vec_m=4, vec_n=4, stage_a=True, stage_b=True,
        pad_a=0 if problem.trans_a else 4, pad_b=4 if problem.trans_b else 0,
        double_buffer=not few, prefetch=not few, unroll_k=min(shape.tile_k, unroll),
        split_k=1, group_m=8,
    )  # fmt: skip


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the product and, where k is split, the launch that adds its planes."""
    launches = parts.with_sum(problem, config.split_k, _product(problem, config))
    return Plan(launches, planes_space(problem, config.split_k))


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            item_m=config.item_m,
            item_n=config.item_n,
            elem_bytes=DTYPES[problem.dtype],
            preamble=f"{dtype_preamble(problem.dtype)}\n{parts.aligned_preamble(problem.dtype)}",
            **epilogue(problem, "c", split),
            ragged=problem.ragged,
            work_items=config.work_items,
            text=Text(problem, config),
        )

    args = parts.product_args(problem, config.split_k, config.tile_k)
    return config.spread(problem).launch(text, args)
