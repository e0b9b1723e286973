"""Makes the model of a kind of device from measured tables.

    python -m benchmarks fit gpu benchmarks/data/choice/*.jsonl.gz

It needs scikit-learn (`pip install 'oclgen[examples]'`); what it writes needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oclgen.predictor
from benchmarks.choice.cases import Case, cases_of
from oclgen.predictor.forest import Forest
from oclgen.predictor.model import Model

ROUNDS = {"cpu": (350, 0.06, 6), "gpu": (400, 0.05, 12)}
"""Trees, the part of its prediction that each adds, and fewest measurements of a leaf: small steps
of more trees average what single ones guess. docs/notebook.md has what else was tried."""
FORESTS = 3
"""Forests of different seeds whose mean predicts: each guesses near variants otherwise."""
LEAVES, DEEPEST = 24, 9
FEATURES, SAMPLES = 0.35, 0.7
"""Parts of features and of measurements that a tree sees."""
FOLDER = Path(oclgen.predictor.__file__).parent


def fit(cases: Sequence[Case], seed: int = 0) -> Model:
    """Return the model that predicts best how the variants of these problems compare.

    What is near its problem's best counts most: that is what has to be told apart.
    """
    names = tuple(sorted({name for case in cases for each in case.features for name in each}))
    families = tuple(sorted({one.family for case in cases for one in case.variants}))
    empty = Model(names, families, NOTHING)
    rows = np.array(
        [
            empty.row(variant, each)
            for case in cases
            for variant, each in zip(case.variants, case.features, strict=True)
        ],
        dtype=np.float32,
    )
    excess = np.concatenate([np.log2(case.ms / case.least_ms) for case in cases])
    weights = np.concatenate([case.ms.min() / case.ms for case in cases])
    count, rate, least = ROUNDS[cases[0].kind]
    from sklearn.ensemble import GradientBoostingRegressor  # 2 s, for what fits alone

    forests = [
        GradientBoostingRegressor(
            n_estimators=count, learning_rate=rate, max_leaf_nodes=LEAVES, max_depth=DEEPEST,
            min_samples_leaf=least, max_features=FEATURES, subsample=SAMPLES,
            random_state=seed + each,
        ).fit(rows, excess, sample_weight=np.sqrt(weights))
        for each in range(FORESTS)
    ]  # fmt: skip
    return Model(names, families, _forest(forests))


def _forest(forests: Sequence[Any]) -> Forest:
    """Return the mean of forests, as one of all their trees."""
    parts = [tree.tree_ for trees in forests for tree in trees.estimators_.ravel()]
    roots = np.cumsum([0, *(part.node_count for part in parts[:-1])])
    own = np.concatenate(
        [root + np.arange(p.node_count) for root, p in zip(roots, parts, strict=True)]
    )

    def children(side: str) -> NDArray[np.int32]:
        found = [
            np.where(getattr(p, side) >= 0, root + getattr(p, side), -1)
            for root, p in zip(roots, parts, strict=True)
        ]
        joined = np.concatenate(found)
        return np.where(joined >= 0, joined, own).astype(np.int32)

    leaves = np.concatenate([p.value.ravel() for p in parts])
    return Forest(
        feature=np.concatenate([np.maximum(p.feature, 0) for p in parts]).astype(np.int16),
        threshold=np.concatenate([p.threshold for p in parts]).astype(np.float32),
        left=children("children_left"),
        right=children("children_right"),
        value=(forests[0].learning_rate / len(forests) * leaves).astype(np.float32),
        roots=roots.astype(np.int32),
        base=float(forests[0].init_.constant_.ravel()[0]),
        depth=max(p.max_depth for p in parts),
    )


_NO_INDEX, _NO_NUMBER = np.zeros(0, np.int32), np.zeros(0, np.float32)
NOTHING = Forest(
    np.zeros(0, np.int16), _NO_NUMBER, _NO_INDEX, _NO_INDEX, _NO_NUMBER, _NO_INDEX, 0.0, 0
)
"""What predicts nothing: the names of columns are known before there are trees."""


def main(kind: str, tables: Sequence[Path]) -> None:
    """Write the model of a kind of device from the tables of such devices."""
    cases = [case for table in tables for case in cases_of(table) if case.kind == kind]
    model, path = fit(cases), FOLDER / f"{kind}.npz"
    with path.open("wb") as file:
        model.save(file)
    print(f"{path}: {sum(len(case.ms) for case in cases)} measurements of {len(cases)} problems")
