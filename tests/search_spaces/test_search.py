"""The search: near the optimum soon, nothing twice, the same by the same seed."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import inf

import pytest

from search_spaces.search import Search
from search_spaces.space import Space, product_space
from tests.search_spaces.synthetic import VALUES, Config, cost


@pytest.fixture(scope="module")
def space() -> Space:
    return product_space(Config, VALUES, lambda config: config.valid)


def run(search: Search, trials: int) -> list[Config]:
    asked = []
    for _ in range(trials):
        asked.append(search.ask())
        search.tell(asked[-1], cost(asked[-1]))
    return asked


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_evaluations_come_within_five_percent(space: Space, seed: int) -> None:
    optimum = min(cost(space.config(row)) for row in range(len(space)))
    asked = run(Search(space, [], seed), 200)
    assert len(set(asked)) == 200
    assert all(config.valid for config in asked)
    assert optimum / min(map(cost, asked)) >= 0.95


def test_every_second_suggestion_lies_beside_the_best(space: Space) -> None:
    """Where what is fast is rare, the process alone goes on asking far away from it."""
    search = Search(space, [], 4)
    run(search, 10)
    beside = []
    for _ in range(20):
        known = search._known
        best = min(known, key=known.__getitem__)
        (asked,) = run(search, 1)
        pairs = zip(asdict(asked).values(), asdict(best).values(), strict=True)
        beside.append(sum(one != other for one, other in pairs) == 1)
    assert all(beside[1::2])


def test_the_same_seed_asks_the_same(space: Space) -> None:
    assert run(Search(space, [], 5), 30) == run(Search(space, [], 5), 30)
    assert run(Search(space, [], 5), 30) != run(Search(space, [], 6), 30)


def test_many_may_be_asked_for_before_the_first_is_told(space: Space) -> None:
    """As while variants are built ahead; what is under way is not asked for again."""
    search = Search(space, [], 2)
    waiting, asked = [search.ask() for _ in range(4)], []
    for _ in range(60):
        asked.append(waiting.pop(0))
        waiting.append(search.ask())
        search.tell(asked[-1], cost(asked[-1]))
    assert len(set(asked + waiting)) == 64
    assert min(map(cost, asked)) < 1.2 * min(cost(space.config(row)) for row in range(len(space)))


def test_a_time_of_what_is_no_point_teaches_the_process_nothing(space: Space) -> None:
    """All points are still under way when it must guess."""
    off_grid = replace(space.config(0), unroll=3)
    search = Search(space, [off_grid])
    search.tell(search.ask(), 1.0)
    asked = [search.ask() for _ in range(20)]
    assert len(set(asked)) == 20


def test_a_later_failure_does_not_undo_a_time(space: Space) -> None:
    search = Search(space, [], 3)
    search.tell(space.config(5), 2.0)
    search.tell(space.config(5), inf)
    assert search.best_ms == 2.0


def test_seeds_come_first_even_those_that_are_no_point(space: Space) -> None:
    off_grid = replace(space.config(0), unroll=3)
    seeds = [space.config(70), off_grid, space.config(70), space.config(7)]
    asked = run(Search(space, seeds), 5)
    assert asked[:3] == [seeds[0], seeds[1], seeds[3]]
    assert len(set(asked)) == 5


def test_what_is_known_is_not_asked_again_and_is_learnt_from(space: Space) -> None:
    search = Search(space, [space.config(3)])
    known = [space.config(row) for row in range(0, len(space), 100)]
    for config in (space.config(3), *known):
        search.tell(config, cost(config))
    asked = run(search, 40)
    assert not set(asked) & {space.config(3), *known}
    assert search.best_ms == min(map(cost, [*known, *asked, space.config(3)]))
    blind = run(Search(space, []), 10)
    assert sorted(map(cost, asked[:10]))[5] < sorted(map(cost, blind))[5]


def test_failures_are_told_and_avoided(space: Space) -> None:
    """Half of the space fails: the search soon asks for the other half."""
    search = Search(space, [], 1)
    failed = []
    for _ in range(80):
        config = search.ask()
        failed.append(config.stage)
        search.tell(config, inf if config.stage else cost(config))
    assert sum(failed[40:]) <= sum(failed[:40])
    assert sum(failed[40:]) < 10
    assert search.best_ms < 2.5


def test_a_space_is_exhausted_once_every_config_was_asked() -> None:
    narrow = {name: values[:2] for name, values in VALUES.items()} | {"pad": (0,), "order": ("m",)}
    space = product_space(Config, narrow, lambda config: config.valid)
    search = Search(space, [])
    asked = run(search, len(space))
    assert set(asked) == {space.config(row) for row in range(len(space))}
    assert search.exhausted
    with pytest.raises(StopIteration, match="every valid config was tried"):
        search.ask()


def test_an_empty_space_still_has_its_seeds() -> None:
    space = product_space(Config, VALUES, lambda _: False)
    seed = Config(8, 8, 1, 1, 0, False, "m")
    search = Search(space, [seed])
    assert not search.exhausted
    assert run(search, 1) == [seed]
    assert search.exhausted
