"""Tables: tensors that Python keeps from call to call, and that nothing is written to.

A call that reads one can be recalled, though it is none of its arguments: the recipe holds the
table's memory.
"""

from __future__ import annotations

import ctypes

from torch import Tensor

from ocl_backend.runtime import shim


def as_table(tensor: Tensor) -> Tensor:
    """Promise that nothing is written to a tensor any more, and return it.

    Args:
        tensor: on a device `ocl`, the only one in its storage.
    """
    shim.library().ocl_set_table(ctypes.c_void_p(tensor.data_ptr()))
    return tensor
