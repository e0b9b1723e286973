"""A search as a study of Optuna: its trials, in memory or in a database that others watch.

Which params are next is decided by who opens it, through Optuna's interface for samplers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.WARNING)

Params = dict[str, Any]


class Sampler(BaseSampler):
    """Gives Optuna the params that `suggest` returns: parameters are chosen together."""

    def __init__(
        self, distributions: dict[str, BaseDistribution], suggest: Callable[[], Params]
    ) -> None:
        self._distributions, self._suggest = distributions, suggest

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return all parameters."""
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Params:
        """Return the next params."""
        return self._suggest()

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Refuse: one parameter by itself need not be valid with the others."""
        raise NotImplementedError(f"{param_name} is only chosen together with the others")


class Study:
    """Trials over `values` by parameter; with a storage, an older study of that name goes on.

    `storage` is a URL as Optuna takes it, None for memory.
    """

    def __init__(
        self,
        values: Mapping[str, tuple[Any, ...]],
        suggest: Callable[[], Params],
        name: str = "",
        storage: str | None = None,
    ) -> None:
        self._distributions: dict[str, BaseDistribution] = {
            parameter: CategoricalDistribution(choices) for parameter, choices in values.items()
        }
        self._study = optuna.create_study(
            study_name=name or None,
            storage=storage,
            sampler=Sampler(self._distributions, suggest),
            load_if_exists=True,
        )
        self._asked: dict[tuple[Any, ...], Trial] = {}
        ended = (TrialState.COMPLETE, TrialState.FAIL)
        self._told = {
            tuple(trial.params[parameter] for parameter in values)
            for trial in self._study.get_trials(deepcopy=False, states=ended)
            if len(trial.params) == len(values)
        }

    def ask(self) -> Params:
        """Begin a trial with the params that are suggested."""
        trial = self._study.ask(self._distributions)
        self._asked[self._key(trial.params)] = trial
        return trial.params

    def tell(self, params: Params, ms: float) -> None:
        """End a trial, or enter one that was made elsewhere; infinite milliseconds: it failed."""
        key = self._key(params)
        value = ms if isfinite(ms) else None
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        if trial := self._asked.pop(key, None):
            self._study.tell(trial, value, state)
        elif key not in self._told:
            made = create_trial(
                params=params, distributions=self._distributions, value=value, state=state
            )
            self._study.add_trial(made)
        self._told.add(key)

    def _key(self, params: Params) -> tuple[Any, ...]:
        return tuple(params[parameter] for parameter in self._distributions)
