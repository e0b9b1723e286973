"""Records of problems far apart, where no model predicts times."""

from __future__ import annotations

import pytest

from oclgen.problem import GemmProblem
from tests.tuned_db.shelves import chooser, with_item_m
from tests.tuned_db.tuned_samples import SQUARE

pytestmark = pytest.mark.usefixtures("shipped", "alike")


@pytest.mark.parametrize(("times_as_long", "rung"), [(16, "nearest"), (32, "guess")])
def test_a_record_beyond_a_factor_of_16_comes_behind_guesses(
    monkeypatch: pytest.MonkeyPatch, times_as_long: int, rung: str
) -> None:
    monkeypatch.setattr("tuned_db.choosing.chooser.predict", lambda *_: None)
    known = with_item_m(3, GemmProblem(64, 64, 64 * times_as_long))
    candidates = list(chooser(known).candidates(SQUARE))
    assert candidates[0].rung == rung
    assert known.variant in [one.variant for one in candidates]
