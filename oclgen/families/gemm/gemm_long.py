"""GEMM of a long reduction of few rows and columns on GPUs: work-groups share the steps.

Gradients of the weights of narrow layers are such products, and Gram matrices of images. To read A
and B takes the time, so all of C that both can give is computed from one reading: the reduction is
cut into slices, a work-group for each, whose work-items share the steps of a chunk that lies in
local memory. Ernst et al. name them TSMTTSM ("Performance engineering for real and complex tall and
skinny matrix multiplication kernels on GPUs", IJHPCA 2021). A family whose tile has 64 columns
computes most of them in vain.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_long_text import FLOATS, Operand
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.planes import Sum, planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Parts, Tile
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem, of_floats
from oclgen.render import dtype_preamble, render

NAME = "gemm_long"

WIDEST, LARGEST = 128, 4096
"""Rows or columns, and elements of C: beyond them there is so much to compute that reading A and B
is not what takes the time."""
SHORTEST = 2048
"""Steps of the reduction from which on there are slices for many work-groups."""
MAX_ACCUMULATORS = 64
"""Private floats per work-item; more leave no registers for what is on its way."""
ACCESS_BYTES = 16
"""What a work-item copies at once."""
ITEMS = (1, 2, 4, 8)
"""Rows or columns of a work-item."""
LANES = 4
"""Floats that a work-item reads from local memory at once."""
CHUNK_BYTES = 16384
"""Of A and B that a work-group of 256 has on its way: three of them keep an H200 busy."""
GROUPS_PER_UNIT = 2
"""Work-groups that a unit holds at once, by their registers."""
SUM_SLICES = 16
"""Work-items that share the planes of a result: there are hundreds of planes of few results."""


@dataclass(frozen=True, slots=True)
class Side:
    """How a chunk of A or of B lies in local memory.

    Attributes:
        extent: rows of A or columns of B.
        across: whether neighbours in memory belong to different rows of A, or columns of B; else
            they are steps of the reduction.
        items: rows or columns of a work-item.
        local: work-items along them.
        steps: of the reduction in a chunk.
    """

    extent: int
    across: bool
    items: int
    local: int
    steps: int

    @property
    def size(self) -> int:
        """Rows or columns of a work-group."""
        return min(self.extent, self.items * self.local)

    @property
    def groups(self) -> int:
        """Work-groups along them: one as a rule, several where tiles are smaller than C."""
        return ceil_div(self.extent, self.items * self.local)

    @property
    def vec(self) -> int:
        """Neighbouring rows or columns of a work-item."""
        return min(self.items, LANES) if self.across else 1

    @property
    def run(self) -> int:
        """Elements that lie side by side in memory."""
        return self.size if self.across else self.steps

    @property
    def runs(self) -> int:
        """How many such there are in a chunk."""
        return self.steps if self.across else self.size

    @property
    def pitch(self) -> int:
        """Floats of local memory between the beginnings of neighbouring runs."""
        return round_up(self.size, self.vec) if self.across else self.steps + LANES

    @property
    def cells(self) -> int:
        """Floats of local memory: those that the last work-items read in vain among them."""
        rest = self.items * self.local - self.size
        return round_up(self.runs * self.pitch + rest * (1 if self.across else self.pitch), LANES)


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = frozenset({"k", "batch"})  # a text knows m and n, by which it copies chunks
    SLICES = "split_k"

    item_m: Item
    item_n: Item
    local_m: Local
    local_n: Local
    local_k: Local
    tile_k: Tile
    split_k: Parts

    @property
    def work_items(self) -> int:
        """Work-items per work-group."""
        return self.local_m * self.local_n * self.local_k

    def sides(self, problem: GemmProblem) -> tuple[Side, Side]:
        """Return how chunks of A and of B lie in local memory."""
        return (
            Side(problem.m, problem.trans_a, self.item_m, self.local_m, self.tile_k),
            Side(problem.n, not problem.trans_b, self.item_n, self.local_n, self.tile_k),
        )

    def cells(self, problem: GemmProblem) -> int:
        """Return the floats of local memory: of both chunks, or of sums behind them."""
        return max(sum(side.cells for side in self.sides(problem)), self.work_items * self.item_n)

    def with_best_split(self, problem: GemmProblem, limits: Limits) -> Config:
        """Return this config with a slice for each work-group that the device holds at once."""
        return self.sliced(problem, GROUPS_PER_UNIT * limits.compute_units)

    def sliced(self, problem: GemmProblem, groups: int) -> Config:
        """Return this config with slices for `groups` work-groups, of two chunks or more each.

        Args:
            problem: whose reduction is cut.
            groups: work-groups of all batch items.
        """
        chunks = ceil_div(problem.k, self.tile_k)
        wanted = max(min(groups // problem.batch, chunks // 2), 1)
        return replace(self, split_k=ceil_div(chunks, ceil_div(chunks, wanted)))

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        for axis in "mn":
            if (items := getattr(self, f"item_{axis}")) not in ITEMS:
                return f"item_{axis}={items} is not one of {ITEMS}: vectors of {LANES} or less"
        if (count := self.item_m * self.item_n) > MAX_ACCUMULATORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {count} accumulators per "
                f"work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        width = _width(problem)
        if self.tile_k % self.local_k or self.tile_k % width:
            return f"tile_k={self.tile_k} is no multiple of local_k={self.local_k} and {width}"
        return parts.empty_slice(problem.k, self.split_k, self.tile_k)

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        size = (self.local_m * self.local_n, self.local_k, 1)
        frame = Frame(NAME, size, 4 * self.cells(problem))
        return Needs((frame,), planes_space(problem, self.split_k))


DEFAULT = Config(item_m=4, item_n=4, local_m=4, local_n=4, local_k=1, tile_k=16, split_k=1)
TRAITS = Traits(rank=84)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether C is small."""
    if not of_floats(problem) or problem.ragged:
        return False
    m, n = problem.m, problem.n
    return max(m, n) <= WIDEST and m * n <= LARGEST


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "cpu" or problem.k < SHORTEST:
        return []
    most, units = min(256, limits.max_work_group), limits.compute_units
    return [
        shaped(problem, item_m, item_n, items).sliced(problem, groups * units)
        for item_m, item_n, items, groups in (
            (4, 4, most, GROUPS_PER_UNIT),
            (8, 8, most // 2, GROUPS_PER_UNIT),
            (4, 4, most, 1),
            (8, 4, most, GROUPS_PER_UNIT),
        )
    ]


def shaped(problem: GemmProblem, item_m: int, item_n: int, items: int) -> Config:
    """Return the config whose work-items cover C, and share the steps of a chunk.

    Args:
        problem: whose C they cover.
        item_m: rows of a work-item, if there are as many.
        item_n: columns.
        items: most work-items of a group.
    """
    m, n = (
        next(size for size in ITEMS if size >= min(most, extent))
        for most, extent in ((item_m, problem.m), (item_n, problem.n))
    )
    local_m, local_n = ceil_div(problem.m, m), ceil_div(problem.n, n)
    local_k = 1 << max(items // (local_m * local_n), 1).bit_length() - 1
    step = DTYPES[problem.dtype] * (problem.m + problem.n)
    tile_k = round_up(max(CHUNK_BYTES // step, 1), max(local_k, 8))
    return Config(m, n, local_m, local_n, local_k, min(tile_k, 1024), 1)


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the product and, where k is split, the launch that adds its planes."""
    return _sum_of_planes(problem, config.split_k).behind(_product(problem, config))


def _sum_of_planes(problem: GemmProblem, split_k: int) -> Sum:
    """Return the sum of the planes: work-items share those of a result."""
    slices = 1
    while 2 * slices <= min(split_k // 2, SUM_SLICES):
        slices *= 2
    whole = parts.sum_planes(problem, split_k)
    vec = next(width for width in (2, 1) if problem.n % width == 0)
    return replace(whole, slices=slices, vec=vec, local_size=whole.local_size // slices)


def _width(problem: GemmProblem) -> int:
    return ACCESS_BYTES // DTYPES[problem.dtype]


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1
    sides, width = config.sides(problem), _width(problem)
    tiles = prod(side.groups for side in sides)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=f"{dtype_preamble(problem.dtype)}\n{parts.aligned_preamble(problem.dtype)}",
            floats=FLOATS[problem.dtype],
            **epilogue(problem, "c", split),
            operands=[
                Operand(*names, side, width, DTYPES[problem.dtype], config.work_items)
                for names, side in zip((("a", "m"), ("b", "n")), sides, strict=True)
            ],
            cells=config.cells(problem),
            split=split,
        )

    (frame,) = config.needs(problem).frames
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(
            frame.local_size[0] * tiles,
            config.local_k,
            problem.batch * config.split_k,
        ),
        local_size=frame.local_size,
        args=parts.product_args(problem, config.split_k, config.tile_k),
        local_bytes=frame.local_bytes,
    )
