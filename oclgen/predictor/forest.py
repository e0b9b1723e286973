"""Boosted regression trees as arrays (Friedman 2001), evaluated by numpy or by compiled code.

Rows are alike: the candidates for one problem reach few different nodes of a tree. So all trees are
walked once for up to `ROWS` rows, of which each is a bit of an integer: a node has the bits of the
rows that reach it, and hands those that pass its test to the left, the others to the right. Numpy
does so for all nodes of a depth, compiled code (`walk_by`) for those alone that a row reaches, in a
sixth of the time; both find the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS = 32
"""Rows that are evaluated at once: bits of an integer."""

Indexes = NDArray[np.intp]
Bits = NDArray[np.uint32]
Walk = Callable[[NDArray[np.void], NDArray[np.int32], NDArray[np.float32]], NDArray[np.float32]]
"""Given nodes as `NODE`, roots and up to `ROWS` rows, returns what trees add, [rows, trees]."""
NODE = np.dtype([("value", "f4"), ("column", "u2"), ("left", "u1"), ("right", "u1")])
"""A node for compiled code: its threshold, or what a leaf adds; the children are so many nodes
behind it, and a leaf has none."""

_compiled: list[Walk] = []


def walk_by(walk: Walk) -> None:
    """Let compiled code walk all forests of this process from now on."""
    _compiled[:] = [walk]


class Tests(NamedTuple):
    """The different tests of a forest, sorted.

    Attributes:
        keys: column and threshold of each, as real and imaginary part, by which numpy sorts.
        columns: its column.
    """

    keys: NDArray[np.complex64]
    columns: Bits

    def passed(self, rows: NDArray[np.float32]) -> Bits:
        """Return the bits of those rows of [rows, columns] that each test sends to the left.

        A row enters at the first test of a column that it passes, and passes the later ones. It
        enters once for each column, so a sum over the tests in their order counts all rows once for
        each column before.
        """
        count, columns = rows.shape
        values = np.empty((columns, count), np.complex64)
        values.real, values.imag = np.arange(columns)[:, None], rows.T
        first = self.keys.searchsorted(values.ravel())
        bits = np.tile(2.0 ** np.arange(count), columns)
        entered = np.bincount(first, bits, len(self.keys) + 1)[:-1].astype(np.int64)
        # sums are beyond 32 bits, but not their difference: both are taken modulo 2**32
        summed = np.cumsum(entered.astype(np.uint32), dtype=np.uint32)
        before: Bits = self.columns * np.uint32((1 << count) - 1)
        return summed - before


class Level(NamedTuple):
    """Nodes of one depth, the left children of the nodes above and then the right ones.

    Attributes:
        inner: those of them that test.
        tests: the test of each of these.
    """

    inner: Indexes
    tests: Indexes


@dataclass(frozen=True, eq=False)
class Forest:
    """The nodes of all trees, one after the other; a leaf leads to itself.

    Attributes:
        feature: column that a node asks.
        threshold: what it goes left up to, and right beyond.
        left, right: next nodes.
        value: what a leaf adds.
        roots: first node of each tree.
        base: what the leaves are added to.
        depth: most steps from a root to a leaf.
    """

    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    base: float
    depth: int

    @cached_property
    def _is_inner(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.left != np.arange(len(self.left))
        return found

    @cached_property
    def _tests(self) -> tuple[Tests, Indexes]:
        """Return the tests, and that of each node; of leaves none is said."""
        inner = np.flatnonzero(self._is_inner)
        columns, thresholds = self.feature.take(inner), self.threshold.take(inner)
        order = np.lexsort((thresholds, columns))
        columns, thresholds = columns.take(order), thresholds.take(order)
        is_new = np.ones(len(order), bool)
        is_new[1:] = (columns[1:] != columns[:-1]) | (thresholds[1:] != thresholds[:-1])
        of_nodes = np.zeros(len(self.left), np.intp)
        of_nodes[inner.take(order)] = np.cumsum(is_new) - 1
        keys = np.empty(np.count_nonzero(is_new), np.complex64)
        keys.real, keys.imag = columns[is_new], thresholds[is_new]
        return Tests(keys, columns[is_new].astype(np.uint32)), of_nodes

    @cached_property
    def _levels(self) -> tuple[list[Level], Indexes, NDArray[np.float32]]:
        """Return the levels, where the leaves stand in them, tree by tree, and their values."""
        nodes = self.roots.astype(np.intp)
        levels, every = [], [nodes]
        for _ in range(self.depth):
            inner = np.flatnonzero(self._is_inner.take(nodes))
            parents = nodes.take(inner)
            levels.append(Level(inner, self._tests[1].take(parents)))
            nodes = np.concatenate((self.left.take(parents), self.right.take(parents)))
            every.append(nodes)
        places = np.empty(len(self.left), np.intp)
        places[np.concatenate(every)] = np.arange(len(places))
        leaves = np.flatnonzero(~self._is_inner)
        return levels, places.take(leaves), self.value.take(leaves)

    @cached_property
    def _packed(self) -> NDArray[np.void]:
        """Return the nodes for compiled code."""
        here = np.arange(len(self.left))
        nodes = np.empty(len(here), NODE)
        nodes["value"] = np.where(self._is_inner, self.threshold, self.value)
        nodes["column"] = np.where(self._is_inner, self.feature, 0)
        for side, child in (("left", self.left), ("right", self.right)):
            behind = np.where(self._is_inner, child - here, 0)
            assert behind.max() <= np.iinfo(np.uint8).max, "a tree has too many nodes"
            nodes[side] = behind
        return nodes

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return one number per row of finite numbers, [rows, features]."""
        parts = [self._some(rows[at : at + ROWS]) for at in range(0, len(rows), ROWS)]
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    def _some(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        added = _compiled[0](self._packed, self.roots, rows) if _compiled else self._added(rows)
        summed: NDArray[np.float32] = added.sum(axis=1, dtype=np.float32)
        return summed + np.float32(self.base)

    def _added(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what each tree adds for each row, [rows, trees]."""
        levels, leaves, values = self._levels
        passed = self._tests[0].passed(rows)
        reached = np.full(len(self.roots), (1 << len(rows)) - 1, np.uint32)
        reaching = [reached]
        for inner, tests in levels:  # `take` is several times as fast as an index
            here = reached.take(inner)
            to_left = here & passed.take(tests)
            reached = np.concatenate((to_left, here ^ to_left))
            reaching.append(reached)
        of_leaves = np.concatenate(reaching).take(leaves)
        found = np.flatnonzero(of_leaves != 0)
        numbers = np.arange(len(rows))[:, None]
        is_reached = of_leaves.take(found) & (1 << numbers).astype(np.uint32) != 0
        # a row reaches one leaf of each tree
        at = np.flatnonzero(is_reached).reshape(len(rows), -1) - len(found) * numbers
        return values.take(found).take(at)
