"""Forests that many rows walk at once: they end where each row ends that walks alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from oclgen.predictor.forest import ROWS, Forest
from oclgen.predictor.model import shipped

ONE_LEAF = Forest(
    feature=np.zeros(1, np.int16),
    threshold=np.zeros(1, np.float32),
    left=np.zeros(1, np.int32),
    right=np.zeros(1, np.int32),
    value=np.array([2.5], np.float32),
    roots=np.zeros(1, np.int32),
    base=1.0,
    depth=0,
)


def alone(forest: Forest, row: Sequence[float]) -> np.float32:
    """Return the prediction for a row by the definition of a tree."""
    added = []
    for node in forest.roots:
        while forest.left[node] != node:
            is_left = row[forest.feature[node]] <= forest.threshold[node]
            node = forest.left[node] if is_left else forest.right[node]
        added.append(forest.value[node])
    return np.array(added, np.float32).sum(dtype=np.float32) + np.float32(forest.base)


def drawn(forest: Forest, columns: int, count: int) -> NDArray[np.float32]:
    """Return rows of thresholds, of which each column draws its own, and of what lies between."""
    random = np.random.default_rng(3211476107)
    rows = np.empty((count, columns), np.float32)
    for column in range(columns):
        own = forest.threshold[forest.feature == column]
        values = np.concatenate((own, own + np.float32(0.5), [np.float32(-99)]))
        rows[:, column] = random.choice(values, count)
    return rows


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("count", [1, 5, ROWS, ROWS + 3])
def test_rows_that_walk_together_end_as_alone(kind: str, count: int) -> None:
    model = shipped(kind)
    assert model is not None
    forest = model.forest
    rows = drawn(forest, len(model.blank), count)
    found = forest.predict(rows)
    chosen = sorted({0, count // 2, count - 1})
    assert found[chosen].tolist() == [alone(forest, rows[at]).item() for at in chosen]


def test_no_row_has_no_prediction() -> None:
    assert ONE_LEAF.predict(np.empty((0, 1), np.float32)).tolist() == []


def test_a_tree_may_be_one_leaf() -> None:
    assert ONE_LEAF.predict(np.zeros((3, 1), np.float32)).tolist() == [3.5] * 3
