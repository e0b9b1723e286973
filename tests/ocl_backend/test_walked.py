"""The shim walks the model's trees to the numbers that numpy finds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ocl_backend.dispatch import walked
from oclgen.predictor import forest
from oclgen.predictor.model import shipped
from tests.oclgen.test_forest import ONE_LEAF, drawn


@pytest.fixture(autouse=True)
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing compiled walks, until a test says so."""
    monkeypatch.setattr(forest, "_compiled", [])
    yield


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("count", [1, 5, 16, 17, forest.ROWS, forest.ROWS + 3])
def test_the_shim_ends_where_numpy_ends(kind: str, count: int) -> None:
    model = shipped(kind)
    assert model is not None
    rows = drawn(model.forest, len(model.blank), count)
    expected = model.forest.predict(rows)
    walked.register()
    assert model.forest.predict(rows).tolist() == expected.tolist()


def test_a_tree_of_one_leaf_and_no_rows() -> None:
    walked.register()
    assert ONE_LEAF.predict(np.zeros((3, 1), np.float32)).tolist() == [3.5] * 3
    assert ONE_LEAF.predict(np.empty((0, 1), np.float32)).tolist() == []
