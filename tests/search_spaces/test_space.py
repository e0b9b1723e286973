"""Enumeration: all valid configs, no other, each asked of once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import pytest

from oclgen.families import FAMILIES, families_for
from oclgen.keys import parse_conv, parse_gemm
from oclgen.limits import Limits
from oclgen.problem import Problem
from search_spaces.space import PRODUCT_LIMIT, SPACES, Space, product_space, seeds_of, space_of
from tests.search_spaces.synthetic import VALUES, Config

CPU = Limits("cpu", 32768, 4096, (4096,) * 3, 2**31, 2**33, 2, 16)
GPU = Limits("gpu", 47 * 1024, 1024, (1024, 1024, 64), 2**34, 2**36, 132, 1)
PROBLEMS: list[Problem] = [
    parse_gemm("1024x1024x1024"),
    parse_gemm("1x4096x4096:nt"),
    parse_conv("8,64,56,56,64,3,3,1,1"),
    parse_conv("8,64,56,56,64,3,3,1,1:bwd_data"),
    parse_conv("8,64,56,56,64,3,3,1,1:bwd_weights"),
    parse_conv("8,3,224,224,64,7,7,2,3"),
    parse_conv("8,256,14,14,64,1,1"),
    parse_conv("8,96,56,56,96,3,3,1,1,1,96"),
]


@pytest.fixture(scope="module")
def space() -> Space:
    return product_space(Config, VALUES, lambda config: config.valid)


def test_every_valid_config_is_there_once_and_no_other(space: Space) -> None:
    everything = [Config(*values) for values in product(*VALUES.values())]
    valid = {config for config in everything if config.valid}
    assert {space.config(row) for row in range(len(space))} == valid
    assert len(space) == len(valid) < len(everything)


def test_rows_and_configs_name_each_other(space: Space) -> None:
    for row in range(0, len(space), 97):
        assert space.row_of(space.config(row)) == row
    assert space.row_of(Config(128, 128, 1, 1, 0, False, "m")) is None  # invalid
    assert space.row_of(Config(8, 8, 1, 3, 0, False, "m")) is None  # 3 is no value


def test_integers_are_ordered_and_names_and_flags_are_not(space: Space) -> None:
    assert dict(zip(space.names, space.ordered, strict=True)) == {
        "tile_m": True, "tile_n": True, "vec": True, "unroll": True, "pad": True,
        "stage": False, "order": False,
    }  # fmt: skip
    mixed = product_space(
        Config, {**VALUES, "tile_m": (64, 8, 64, 16)}, lambda config: config.valid
    )
    assert mixed.values[0] == (8, 16, 64)


def test_rows_that_differ_in_few_parameters(space: Space) -> None:
    config = Config(32, 32, 4, 4, 1, True, "n")
    row = space.row_of(config)
    assert row is not None
    assert space.near(row, 0).tolist() == [row]
    near = {space.config(one) for one in space.near(row, 1)}
    alone = {replace(config, **{n: v}) for n, values in VALUES.items() for v in values}
    assert near == {one for one in alone if one.valid}


def test_values_that_are_too_many_or_no_parameters_are_refused() -> None:
    many = {**VALUES, "unroll": tuple(range(1000))}
    with pytest.raises(ValueError, match="configs are too many to enumerate; at most"):
        product_space(Config, many, lambda config: config.valid)
    with pytest.raises(ValueError, match="are not the parameters"):
        product_space(Config, {**VALUES, "tile": (1,)}, lambda config: config.valid)


def test_a_space_without_a_valid_config_is_empty() -> None:
    assert len(product_space(Config, VALUES, lambda _: False)) == 0


def test_each_config_is_asked_of_once_and_neighbours_are_found_without_asking() -> None:
    asked: list[Config] = []

    def is_valid(config: Config) -> bool:
        asked.append(config)
        return config.valid

    space = product_space(Config, VALUES, is_valid)
    inside, outside = Config(8, 8, 1, 1, 0, False, "m"), Config(8, 8, 1, 3, 0, False, "m")
    assert (inside in space, outside in space) == (True, False)
    assert asked == [inside]  # membership enumerates nothing
    asked.clear()
    space.near(0, 2)
    assert len(asked) == len(set(asked)) == prod(len(values) for values in VALUES.values())


def test_guessed_splits_do_not_make_a_space_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """One network's gradient had as many guesses as made 466,560 configs, and ended the tuning."""
    problem = parse_conv("8,64,56,56,64,3,3,1,1:bwd_weights")
    before = space_of("conv_gemm", problem, GPU)
    (splits,) = (v for n, v in zip(before.names, before.values, strict=True) if n == "split_k")
    assert len(splits) > 2
    room = prod(map(len, before.values)) // len(splits)
    monkeypatch.setattr("search_spaces.space.PRODUCT_LIMIT", 2 * room)
    bounded = space_of("conv_gemm", problem, GPU)
    guessed = {seed.split_k for seed in seeds_of("conv_gemm", problem, GPU)} - {1}
    assert bounded.values[bounded.names.index("split_k")] == (1, min(guessed))


def test_every_family_says_what_is_worth_trying() -> None:
    assert set(SPACES) == set(FAMILIES)


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key())
def test_the_spaces_of_the_families(problem: Problem, limits: Limits) -> None:
    """Some family is worth trying; a family for another kind of device has no valid config."""
    spaces = {f.NAME: space_of(f.NAME, problem, limits) for f in families_for(problem)}
    assert sum(len(space) for space in spaces.values()) > 1
    for family, space in spaces.items():
        assert prod(len(values) for values in space.values) <= PRODUCT_LIMIT
        for row in range(0, len(space), max(len(space) // 10, 1)):
            assert space.config(row).why_not(problem, limits) is None
        seeds = seeds_of(family, problem, limits)
        assert len(seeds) == len(set(seeds))
        assert all(seed.why_not(problem, limits) is None for seed in seeds)
