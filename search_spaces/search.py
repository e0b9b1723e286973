"""Which config of a family to try next: where a Gaussian process expects most, none asked twice.

It measures nothing; `tune` hands it the times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache, cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.space import Space
from search_spaces.study import Study
from search_spaces.surrogate import Surrogate, expected_improvement, flatten

START_COLD, START_WARM = 10, 6
"""Configs that are known before the process is believed: random ones, or first of all seeds, in
their order. From then on the seeds left are mere candidates: another device's can all be bad."""
RANDOM_CANDIDATES = 2000
NEAR_BEST, NEAR_STEPS = 3, 2
"""Candidates are drawn at random; with them come all configs that differ from one of the best three
in at most two parameters. In a large space, fast configs have fast neighbours."""
BESIDE_STEPS = 1
"""Every second suggestion differs from the best known config in this many parameters. Where fast
configs are rare, the process alone would ask for unknown configs far away from them."""
FIT_AGAIN = 1.15
"""The process is fitted anew once this many times as many configs are known."""


class Search:
    """Asks for one config after the other: seeds first, a few at random, then the most promising.

    Bayesian optimisation by expected improvement over the valid configs, every second time over
    those beside the best one; `docs/search.md` compares it with others on public tables. They are
    enumerated once the seeds are used up.

    Any number of configs may be asked for before the first is told, so that they can be built
    ahead: what is under way counts as if it came out as expected (Ginsbourger, Le Riche and Carraro
    2010). It is a study of Optuna, kept in `storage` under `name` where there is one.
    """

    def __init__(
        self,
        space: Space,
        seeds: Iterable[Any],
        seed: int = 0,
        name: str = "",
        storage: str | None = None,
    ) -> None:
        self.best_ms = inf
        values = dict(zip(space.names, space.values, strict=True))
        self._space = space
        self._row_of = cache(space.row_of)
        self._seeds = list(dict.fromkeys(seeds))
        self._study = Study(values, self._next_params, name, storage, map(asdict, self._seeds))
        self._random = np.random.default_rng(seed)
        self._tried: set[Any] = set()
        self._known: dict[Any, float] = {}
        self._pending: list[Any] = []
        self._fit_at = 0.0
        self._is_closed = False

    @cached_property
    def _surrogate(self) -> Surrogate:
        return Surrogate(self._space)

    @cached_property
    def _free(self) -> NDArray[np.bool_]:
        """Of each row of the space whether it was neither asked for nor told."""
        free = np.ones(len(self._space), dtype=np.bool_)
        free[self._rows(self._tried)] = False
        return free

    @property
    def exhausted(self) -> bool:
        """Whether every seed and every valid point was tried, or the search is closed."""
        tried = all(seed in self._tried for seed in self._seeds)
        return self._is_closed or (tried and not self._free.any())

    def ask(self) -> Any:
        """Return a config that was never asked for nor told; `tell` must follow, in any order.

        Raises:
            StopIteration: the space is exhausted.
        """
        if self._due_seed() is None and not self._free.any():
            raise StopIteration("every valid config was tried")
        config = self._space.kind(**self._study.ask())
        if self._mark(config):
            self._pending.append(config)
        return config

    def close(self) -> None:
        """Try nothing more; `tell` still takes in what was asked for."""
        self._is_closed = True

    def tell(self, config: Any, ms: float) -> None:
        """Take in the time of a config, asked for or known from before; infinite for a failure."""
        is_inside = self._mark(config)
        self.best_ms = min(self.best_ms, ms)
        self._study.tell(asdict(config), ms)
        if is_inside:
            self._known[config] = min(ms, self._known.get(config, inf))
            if config in self._pending:
                self._pending.remove(config)

    @property
    def starting(self) -> bool:
        """Whether the next config rests on no result: too few are known for that."""
        enough = START_WARM if self._seeds else START_COLD
        return len(self._known) + len(self._pending) < enough

    def _due_seed(self) -> Any:
        return next((seed for seed in self._seeds if self._is_due(seed)), None)

    def _next_params(self) -> dict[str, Any]:
        """Return what the study is to try next: a seed whose turn it is, or the best guess."""
        seed = self._due_seed()
        return asdict(self._space.config(self._suggest()) if seed is None else seed)

    def _is_due(self, seed: Any) -> bool:
        """Say whether a seed is next: nothing can be expected of one outside of the space."""
        return seed not in self._tried and (self.starting or seed not in self._space)

    def _suggest(self) -> int:
        """Return a free row: random at first, then that of the largest expected improvement."""
        if self.starting or min(self._known.values(), default=inf) == inf:
            return int(self._random.choice(np.flatnonzero(self._free)))
        rows = self._rows(self._known)
        values = flatten(np.fromiter(self._known.values(), dtype=np.float64))
        if len(rows) >= self._fit_at:
            self._surrogate.fit(rows, values)
            self._fit_at = FIT_AGAIN * len(rows)
        ranked = rows[np.argsort(values)]
        is_local = (len(self._known) + len(self._pending)) % 2 == 1
        beside = self._beside(int(ranked[0])) if is_local else ranked[:0]
        candidates = beside if len(beside) else self._candidates(ranked)
        best = float(values.min())
        if self._pending:
            pending = self._rows(self._pending)
            expected, _ = self._surrogate.predict(rows, values, pending)
            rows, values = np.append(rows, pending), np.append(values, expected)
        mean, deviation = self._surrogate.predict(rows, values, candidates)
        return int(candidates[np.argmax(expected_improvement(mean, deviation, best))])

    def _beside(self, best: int) -> NDArray[np.intp]:
        """Return the free rows beside the row `best`."""
        near = self._space.near(best, BESIDE_STEPS)
        return near[self._free[near]]

    def _candidates(self, ranked: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return free rows: at random, near the best, and all seeds."""
        free = np.flatnonzero(self._free)
        drawn = self._random.choice(free, min(RANDOM_CANDIDATES, len(free)), replace=False)
        near = [self._space.near(row, NEAR_STEPS) for row in ranked[:NEAR_BEST]]
        others = (*near, self._rows(self._seeds))
        return np.unique(np.concatenate([drawn, *(rows[self._free[rows]] for rows in others)]))

    def _mark(self, config: Any) -> bool:
        """Take a config off the free ones and say whether it is in the space."""
        self._tried.add(config)
        if "_free" in vars(self):
            self._free[self._rows([config])] = False
        return config in self._space

    def _rows(self, configs: Iterable[Any]) -> NDArray[np.intp]:
        """Return the rows of those configs that are in the space, in their order."""
        found = map(self._row_of, configs)
        return np.array([row for row in found if row is not None], dtype=np.intp)
