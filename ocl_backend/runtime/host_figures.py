"""Figures of pinned memory, as torch.cuda has them. Its allocation is the shim's."""

from __future__ import annotations

import ctypes

from ocl_backend.runtime import shim

FIGURES = ("allocations", "allocated_bytes", "active_requests", "active_bytes")
"""Blocks and their bytes, in use and cached; then those in use. The order is the shim's."""
PARTS = ("current", "peak", "allocated", "freed")


def host_memory_stats_as_nested_dict() -> dict[str, dict[str, int]]:
    """Return the present, highest, added and taken number of each of `FIGURES`."""
    words = (ctypes.c_int64 * (len(FIGURES) * len(PARTS)))()
    shim.library().ocl_pinned_figures(words)
    values = iter(words)
    return {figure: {part: next(values) for part in PARTS} for figure in FIGURES}


def host_memory_stats() -> dict[str, int]:
    """Return the same as one dictionary: `active_bytes.peak`."""
    nested = host_memory_stats_as_nested_dict()
    return {f"{figure}.{part}": n for figure, parts in nested.items() for part, n in parts.items()}


def reset_peak_host_memory_stats() -> None:
    """Start the highest numbers again from the present ones."""
    shim.library().ocl_reset_pinned_figures(1)


def reset_accumulated_host_memory_stats() -> None:
    """Start what was added and taken again from zero."""
    shim.library().ocl_reset_pinned_figures(0)
