"""The Gaussian process: right at what it was told, unsure far away, and its gradient is one."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from search_spaces.space import Space, product_space
from search_spaces.surrogate import Surrogate, expected_improvement, features, flatten
from tests.search_spaces.synthetic import VALUES, Config, cost


@pytest.fixture(scope="module")
def space() -> Space:
    return product_space(Config, VALUES, lambda config: config.valid)


def known(space: Space, count: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).permutation(len(space))[:count]
    return rows, np.log([cost(space.config(int(row))) for row in rows])


def test_it_repeats_what_it_was_told_and_is_unsure_elsewhere(space: Space) -> None:
    rows, values = known(space, 60)
    process = Surrogate(space)
    process.fit(rows, values)
    mean, deviation = process.predict(rows, values, rows)
    np.testing.assert_allclose(mean, values, atol=0.1)
    far = np.setdiff1d(np.arange(len(space)), rows)
    assert process.predict(rows, values, far)[1].mean() > 2 * deviation.mean()


def test_it_foretells_what_it_was_not_told(space: Space) -> None:
    rows, values = known(space, 200)
    process = Surrogate(space)
    process.fit(rows[:100], values[:100])
    guessed, _ = process.predict(rows[:100], values[:100], rows[100:])
    assert np.corrcoef(guessed, values[100:])[0, 1] > 0.85


def test_the_gradient_is_that_of_the_likelihood(space: Space) -> None:
    rows, values = known(space, 25)
    process = Surrogate(space)
    at, y = features(space)[rows], values - values.mean()
    scales = np.linspace(-0.5, 0.5, at.shape[1] + 1)
    _, gradient = process.likelihood(scales, at, y)
    for index in range(len(scales)):
        step = 1e-5 * np.eye(len(scales))[index]
        above, below = (process.likelihood(scales + sign * step, at, y)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((above - below) / 2e-5, rel=1e-3, abs=1e-4)


def test_features_are_lines_and_directions(space: Space) -> None:
    columns = features(space)
    assert columns.shape == (len(space), 6 + 3)  # order has three names without an order
    assert columns.min() == 0
    assert set(columns[:, 0]) == {0, 0.5, 1, 1.5, 2}
    np.testing.assert_allclose((columns[:, 6:] ** 2).sum(axis=1), 2)


def test_the_power_of_two_in_a_value_is_a_coordinate_where_its_place_does_not_tell() -> None:
    """48 work-items lie between 32 and 64, and yet fill no sub-group of 32."""
    values = {**{name: (each[0],) for name, each in VALUES.items()}, "tile_m": (16, 32, 48, 64)}
    space = product_space(Config, values, lambda _: True)
    place, power = features(space).T
    np.testing.assert_allclose(place, [0, 2 / 3, 4 / 3, 2])
    np.testing.assert_allclose(power, [0, 1, 0, 2])
    doubled = product_space(Config, {**values, "tile_m": (16, 32, 64)}, lambda _: True)
    assert features(doubled).shape == (3, 1)


def test_slow_times_are_pressed_together_and_failures_are_slowest() -> None:
    ms = np.array([1.0, 1.1, 1.2, 3.0, 300.0, inf])
    flat = flatten(ms)
    assert (np.diff(flat) > 0).all()
    np.testing.assert_allclose(flat[:2], np.log(ms[:2]))
    assert flat[4] - flat[3] < 0.1
    assert flat[5] > flat[4] + 0.4
    assert np.isfinite(flatten(np.array([inf, inf]))).all()


def test_improvement_is_expected_where_it_is_better_or_unsure() -> None:
    mean = np.array([0.0, 1.0, 1.0, 5.0])
    deviation = np.array([0.1, 0.1, 1.0, 1e-3])
    expected = expected_improvement(mean, deviation, 0.5)
    assert expected[0] == pytest.approx(0.5, rel=1e-3)
    assert expected[0] > expected[2] > expected[1] > expected[3] >= 0
