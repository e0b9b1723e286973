"""A search is a study of Optuna: each trial once, with its params, also in a database."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import optuna
import pytest

from search_spaces.search import Search
from search_spaces.space import product_space
from search_spaces.study import CONFIG
from tests.search_spaces.synthetic import VALUES, Config, cost

SPACE = product_space(Config, VALUES, lambda config: config.valid)


def trials(storage: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="mine", storage=storage).trials


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'study.sqlite'}"
    url: str = request.getfixturevalue("postgres")
    return url.replace("postgresql://", "postgresql+psycopg://")


def test_a_study_in_a_database_goes_on_and_holds_every_trial_once(storage: str) -> None:
    first = Search(SPACE, [SPACE.config(7)], name="mine", storage=storage)
    known = []
    for _ in range(3):
        config = first.ask()
        known.append((config, cost(config)))
        first.tell(*known[-1])
    lost = first.ask()  # its process dies before it is told
    again = Search(SPACE, [], name="mine", storage=storage)
    for config, ms in known:
        again.tell(config, ms)
    again.tell(failed := again.ask(), inf)
    found = trials(storage)
    assert [SPACE.kind(**trial.params) for trial in found] == [*(c for c, _ in known), lost, failed]
    assert [trial.value for trial in found[:3]] == [ms for _, ms in known]
    states = [trial.state.name for trial in found]
    assert states == ["COMPLETE"] * 3 + ["RUNNING", "FAIL"]


def outside(tile_m: int) -> Config:
    """A config that the space does not hold, as records of other devices are."""
    return replace(SPACE.config(0), tile_m=tile_m)


def test_the_winner_is_in_the_study_though_it_lies_outside_of_the_space(storage: str) -> None:
    search = Search(SPACE, [outside(512)], name="mine", storage=storage)
    assert search.ask() == outside(512)
    search.tell(outside(512), 1.0)
    search.tell(SPACE.config(5), 2.0)
    search.tell(SPACE.config(5), 2.0)
    assert [SPACE.kind(**one.params) for one in trials(storage)] == [outside(512), SPACE.config(5)]
    best = optuna.load_study(study_name="mine", storage=storage).best_trial
    assert (SPACE.kind(**best.params), best.value) == (outside(512), 1.0)


def test_what_an_older_study_has_no_choice_for_is_entered_as_an_attribute(storage: str) -> None:
    first = Search(SPACE, [], name="mine", storage=storage)
    first.tell(SPACE.config(5), 2.0)
    for _ in range(2):
        search = Search(SPACE, [outside(512)], name="mine", storage=storage)
        search.tell(SPACE.config(5), 2.0)
        search.tell(outside(512), 1.0)
        search.tell(outside(256), 3.0)
    known, best, other = trials(storage)
    assert SPACE.kind(**known.params) == SPACE.config(5)
    assert [SPACE.kind(**one.user_attrs[CONFIG]) for one in (best, other)] == [
        outside(512), outside(256)
    ]  # fmt: skip
    assert [one.value for one in (best, other)] == [1.0, 3.0]


def test_a_search_without_a_trial_leaves_no_study(storage: str) -> None:
    search = Search(product_space(Config, VALUES, lambda _: False), [], storage=storage)
    assert search.exhausted
    assert optuna.get_all_study_names(storage) == []
