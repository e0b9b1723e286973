"""Rows of tiles that would leave compute units idle: computed last, with their reduction cut.

Compute units work through tiles in waves. Where the last wave has few tiles, the rows of tiles that
fill whole waves are a `head`, which one launch computes as ever. A second launch computes the rows
behind them, the tail, in `tail_k` slices of k, and a third one adds their planes, which are as
small as the tail. It is no family; families on matrix units have the two parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, Protocol

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.parts.blocking import ITEMS_PER_UNIT, best_split, none_empty
from oclgen.families.parts.planes import planes_space
from oclgen.family import Band
from oclgen.limits import Limits
from oclgen.plan import AnyLaunch, Arg, Launch, Scalar, ceil_div
from oclgen.problem import GemmProblem

MOST_WAVES = 4
"""Whole waves beyond which an idle one costs less than the launches of a tail."""
FULL = 0.7
"""Part of the compute units that the last wave uses at least where a tail gains nothing."""
LARGE = 128 * 128
"""Results of a tile that reuses enough of its operands to be worth a tail."""
MOST_TAILS = 5
"""Guesses with a tail: a search begins with a dozen."""
LEAST_ROUNDS = 4
"""Rounds of the loop over k that a slice of the tail has at least."""


class Config(Protocol):
    """The parameters of a family whose products may have a tail."""

    @property
    def tile_m(self) -> int:
        """Rows of a tile."""

    @property
    def tile_n(self) -> int:
        """Columns of a tile."""

    @property
    def split_k(self) -> int:
        """Slices of k of all rows."""

    @property
    def tail_k(self) -> int:
        """Slices of k of the tail."""

    @property
    def head_tiles(self) -> int:
        """Rows of tiles of the head."""


class Rows(NamedTuple):
    """Rows of C that one launch computes, `first` to `end`, in slices that leave planes if several.

    The matrices and texts are the whole product's: rows of transposed operands stay as long.
    """

    first: int
    end: int
    slices: int

    def of(self, problem: GemmProblem) -> GemmProblem:
        """Return the product of these rows alone: its sizes, not its matrices."""
        is_whole = self.end - self.first == problem.m
        return problem if is_whole else replace(problem, m=self.end - self.first)

    @property
    def argument(self) -> tuple[Arg, ...]:
        """The first row, which the kernel of a tail is told."""
        return (Scalar(self.first),) if self.first else ()


def rows_of(problem: GemmProblem, config: Config) -> tuple[Rows, ...]:
    """Return the rows of each launch of the product: all of them, or head and tail."""
    if config.tail_k == 1:
        return (Rows(0, problem.m, config.split_k),)
    head = config.head_tiles * config.tile_m
    return Rows(0, head, 1), Rows(head, problem.m, config.tail_k)


def bands_of(problem: GemmProblem, config: Config) -> tuple[Band, ...]:
    """Return head and tail as `BaseConfig.bands` has them; nothing where all is one launch."""
    if config.tail_k == 1:
        return ()
    return tuple(Band(one.end - one.first, one.slices) for one in rows_of(problem, config))


def products(
    problem: GemmProblem, config: Config, product: Callable[[Rows], AnyLaunch]
) -> Iterator[Launch | AnyLaunch]:
    """Return the launches of the product, each followed by that which adds its planes, if any.

    Args:
        problem: the product.
        config: with or without a tail.
        product: makes the launch that computes these rows.
    """
    for rows in rows_of(problem, config):
        yield product(rows)
        if rows.slices > 1:
            yield parts.sum_of_planes(problem, rows.slices, rows.first)


def arguments(
    problem: GemmProblem, rows: Rows, multiple: int, packed: dict[str, tuple[Arg, ...]]
) -> tuple[Arg, ...]:
    """Return the arguments of a launch of the product, as `gemm_parts.product_args` has them.

    Args:
        problem: the product.
        rows: of C that the launch computes.
        multiple: slices but the last are whole multiples of it.
        packed: replaces the matrices a or b, by role.
    """
    given = parts.product_args(problem, rows.slices, multiple, packed, (rows.first, rows.end))
    return *given, *rows.argument


def space(problem: GemmProblem, config: Config) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of the workspace of planes; nothing where no reduction is cut."""
    rows = rows_of(problem, config)[-1]
    return planes_space(rows.of(problem), rows.slices)


def conflict(problem: GemmProblem, config: Config, step: int) -> str | None:
    """Say with numbers why the product cannot have this tail, or None.

    Args:
        problem: the product.
        config: with or without a tail.
        step: slices but the last are whole multiples of it.
    """
    if config.tail_k == 1:
        unused = f"head_tiles={config.head_tiles} needs a tail behind it; use 0 where tail_k=1"
        return unused if config.head_tiles else None
    tail = f"tail_k={config.tail_k}"
    if config.split_k > 1:
        return f"{tail} cuts the last rows alone, split_k={config.split_k} all; use 1 of one"
    if not _is_single(problem):
        return f"{tail} is for a single product of fixed sizes; this one is {problem.key()}"
    rows = ceil_div(problem.m, config.tile_m)
    if not 0 < config.head_tiles < rows:
        return f"{tail} needs head_tiles of 1 to {rows - 1}, not {config.head_tiles}"
    return parts.empty_slice(problem.k, config.tail_k, step, "tail_k")


def _is_single(problem: GemmProblem) -> bool:
    return problem.batch == 1 and not problem.ragged and not problem.free


class Tail(NamedTuple):
    """The parameters of a tail, by their names in a config; the defaults are none."""

    tail_k: int = 1
    head_tiles: int = 0


def wanted(problem: GemmProblem, limits: Limits, tile_m: int, tile_n: int, step: int) -> Tail:
    """Return the tail that a product wants whose tiles leave units of the last wave idle, or none.

    Args:
        problem: the product.
        limits: of the device: its compute units.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
        step: slices but the last are whole multiples of it.
    """
    if not _is_single(problem):
        return Tail()
    rows, columns = ceil_div(problem.m, tile_m), ceil_div(problem.n, tile_n)
    waves, rest = divmod(rows * columns, limits.compute_units)
    head = waves * limits.compute_units // columns
    if not (1 <= waves < MOST_WAVES and 0 < rest < FULL * limits.compute_units and head):
        return Tail()
    split = best_split((rows - head) * columns, problem.k, limits, ITEMS_PER_UNIT)
    split = min(split, problem.k // (LEAST_ROUNDS * step))
    if split < 2:
        return Tail()
    return Tail(none_empty(problem.k, split, step), head)


def with_tails(guessed: Iterable[Any], problem: GemmProblem, limits: Limits) -> Iterator[Any]:
    """Return guesses, and behind the first one those of large tiles with the tail they want.

    The largest tiles come first: a tail leaves them no idle units, and they reuse most.

    Args:
        guessed: configs of a family with both parameters, best guess first.
        problem: the product.
        limits: of the device.
    """
    rest = iter(guessed)
    firsts = [*islice(rest, 1)]
    yield from firsts
    others = [*rest]
    large = (one for one in (*firsts, *others) if one.tile_m * one.tile_n >= LARGE)
    tailed = [each for one in large if (each := one.with_tail(problem, limits)).tail_k > 1]
    tailed.sort(key=lambda each: -each.tile_m * each.tile_n)
    valid = (each for each in tailed if each.quick_why_not(problem, limits) is None)
    yield from islice(valid, MOST_TAILS)
    yield from others
