"""What a processor's caches hold: lines by the sets that their addresses share, and slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SETS, WAYS, LINE = 64, 8, 64
"""Sets and ways of the nearest cache of the smallest processors, and bytes of its lines."""
CACHE = SETS * WAYS * LINE
"""Bytes of it."""
SLICE_BYTES = 2**18
"""Bytes of images that a core's second cache holds beside what else it has to hold."""


def are_held(lines: Iterable[int]) -> bool:
    """Say whether the nearest cache holds these lines at once.

    Args:
        lines: numbers of lines, which are addresses over `LINE`; a line may come repeatedly, and
            then counts as often.
    """
    sets = Counter(line % SETS for line in lines)
    return max(sets.values(), default=0) <= WAYS


def slices_held(read: int, most: int) -> int:
    """Return the slices, a power of two, of which a core's second cache holds about one.

    In channels_last a work-item reads some channels of each pixel, and with them whole lines. If
    all work-items compute a slice before the next one, they find these lines there.

    Args:
        read: bytes of all images.
        most: slices whose sums still cost less than they save.
    """
    return 1 << max(min(read // SLICE_BYTES, most), 1).bit_length() - 1
