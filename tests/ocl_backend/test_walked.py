"""The shim walks the model's trees to the numbers that numpy finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocl_backend.dispatch import walked
from oclgen.predictor import forest
from oclgen.predictor.model import shipped
from tests.oclgen.test_forest import ONE_LEAF, drawn


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiled walks, until a test says so."""
    monkeypatch.setattr(forest, "_compiled", [])


@pytest.mark.usefixtures("numpy_alone")
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("count", [1, 5, 16, 17, forest.ROWS, forest.ROWS + 3])
def test_the_shim_ends_where_numpy_ends(kind: str, count: int) -> None:
    model = shipped(kind)
    assert model is not None
    rows = drawn(model.forest, len(model.blank), count)
    expected = model.forest.predict(rows)
    walked.register()
    assert model.forest.predict(rows).tolist() == expected.tolist()


@pytest.mark.usefixtures("numpy_alone")
def test_a_tree_of_one_leaf_and_no_rows() -> None:
    walked.register()
    assert ONE_LEAF.predict(np.zeros((3, 1), np.float32)).tolist() == [3.5] * 3
    assert ONE_LEAF.predict(np.empty((0, 1), np.float32)).tolist() == []


def test_the_shim_walks_once_devices_are_open() -> None:
    assert torch.zeros(1, device="ocl").item() == 0
    assert forest._compiled == [walked._walk]
