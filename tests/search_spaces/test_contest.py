"""How trials and seconds are dealt out to families, and who wins side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import pytest

from oclgen.measurement import Measurement
from oclgen.variant import Variant
from search_spaces.contest import contest
from search_spaces.duel import duel, finalists
from search_spaces.progress import Best
from tests.search_spaces.synthetic import Clock


@dataclass
class Contestant:
    """A family with `left` untried configs and the best time `best_ms`."""

    ms: float
    left: int = 10**6
    best_ms: float = inf

    @property
    def exhausted(self) -> bool:
        return self.left == 0

    def try_one(self) -> None:
        assert not self.exhausted
        self.left -= 1
        self.best_ms = self.ms


def held(
    families: dict[str, Contestant], trials: int, seconds_left: Callable[[], float] = lambda: inf
) -> list[str]:
    order = []
    for name in contest(families, trials, seconds_left):
        families[name].try_one()
        order.append(name)
    return order


def test_the_slower_half_retires_after_each_round() -> None:
    order = held(
        {"a": Contestant(2.8), "b": Contestant(1), "c": Contestant(2.5), "d": Contestant(2)}, 24
    )
    assert order[:8] == list("abcd" * 2)
    assert order[8:16] == list("bd" * 4)
    assert order[16:] == ["b"] * 8


def test_a_family_that_is_far_behind_waits_for_the_others() -> None:
    """It has its part of the round, but after theirs: a short tuning does not pay for it."""
    order = held({"slow": Contestant(3.1), "a": Contestant(1), "b": Contestant(2)}, 27)
    assert order[:9] == ["slow", *"ab" * 3, *["slow"] * 2]
    assert "slow" not in order[9:]


@pytest.mark.parametrize("trials", [1, 2, 3, 5, 17, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_all_trials_are_dealt_out(trials: int, count: int) -> None:
    assert len(held({str(n): Contestant(n + 1) for n in range(count)}, trials)) == trials


@pytest.mark.parametrize(("trials", "trial_s"), [(2, 0.1), (3, 0.1), (40, 6.0)])
def test_first_turns_are_two_families_even_if_trials_or_seconds_are_few(
    trials: int, trial_s: float
) -> None:
    clock = Clock()
    order = []
    for name in contest({name: Contestant(1) for name in "abcd"}, trials, lambda: 10 - clock.now):
        clock.now += trial_s
        order.append(name)
    assert order[:2] == ["a", "b"]


def test_what_an_exhausted_family_leaves_goes_to_the_others() -> None:
    order = held({"small": Contestant(1, left=3), "large": Contestant(2)}, 20)
    assert Counter(order) == {"small": 3, "large": 17}
    assert len(held({"a": Contestant(1, left=2), "b": Contestant(2, left=3)}, 20)) == 5
    assert held({"none": Contestant(1, left=0)}, 20) == []
    assert held({}, 20) == []


def test_every_round_has_its_part_of_the_seconds() -> None:
    clock = Clock()
    families = {"slow": Contestant(2), "fast": Contestant(1)}
    order = []
    for name in contest(families, 1000, lambda: 40 - clock.now):
        families[name].try_one()
        order.append(name)
        clock.now += 1
    assert len(order) == 40
    assert Counter(order[:20]) == {"slow": 10, "fast": 10}
    assert set(order[22:]) == {"fast"}


def times(**samples: list[float]) -> Callable[[Best], Measurement]:
    """A measure that gives each family its next time; None stands for a failure."""
    left = {name: iter(each) for name, each in samples.items()}

    def measure(one: Best) -> Measurement:
        ms = next(left[one.variant.family])
        return Measurement((ms,)) if ms < inf else Measurement(invalidity="runtime", reason="lost")

    return measure


def best(name: str, ms: float) -> Best:
    return Best(Variant(name, None), ms)


ONE, TWO, THREE = best("one", 1.0), best("two", 1.05), best("three", 1.5)


def test_only_close_ones_and_the_incumbent_meet() -> None:
    assert finalists([ONE, TWO, THREE]) == [ONE, TWO]
    assert finalists([ONE, THREE], [None]) == [ONE]
    assert finalists([ONE, TWO, THREE], [THREE, THREE]) == [ONE, TWO, THREE]
    assert finalists([ONE, TWO], [ONE]) == [ONE, TWO]
    assert finalists([]) == []


def test_the_lowest_median_wins() -> None:
    measure = times(one=[1.2, 1.2, 0.1], two=[1.1, 1.1, 9.0])
    won = duel([ONE, TWO], measure, lambda: True)
    assert won is not None
    assert won[0] == best("two", 1.1)
    assert won[1].samples == (1.1, 1.1, 9.0)


def test_only_the_times_that_count_decide() -> None:
    """As on a processor whose cores others take for most of one variant's samples."""
    measure = times(one=[9.0, 1.0, 9.0], two=[2.0, 2.0, 2.0])
    won = duel([ONE, TWO], measure, lambda: True, lambda samples: (min(samples),))
    assert won is not None
    assert won[0] == best("one", 1.0)
    assert won[1].samples == (1.0,)


def test_who_fails_is_out() -> None:
    won = duel([ONE, TWO], times(one=[0.1, inf], two=[2.0, 2.0, 2.0]), lambda: True)
    assert won is not None
    assert won[0] == best("two", 2.0)
    assert duel([ONE], times(one=[inf]), lambda: True) is None


def test_a_duel_ends_with_the_time_after_a_full_round() -> None:
    won = duel([ONE, TWO], times(one=[2.0], two=[1.0]), lambda: False)
    assert won is not None
    assert won[1].samples == (1.0,)


def test_a_family_with_one_config_takes_no_other_family_s_turn() -> None:
    left = {"first": 9, "single": 1, "last": 9}

    class Family:
        best_ms = 1.0

        def __init__(self, name: str) -> None:
            self.name = name

        @property
        def exhausted(self) -> bool:
            return left[self.name] == 0

    order = []
    for name in contest({name: Family(name) for name in left}, 9, lambda: inf):
        left[name] -= 1
        order.append(name)
    assert order[:3] == ["first", "single", "last"]
