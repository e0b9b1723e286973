"""A Gaussian process that guesses the times of untried configs from those of tried ones.

It neither chooses nor measures: `search_spaces.search` asks for what it finds most promising.
"""

from __future__ import annotations

from math import erf, log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.space import Space
from search_spaces.values import Value

Floats = NDArray[np.float64]

FLAT_ABOVE = 0.4
"""Times above this quantile are flattened: how slow the slow ones are says little of the fast."""
FLAT_HEIGHT = 0.25
"""The range to which slow times are compressed, in units of the logarithm of time."""
FAILURE_HEIGHT = 0.75
"""A failure counts as slower than all by so much: enough to leave a half that fails alone."""
STEPS = 15
"""Steps of a fit; the next one goes on from there."""
JITTER = 1e-8

_erf = np.vectorize(erf, otypes=[float])


class Surrogate:
    """Matern-5/2 process with a length scale per parameter and noise, by maximum a posteriori.

    The scales are fitted to the marginal likelihood (Rasmussen and Williams 2006, chapter 5) by
    steps that follow the gradient's signs (Rprop, Riedmiller and Braun 1993); both are a few lines
    of numpy and, with hundreds of points, milliseconds.
    """

    PRIOR_NOISE = log(1e-3)

    def __init__(self, space: Space) -> None:
        self._features = features(space)
        columns = self._features.shape[1]
        self._mean = np.array([0.0] * columns + [self.PRIOR_NOISE])
        self._deviation = np.array([1.2] * columns + [1.5])
        self._log = np.array([0.0] * columns + [log(1e-2)])

    def fit(self, rows: NDArray[np.intp], values: Floats) -> None:
        """Adapt length scales and noise to the `values` at `rows` of the space."""
        at, y = self._features[rows], values - values.mean()
        best, found = -np.inf, self._log
        now, last = self._log.copy(), np.zeros_like(self._log)
        step = np.full_like(now, 0.2)
        for _ in range(STEPS):
            likelihood, gradient = self.likelihood(now, at, y)
            if likelihood > best:
                best, found = likelihood, now.copy()
            turn = np.sign(gradient) * np.sign(last)
            step = np.clip(step * np.where(turn > 0, 1.3, np.where(turn < 0, 0.5, 1)), 1e-3, 1)
            last = np.where(turn < 0, 0, gradient)
            now = np.clip(now + np.sign(last) * step, -6, 6)
        self._log = found

    def predict(
        self, rows: NDArray[np.intp], values: Floats, asked: NDArray[np.intp]
    ) -> tuple[Floats, Floats]:
        """Return mean and standard deviation at the rows `asked`, given `values` at `rows`.

        Args:
            rows: points of the space that were measured, [n].
            values: what was measured there, [n].
            asked: points to predict, [m].

        Returns:
            Two arrays [m], in the unit of `values`.
        """
        middle = values.mean()
        known, wanted = self._features[rows], self._features[asked]
        inverse = np.linalg.inv(_covariance(_distances(known, known, self._log), self._log))
        across = _matern(_distances(known, wanted, self._log))
        weights = inverse @ (values - middle)
        amplitude = max(float((values - middle) @ weights) / len(rows), 1e-12)
        left = np.maximum(1 - (across * (inverse @ across)).sum(axis=0), 1e-10)
        return middle + across.T @ weights, np.sqrt(amplitude * left)

    def likelihood(self, scales: Floats, at: Floats, y: Floats) -> tuple[float, Floats]:
        """Return the log posterior density of `scales` and its gradient.

        Args:
            scales: logarithms of a scale for each feature and of the noise, last, [features + 1].
            at: features of the points, [n, features].
            y: values there less their mean, [n].

        Returns:
            The density, up to a constant, and [features + 1].
        """
        distances = _distances(at, at, scales)
        covariance = _covariance(distances, scales)
        inverse = np.linalg.inv(covariance)
        weights = inverse @ y
        amplitude = max(float(y @ weights) / len(y), 1e-12)
        outer = 0.5 * (np.outer(weights, weights) / amplitude - inverse)
        slope = -5 / 3 * outer * (1 + distances) * np.exp(-distances)
        # the sum over i, j of slope_ij (x_i - x_j)^2, for all columns x of `at` at once
        squares = 2 * (slope.sum(axis=1) @ (at * at) - (at * (slope @ at)).sum(axis=0))
        away = (scales - self._mean) / self._deviation
        gradient = np.append(
            np.exp(2 * scales[:-1]) * squares, np.exp(scales[-1]) * np.trace(outer)
        )
        likelihood = -0.5 * (len(y) * log(amplitude) + np.linalg.slogdet(covariance)[1])
        return float(likelihood - 0.5 * away @ away), gradient - away / self._deviation


def features(space: Space) -> Floats:
    """Return every config of `space` as coordinates; a parameter with one value has none.

    Ordered values lie evenly on a line of length two, so that doubling a tile is the same step
    everywhere; of others each is a direction of its own. How often two divides a value is one more
    coordinate where the value's place does not tell: a work-group of 48 lies between 32 and 64, but
    fills no sub-group of 32.
    """
    columns: list[NDArray[Any]] = []
    for index, ordered in enumerate(space.ordered):
        places, count = space.points[:, index], len(space.values[index])
        if count == 2 or (count > 2 and ordered):
            columns.append(2 * places / (count - 1))
            columns.extend(2 * power[places] for power in _powers_of_two(space.values[index]))
        elif count > 2:
            columns.extend(sqrt(2) * (places == value) for value in range(count))
    return np.array(columns, dtype=np.float64).reshape(len(columns), len(space)).T


def _powers_of_two(values: tuple[Value, ...]) -> list[Floats]:
    """Return the power of two in each value, from 0 to 1, if it tells more than the value's place.

    It tells as much where it grows or falls with every value, and nothing where it is the same.
    """
    powers = [(value & -value).bit_length() if isinstance(value, int) else 0 for value in values]
    least, most = min(powers), max(powers)
    in_order = sorted(set(powers))
    if least == most or powers in (in_order, in_order[::-1]):
        return []
    return [(np.array(powers, dtype=np.float64) - least) / (most - least)]


def flatten(ms: Floats) -> Floats:
    """Return the logarithm of times, with the slow ones pressed together; failures are slowest."""
    logs = np.log(np.maximum(ms, 1e-9))
    worked = np.isfinite(logs)
    bend = float(np.quantile(logs[worked], FLAT_ABOVE)) if worked.any() else 0.0
    pressed = np.where(logs > bend, bend + FLAT_HEIGHT * np.tanh(logs - bend), logs)
    return np.where(worked, pressed, bend + FAILURE_HEIGHT)


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return by how much less than `best` is expected (Jones, Schonlau and Welch 1998).

    Args:
        mean: predicted, [m].
        deviation: of the prediction, [m], above 0.
        best: the lowest value so far.
    """
    z = (best - mean) / deviation
    below = 0.5 * (1 + _erf(z / sqrt(2)))
    return np.asarray(deviation * (z * below + np.exp(-0.5 * z * z) / sqrt(2 * pi)))


def _distances(left: Floats, right: Floats, scales: Floats) -> Floats:
    """Return sqrt(5) times the Euclidean distances after each column is divided by its scale."""
    a, b = left * np.exp(scales[:-1]), right * np.exp(scales[:-1])
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.sqrt(5 * np.maximum(squares, 0)))


def _covariance(distances: Floats, scales: Floats) -> Floats:
    return _matern(distances) + (float(np.exp(scales[-1])) + JITTER) * np.eye(len(distances))


def _matern(distances: Floats) -> Floats:
    return np.asarray((1 + distances + distances * distances / 3) * np.exp(-distances))
