"""The model's trees, walked by the shim: a choice waits for them while an operator does."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from ocl_backend.runtime import shim
from oclgen.predictor.forest import walk_by


def register() -> None:
    """Let the shim walk the trees of this process."""
    walk_by(_walk)


def _walk(
    nodes: NDArray[np.void], roots: NDArray[np.int32], rows: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return what each tree adds for each row, as `oclgen.predictor.forest.Walk` has it."""
    count, columns = rows.shape
    added = np.empty((count, len(roots)), np.float32)
    sizes = [ctypes.c_int64(size) for size in (len(roots), count, columns)]
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (nodes, roots, rows, added)]
    shim.library().ocl_walk_forest(*pointers[:2], sizes[0], pointers[2], *sizes[1:], pointers[3])
    return added
