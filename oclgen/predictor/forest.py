"""Boosted regression trees as arrays (Friedman 2001), evaluated by numpy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Forest:
    """The nodes of all trees, one behind the other; a leaf leads to itself.

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

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return one number per row of [rows, features]."""
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        row = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            is_left = rows[row, self.feature[at]] <= self.threshold[at]
            at = np.where(is_left, self.left[at], self.right[at])
        summed: NDArray[np.float32] = self.value[at].sum(axis=1, dtype=np.float32)
        return summed + np.float32(self.base)
