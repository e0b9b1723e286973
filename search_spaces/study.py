"""A search as a study of Optuna: its trials, in memory or in a database that others can watch.

The search decides which parameters come next, through Optuna's interface for samplers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import isfinite
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.WARNING)

Params = dict[str, Any]

CONFIG = "config"
"""User attribute of a trial whose values are no choices of the study: all its params, by name."""


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
        """Return the next params.

        Args:
            study: of the trial; the search knows its results by itself.
            trial: the trial to choose for.
            search_space: its parameters.
        """
        return self._suggest()

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Refuse: one parameter by itself need not be valid with the others.

        Args:
            study: of the trial.
            trial: the trial to choose for.
            param_name: the parameter that Optuna asks for by itself.
            param_distribution: its values.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"{param_name} is only chosen together with the others")


class Study:
    """Trials over `values` by parameter; with a storage, an older study of that name goes on.

    It is made with its first trial, so that a search without one leaves no empty study. `more` are
    params that may be tried although some of their values are none of `values`: what they hold
    becomes a choice, too. A trial whose values are no choices, since the study in the storage is
    older than them, has its params as the user attribute `CONFIG`.

    Args:
        values: The values of each parameter.
        suggest: Returns the params that `ask` begins a trial with.
        name: The study's name in the storage.
        storage: A URL as Optuna takes it, None for memory.
        more: Params outside of `values`.
    """

    def __init__(
        self,
        values: Mapping[str, tuple[Any, ...]],
        suggest: Callable[[], Params],
        name: str = "",
        storage: str | None = None,
        more: Iterable[Params] = (),
    ) -> None:
        others = list(more)
        self._choices = {
            parameter: tuple(dict.fromkeys([*known, *(one[parameter] for one in others)]))
            for parameter, known in values.items()
        }
        self._suggest, self._name, self._storage = suggest, name, storage
        self._asked: dict[tuple[Any, ...], Trial] = {}

    @cached_property
    def _study(self) -> optuna.Study:
        return optuna.create_study(
            study_name=self._name or None, storage=self._storage, load_if_exists=True
        )

    @cached_property
    def _distributions(self) -> dict[str, BaseDistribution]:
        """Optuna holds a parameter to the choices that its study began with."""
        fresh: dict[str, BaseDistribution] = {
            parameter: CategoricalDistribution(choices)
            for parameter, choices in self._choices.items()
        }
        for trial in self._study.get_trials(deepcopy=False):
            if trial.distributions.keys() == fresh.keys():
                return dict(trial.distributions)
        return fresh

    @cached_property
    def _told(self) -> set[tuple[Any, ...]]:
        ended = (TrialState.COMPLETE, TrialState.FAIL)
        trials = self._study.get_trials(deepcopy=False, states=ended)
        found = (trial.params or trial.user_attrs.get(CONFIG, {}) for trial in trials)
        return {self._key(params) for params in found if params.keys() == self._choices.keys()}

    def ask(self) -> Params:
        """Begin a trial with the params that are suggested."""
        params = self._suggest()
        if self._covers(params):
            self._study.sampler = Sampler(self._distributions, lambda: params)
            self._asked[self._key(params)] = self._study.ask(self._distributions)
        return params

    def tell(self, params: Params, ms: float) -> None:
        """End a trial, or enter one that was made elsewhere; infinite milliseconds: it failed."""
        key = self._key(params)
        value = ms if isfinite(ms) else None
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        if trial := self._asked.pop(key, None):
            self._study.tell(trial, value, state)
        elif key not in self._told:
            covered = self._covers(params)
            made = create_trial(
                params=params if covered else {},
                distributions=self._distributions if covered else {},
                user_attrs={} if covered else {CONFIG: params},
                value=value,
                state=state,
            )
            self._study.add_trial(made)
        self._told.add(key)

    def _covers(self, params: Params) -> bool:
        return all(
            isinstance(known := self._distributions[parameter], CategoricalDistribution)
            and value in known.choices
            for parameter, value in params.items()
        )

    def _key(self, params: Params) -> tuple[Any, ...]:
        return tuple(params[parameter] for parameter in self._choices)
