"""Measures the best variants side by side: times that lie minutes apart cannot be compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from oclgen.measurement import Measurement
from search_spaces.progress import Best

ROUNDS = 3
CLOSE = 1.1
"""Variants slower than the best by more than this factor are not asked to the duel."""


def finalists(ranked: Sequence[Best], others: Collection[Best | None] = ()) -> list[Best]:
    """Return which to measure again: the best two if they are close, and `others`, each once.

    Args:
        ranked: what was timed, the best first.
        others: such as the incumbent, and the best of what was measured today; None: there is none.
    """
    close = [one for one in ranked[:2] if one.ms <= CLOSE * ranked[0].ms]
    for one in others:
        if one is not None and one.variant not in {known.variant for known in close}:
            close.append(one)
    return close


def duel(
    contenders: Sequence[Best],
    measure: Callable[[Best], Measurement],
    go_on: Callable[[], bool],
    own_times: Callable[[Sequence[float]], tuple[float, ...]] = tuple,
) -> tuple[Best, Measurement] | None:
    """Measure variants in turns, `ROUNDS` times or until told to stop.

    Args:
        contenders: the variants.
        measure: times one of them.
        go_on: asked after each round.
        own_times: returns those samples that count.

    Returns:
        The one with the lowest median over all its samples that count, and these as a measurement
        with the cache, seed and conditions of its last round; None if all failed.
    """
    found: dict[int, Measurement] = {}
    standing = list(enumerate(contenders))
    for _ in range(ROUNDS):
        for number, one in list(standing):
            again = measure(one)
            if not again.ok:
                standing.remove((number, one))
                found.pop(number, None)
                continue
            before = found[number].samples if number in found else ()
            found[number] = replace(again, samples=before + again.samples)
        if not go_on():
            break
    if not found:
        return None
    found = {n: replace(each, samples=own_times(each.samples)) for n, each in found.items()}
    first = min(found, key=lambda number: found[number].ms)
    return Best(contenders[first].variant, found[first].ms), found[first]
