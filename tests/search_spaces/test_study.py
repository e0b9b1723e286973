"""A search is a study of Optuna: each trial once, with its params, also in a database."""

from __future__ import annotations

from math import inf
from pathlib import Path

import optuna
import pytest
from synthetic import VALUES, Config, cost

from search_spaces.search import Search
from search_spaces.space import enumerate_space

SPACE = enumerate_space(Config, VALUES, lambda config: config.valid)


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


def test_what_was_measured_elsewhere_is_entered_and_what_lies_outside_is_not(
    storage: str,
) -> None:
    outside = Config(**{**SPACE.config(0).__dict__, "tile_m": 512})
    search = Search(SPACE, [outside], name="mine", storage=storage)
    assert search.ask() == outside
    search.tell(outside, 1.0)
    search.tell(SPACE.config(5), 2.0)
    search.tell(SPACE.config(5), 2.0)
    (trial,) = trials(storage)
    assert SPACE.kind(**trial.params) == SPACE.config(5)
