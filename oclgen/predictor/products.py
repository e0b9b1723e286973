"""The product that a problem is or is made of, and the parameters and tiles of what computes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd, log2, prod
from operator import itemgetter
from typing import Any, NamedTuple, TypeGuard

from oclgen.limits import Limits
from oclgen.plan import WORK_ITEMS_PER_UNIT, Launch, Outline, Plan, Spread, ceil_div
from oclgen.problem import DTYPES, ConvProblem, GemmProblem, Problem, of_floats
from oclgen.variant import Variant

CHUNK_BYTES = 16
"""What a work-item copies at once, of rows that are a multiple of it."""
GROUPS_PER_UNIT = 32
"""Work-groups that a compute unit holds at once, however small they are."""
VARIANTS = 1024
"""LRU bound."""
PROBLEMS = 64
"""LRU bound. The candidates for one problem ask for its product and its amounts in turn."""


class Amounts(NamedTuple):
    """What a problem takes, as `Problem.flops` and `Problem.bytes` have it."""

    flops: int
    bytes: int


@lru_cache(maxsize=PROBLEMS)
def amounts_of(problem: Problem) -> Amounts:
    """Return the operations and the bytes of a problem: up to 3 us, and each candidate asks."""
    return Amounts(problem.flops, problem.bytes)


def is_predicted(problem: Problem) -> TypeGuard[GemmProblem | ConvProblem]:
    """Say whether a model was made for such problems: products of floats and convolutions."""
    return isinstance(problem, ConvProblem) or of_floats(problem)


@lru_cache(maxsize=PROBLEMS)
def product_of(problem: Problem) -> tuple[float, float, float, int]:
    """Return m, n, k and the batch of the product that a problem is, or is made of implicitly.

    k of a strided gradient of the data is the mean over its phases, no whole number.
    """
    assert is_predicted(problem), problem.key()
    if isinstance(problem, GemmProblem):
        return problem.m, problem.n, problem.k, problem.batch
    taps = problem.kernel_h * problem.kernel_w
    inputs, outputs = (
        channels // problem.groups for channels in (problem.in_channels, problem.out_channels)
    )
    pixels = problem.batch * problem.out_h * problem.out_w
    if problem.direction == "fwd":
        return outputs, pixels, inputs * taps, problem.groups
    if problem.direction == "bwd_weights":
        return outputs, inputs * taps, pixels, problem.groups
    used = outputs * taps / (problem.stride_h * problem.stride_w)
    return inputs, problem.batch * problem.height * problem.width, used, problem.groups


class Parameters(NamedTuple):
    """What a variant tells without a problem.

    Attributes:
        values: its parameters by name.
        numbers: the same as features.
        tile_m: rows of results of a work-group, 0 where no parameter says so.
        tile_n: columns.
    """

    values: dict[str, int | bool | str]
    numbers: dict[str, float]
    tile_m: int
    tile_n: int

    @property
    def slices(self) -> int:
        """Slices of a product's reduction."""
        return int(self.values.get("split_k", 1))


@lru_cache(maxsize=VARIANTS)
def parameters_of(variant: Variant) -> Parameters:
    """Return what a variant tells without a problem: guesses for many problems are the same."""
    values = variant.values()
    numbers = {f"config {name}": _number(value) for name, value in values.items()}
    return Parameters(values, numbers, *tile_of(variant.config))


def _number(value: int | bool | str) -> float:
    """Return a parameter's value as a number; of a text the first letter tells it from others."""
    if isinstance(value, str):
        return float(ord(value[0]))
    return float(value) if isinstance(value, bool) or value <= 0 else log2(value)


class Grid(NamedTuple):
    """How the launch that does the work is spread over a device.

    Attributes:
        main: the launch.
        items: work-items of a work-group.
        groups: work-groups.
        resident: work-groups that a compute unit holds at once, whatever registers they need.
        space: bytes of the plan's workspaces.
    """

    main: Launch | Spread
    items: int
    groups: float
    resident: int
    space: int


def grid_of(plan: Plan | Outline, limits: Limits) -> Grid:
    """Return the work-groups of the launch that does the work.

    That is, of those with most local memory, the last of most items: packing comes before it and
    sums come after it, with fewer work-items or less local memory.
    """
    launches = plan.launches
    main = max(launches, key=_work_of) if len(launches) > 1 else launches[0]
    items = prod(main.local_size)
    groups = prod(main.global_size) / items
    held, space = resident(items, main.local_bytes, limits), sum(map(_BYTES, plan.workspaces))
    return Grid(main, items, groups, held, space)


_BYTES = itemgetter(1)


def _work_of(launch: Launch | Spread) -> tuple[int, int]:
    return launch.local_bytes, prod(launch.global_size)


def resident(items: int, local_bytes: int, limits: Limits) -> int:
    """Return how many work-groups a compute unit holds at once, whatever registers they need.

    Args:
        items: work-items of each.
        local_bytes: local memory of each.
        limits: of the device.
    """
    by_local = limits.most_local_bytes // local_bytes if local_bytes else GROUPS_PER_UNIT
    return max(1, min(WORK_ITEMS_PER_UNIT // items, GROUPS_PER_UNIT, by_local))


@dataclass(frozen=True, slots=True)
class Tiled:
    """A product and the tiles by which work-groups cover its results.

    Attributes:
        sizes: m, n, k and the batch.
        variant: whose parameters these are: it computes the product.
        parameters: of that variant.
        slices: of the reduction.
        chunks: bytes that a work-item copies at once of each operand, by role: fewer where rows
            are no multiple of 16 bytes, and are neither packed nor copied as if they were even.
            Of implicit products nothing is said.
    """

    sizes: tuple[float, float, float, int]
    variant: Variant
    parameters: Parameters
    slices: int
    chunks: dict[str, int]

    @property
    def slice(self) -> float:
        """Steps of the reduction that a work-group adds."""
        return self.sizes[2] / self.slices

    def band(self, rows: int, slices: int) -> Tiled:
        """Return some rows of the product, whose reduction is cut into `slices`."""
        return replace(self, sizes=(rows, *self.sizes[1:]), slices=slices)

    @property
    def groups(self) -> int:
        """Work-groups, where each computes one tile."""
        m, n, _, batch = self.sizes
        _, _, tile_m, tile_n = self.parameters
        tiles = covered(m, tile_m) // tile_m * (covered(n, tile_n) // tile_n)
        return tiles * batch * self.slices


def tiled(problem: Problem, variant: Variant) -> Tiled:
    """Return the product that a variant's tiles cover, with the parameters of the one within it."""
    text = getattr(variant.config, "gemm", None)
    inner = Variant.from_text(text) if isinstance(text, str) else variant
    sizes = product_of(variant.config.tiled(problem))
    computed = variant.config.computed(problem)
    chunks = _chunks(computed, variant.config) if isinstance(computed, GemmProblem) else {}
    parameters = parameters_of(inner)
    return Tiled(sizes, inner, parameters, parameters.slices, chunks)


def _chunks(product: GemmProblem, config: Any) -> dict[str, int]:
    evened, size = config.evened(product), DTYPES[product.dtype]

    def chunk(role: str, row: int) -> int:
        is_even = role in evened or getattr(config, f"pack_{role}", False)
        return CHUNK_BYTES if is_even else gcd(row * size, CHUNK_BYTES)

    return {
        "a": chunk("a", product.m if product.trans_a else product.k),
        "b": chunk("b", product.k if product.trans_b else product.n),
    }


def tile_of(config: Any) -> tuple[int, int]:
    """Return rows and columns of results of a work-group, 0 where no parameters say so."""

    def extent(axis: str) -> int:
        items = getattr(config, f"item_{axis}", 0) * getattr(config, f"local_{axis}", 1)
        return int(getattr(config, f"tile_{axis}", items))

    return extent("m"), extent("n")


def covered(extent: float, tile: int) -> int:
    """Return the least multiple of a tile that is no less than an extent."""
    return ceil_div(ceil(extent), tile) * tile
