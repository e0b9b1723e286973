"""How a Fourier transform in registers is split: radices, work-items of a line, lines of a group.

A line is what is transformed as complex numbers. Each pass of radix r combines r transforms of
`done` numbers into one of r times as many (Stockham, in Cochran et al. 1967); between passes
numbers change work-items through local memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from oclgen.limits import KIB, Limits
from oclgen.plan import ceil_div

MOST_RADIX = 16
"""The largest radix that is a product of primes: its numbers fill 32 registers in fp32."""
PRIMES = 31
"""The largest prime that is a radix: it takes p * p / 2 multiply-adds of pairs."""
MOST_KEPT = 40
"""Numbers that a work-item keeps in registers."""
LOCAL_BYTES = 40 * KIB
"""Local memory of a work-group of several lines: some groups share a compute unit."""
WORK_ITEMS = 256
"""Work-items of a group of short lines."""
SIDE_BY_SIDE, FEWEST_BESIDE = 16, 4
"""Lines of a group which lie side by side, where they fit, so that 128 bytes are read at once. For
fewer than four, 32 bytes, local memory has one part of the numbers at a time."""
PAD_SHIFT = 4
"""Every 16 numbers in local memory have one behind them that is free: strides of 2, 4, 8 and 16
else meet in the same bank."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: `apart` butterflies of `radix` numbers, `rounds` for a work-item.

    `factors` is where its factors begin in the table of the transform.
    """

    radix: int
    done: int
    apart: int
    rounds: int
    factors: int


@dataclass(frozen=True, slots=True)
class Split:
    """The passes of `length` numbers by `work_items`, which keep `kept` numbers each."""

    length: int
    work_items: int
    kept: int
    passes: tuple[Pass, ...]

    @property
    def pitch(self) -> int:
        """Numbers of local memory from line to line: an odd number, so that lines change banks."""
        return (self.length + (self.length >> PAD_SHIFT)) | 1

    @property
    def work(self) -> int:
        """What it costs to choose between lengths: numbers that pass registers, idle ones too."""
        return sum(one.radix * one.rounds for one in self.passes) * self.work_items


def slots(radix: int) -> list[int]:
    """Return the powers of a factor that are read; another is the product of two of these."""
    return [p for p in range(1, radix) if p < 4 or p % 4 == 0]


@lru_cache(maxsize=4096)
def fewest_radices(n: int) -> tuple[int, ...] | None:
    """Return the fewest radices of `n`, the largest first, of those the smallest; None: a prime."""
    if n == 1:
        return ()
    found = []
    for radix in range(min(n, PRIMES), 1, -1):
        if n % radix == 0 and (radix <= MOST_RADIX or _is_prime(radix)):
            rest = fewest_radices(n // radix)
            if rest is not None:
                found.append(tuple(sorted((radix, *rest), reverse=True)))
    return min(found, key=lambda one: (len(one), max(one), sum(one)), default=None)


def _is_prime(n: int) -> bool:
    return all(n % d for d in range(2, n))


def split(radices: tuple[int, ...], most_work_items: int) -> Split:
    """Return the passes by `radices`, in their order."""
    length = 1
    for radix in radices:
        length *= radix
    fewest = length // max(radices, default=1)
    work_items = ceil_div(fewest, ceil_div(fewest, most_work_items))
    passes, done, factors = [], 1, 0
    for radix in radices:
        apart = length // radix
        passes.append(Pass(radix, done, apart, ceil_div(apart, work_items), factors))
        factors += len(slots(radix)) * done if done > 1 else 0
        done *= radix
    kept = max((one.radix * one.rounds for one in passes), default=1)
    return Split(length, work_items, kept, tuple(passes))


def longest(limits: Limits) -> int:
    """Return a length that no line of one launch exceeds: `MOST_RADIX` numbers of each work-item.

    One group for a longer line would leave compute units idle (8 lines of 32,768 on an H200: 0.053
    ms, cuFFT 0.016).
    """
    return MOST_RADIX * limits.max_work_group


@lru_cache(maxsize=1024)
def whole(n: int, limits: Limits, part_bytes: int) -> Split | None:
    """Return the split of `n` numbers on a device, None where one launch cannot have it."""
    found = fewest_radices(n) if n <= longest(limits) else None
    return None if found is None else _fitting(found or (1,), limits, part_bytes)


def _fitting(found: tuple[int, ...], limits: Limits, part_bytes: int) -> Split | None:
    one = split(found, limits.max_work_group)
    fits = one.pitch * part_bytes <= limits.most_local_bytes
    return one if fits and one.kept <= MOST_KEPT else None


@lru_cache(maxsize=1024)
def convolution(n: int, limits: Limits, part_bytes: int) -> Split | None:
    """Return the split of the convolution by which `n` numbers are transformed, or None.

    Its length is at least 2n - 1 (Bluestein 1970): of those with short factors the least work.
    """
    least = 2 * n - 1
    lengths = [m for m in range(least, min(2 * least, longest(limits) + 1)) if _is_smooth(m)]
    fitting = (whole(m, limits, part_bytes) for m in lengths[:64])
    return min((one for one in fitting if one), key=lambda one: one.work, default=None)


def _is_smooth(n: int) -> bool:
    """Say whether n is a multiple of 4, or small, without prime factors above 5."""
    if n > 16 and n % 4:
        return False
    for prime in (2, 3, 5):
        while n % prime == 0:
            n //= prime
    return n == 1


def room_of_lines(limits: Limits) -> int:
    """Return the bytes of local memory that several lines of a work-group may have together."""
    return min(LOCAL_BYTES, limits.most_local_bytes)


def lines_of_group(one: Split, part_bytes: int, limits: Limits, side_by_side: bool) -> int:
    """Return how many lines a work-group transforms."""
    room = room_of_lines(limits) // (one.pitch * part_bytes)
    wanted = max(1, min(WORK_ITEMS, limits.max_work_group) // one.work_items)
    if side_by_side:
        wanted = max(wanted, min(SIDE_BY_SIDE, limits.max_work_group // one.work_items))
    return max(1, min(wanted, room))
