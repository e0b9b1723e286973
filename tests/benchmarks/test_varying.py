"""What `python -m benchmarks varying` makes of its times."""

from random import Random

import pytest

from benchmarks.costs.varying import spread


def test_sizes_alone_spread_nothing() -> None:
    sizes = [(Random(step).randint(1, 16), 1 + step % 61) for step in range(1000)]
    times = [1e-3 * batch * length for batch, length in sizes]
    assert spread([(7, 8)] * 100, [3.0] * 100) == 1
    assert spread(sizes, times) == pytest.approx(1, abs=0.05)


def test_steps_that_take_longer_than_their_like_spread() -> None:
    sizes = [(1 + step % 100,) for step in range(1000)]
    times = [float(size) for (size,) in sizes]
    slow = [time * (3 if step % 10 == 3 else 1) for step, time in enumerate(times)]
    shuffled = Random(0).sample(range(1000), 1000)
    found = spread([sizes[at] for at in shuffled], [slow[at] for at in shuffled])
    assert 2.5 < found < 3.5
    assert found > 2 * spread(sizes, times)
