"""Families are asked for guesses as the first of each promises."""

from __future__ import annotations

from collections import Counter

import pytest

from oclgen.variant import Variant
from tests.tuned_db.shelves import chooser
from tests.tuned_db.tuned_samples import LIMITS, SQUARE
from tuned_db.choosing.option import guesses

pytestmark = pytest.mark.usefixtures("shipped")


def test_a_family_that_promises_little_is_asked_for_one_guess_until_all_others_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[str] = Counter()

    def times(_: object, variants: list[Variant], __: object) -> list[float]:
        asked.update(one.family for one in variants)
        return [1.0 if one.family == "gemm_register" else 3.0 for one in variants]

    monkeypatch.setattr("tuned_db.choosing.chooser.predict", times)
    offered = Counter(one.family for one in guesses(SQUARE, LIMITS))
    candidates = chooser().candidates(SQUARE)
    assert next(candidates).variant.family == "gemm_register"
    first = dict.fromkeys(offered, 1) | {"gemm_register": offered["gemm_register"]}
    assert asked == first != offered
    assert len(list(candidates)) >= len(offered)
    assert asked == offered
