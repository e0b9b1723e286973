"""Sizes that vary from call to call: one plan's text serves all of them.

The rows of a product may be the words of a batch, and the images of a convolution differ in number
at every step. A program for each size would take seconds to build, and memory that is never freed.
So a size with more than `FIXED` values is free: the kernels take it as an argument, and a variant
is chosen for a typical size of each range. A problem that was measured keeps its own kernels.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from operator import attrgetter
from threading import Lock
from typing import Any, cast

from oclgen.plan import Plan
from oclgen.predictor.model import has_model
from oclgen.problem import (
    GemmProblem,
    Known,
    PackedProblem,
    Problem,
    has_volume,
    is_ragged,
    with_sizes,
)
from oclgen.remembered import of_user
from oclgen.variant import Variant
from tuned_db import Choice, Chooser, NoVariantError

FIXED = 4
"""Values of a size that have kernels of their own: whole and last batches in training, test."""
RANGE = 4
"""Ratio of the ends of a range of sizes that one variant serves."""
MANY = 16
"""Values of a size from which on its own kernels do not pay, however much faster they are: a build
takes as long as thousands of runs."""
MOST_SHAPES = 4096
"""Bound of shapes whose sizes are watched, and of choices for free sizes."""
SLOWER = 1.25
"""How much slower than a size's own kernels those of a free size may be predicted, and serve."""

SHAPES: dict[str, tuple[tuple[str, ...], ...]] = {
    "gemm": (("m",), ("n",), ("k",)),
    "batched gemm": (("batch", "m", "n"), ("batch", "m", "k"), ("batch", "n", "k")),
    "conv": (("batch",),),
    "attention": (("batch",), ("queries",), ("keys",), ("queries", "keys")),
    "packed": (("m",),),
}
"""Sizes that may vary together while all others stay. A layer's are watched one by one, since
layers of a network differ in two; those of batched products in threes, and attention's queries and
keys grow together."""


@dataclass(slots=True)
class _Met:
    """Values of a shape's sizes that were met, up to one more than `MANY`, and which varied.

    Tuples, since most shapes are met with one value, and an empty set takes 0.2 KiB.
    """

    values: tuple[tuple[int, ...], ...]
    varied: frozenset[str] = frozenset()

    def meet(self, names: tuple[str, ...], values: tuple[int, ...]) -> None:
        """Note these values of the sizes with these names."""
        if len(self.values) <= MANY and values not in self.values:
            self.values += (values,)
        if values != (first := self.values[0]):
            pairs = zip(names, values, first, strict=True)
            self.varied |= {name for name, value, other in pairs if value != other}


class Varying:
    """What a device's calls showed to vary; for many threads."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self._met: OrderedDict[int, _Met] = OrderedDict()
        """By hashes of the names of sizes, and of all of the problem but these: thousands of shapes
        are met once, and their keys would take more than their values."""
        self._choices: dict[tuple[Problem, bool], Choice | None] = {}
        """By typical problems, and whether many values of their sizes were met."""
        self._lock = Lock()

    def form(self, problem: Known) -> Known:
        """Return the problem with those sizes free that vary, if kernels with such sizes serve it.

        Not where something was measured for this very problem. Sizes that a caller sets free stay.
        """
        if problem.free:
            return problem
        sizes, are_many = self._varied(problem)
        if not sizes or self._chooser.was_measured(problem):
            return problem
        free = replace(problem, free=sizes)
        return problem if self._choice(typical(free), are_many) is None else free

    def _varied(self, problem: Problem) -> tuple[frozenset[str], bool]:
        """Return the sizes of which more than `FIXED` values were met, this one among them.

        Of any of them more than `MANY` were met if the second is true. Windows of volumes come in
        multiples, so that their number is no free size.
        """
        if has_volume(problem):
            return frozenset(), False
        if isinstance(problem, PackedProblem) and problem.m == 1:
            return frozenset(), False  # a token's row: prompts of many lengths do not concern it
        is_batched = isinstance(problem, GemmProblem) and problem.batch > 1
        varied: set[str] = set()
        are_many, kind = False, cast(Hashable, type(problem))
        with self._lock:
            for names in SHAPES["batched gemm" if is_batched else problem.op]:
                values = tuple(getattr(problem, name) for name in names)
                shape = hash((names, kind, _others(kind, names)(problem)))
                met = self._met.setdefault(shape, _Met((values,)))
                self._met.move_to_end(shape)
                met.meet(names, values)
                if len(met.values) > FIXED:
                    varied |= met.varied
                    are_many |= len(met.values) > MANY
            while len(self._met) > MOST_SHAPES:
                self._met.popitem(last=False)
        return frozenset(varied), are_many

    def _choice(self, free: Problem, are_many: bool) -> Choice | None:
        """Return the choice for free sizes, None if the problem's own kernels are better."""
        if (free, are_many) not in self._choices:
            if len(self._choices) >= MOST_SHAPES:
                self._choices.clear()
            self._choices[free, are_many] = self._worthwhile(free, are_many)
        return self._choices[free, are_many]

    def _worthwhile(self, free: Problem, are_many: bool) -> Choice | None:
        try:
            choice = self._chooser.choose(free)
            limits = self._chooser.limits
            if are_many or limits.kind == "cpu" or not has_model(free, limits):
                return choice  # every family of CPUs has free sizes, and a build takes a second
            own = self._chooser.choose(replace(free, free=frozenset()))
        except NoVariantError:
            return None
        time = own.cost if own.ms is None else own.ms
        return choice if choice.cost <= SLOWER * time else None


@cache
def _others(kind: Any, names: tuple[str, ...]) -> Callable[[Problem], Hashable]:
    """Return what reads all of such a problem but sizes: to make one without them takes 5 us."""
    return attrgetter(*(each.name for each in fields(kind) if each.name not in names))


class Forms:
    """Which texts differ in sizes alone, and are too many to have a program each; for threads."""

    def __init__(self) -> None:
        self._met: OrderedDict[int, set[int]] = OrderedDict()
        self._lock = Lock()

    def vary(self, free: Hashable, own: Hashable) -> bool:
        """Say whether more than `FIXED` were met of those that are one if their sizes are free.

        Args:
            free: what serves all sizes.
            own: what serves one.
        """
        with self._lock:
            met = self._met.setdefault(hash(free), set())
            self._met.move_to_end(hash(free))
            if len(met) <= FIXED:
                met.add(hash(own))
            while len(self._met) > MOST_SHAPES:
                self._met.popitem(last=False)
            return len(met) > FIXED


def typical(problem: Known) -> Known:
    """Return the problem by which a variant is chosen: free sizes are their range's largest.

    A ragged size is near its mean: a batch item has less or more rows, and tiles of rows that its
    items do not fill are computed for nothing.
    """
    if not problem.free:
        return problem
    near = _halfway if is_ragged(problem) else _largest
    sizes = tuple((name, near(getattr(problem, name))) for name in sorted(problem.free))
    others = _others(cast(Hashable, type(problem)), tuple(name for name, _ in sizes))
    found = _typical.get(key := (type(problem), sizes, others(problem)))
    if found is None:
        if len(_typical) >= MOST_SHAPES:
            _typical.clear()
        found = _typical[key] = with_sizes(problem, dict(sizes))
    return cast(Known, found)


_typical: dict[Hashable, Problem] = {}
"""Typical problems by kind, free sizes and all else: to make one takes some 50 us."""


def plan(variant: Variant, problem: Problem) -> Plan:
    """Return the plan of a problem; with free sizes its texts are those of the typical problem."""
    whole = variant.plan(problem)
    texts = _texts(variant, typical(problem))
    launches = zip(whole.launches, texts, strict=True)
    return replace(whole, launches=tuple(replace(one, text=text) for one, text in launches))


@lru_cache(maxsize=1024)
def _texts(variant: Variant, problem: Problem) -> tuple[str, ...]:
    """Return the texts of a plan's launches: to render them takes some 10 ms, unless they are kept.

    A plan is made from a variant and a problem alone, so these name its texts. Equal texts of
    several ranges are one object: each has some 10 KiB.
    """
    made_from = "texts", variant.to_text(), problem.key()
    if (kept := of_user().get(*made_from)) is not None:
        return tuple(map(sys.intern, kept))
    texts = tuple(sys.intern(launch.source) for launch in variant.plan(problem).launches)
    of_user().put(texts, *made_from)
    return texts


def _halfway(size: int) -> int:
    """Return the middle of a size's range: these end at the powers of 2."""
    end = 1 << (size - 1).bit_length()
    return end - end // 4


def _largest(size: int) -> int:
    """Return the largest size of its range: the ranges end at the powers of `RANGE`."""
    end = 1
    while end < size:
        end *= RANGE
    return end
