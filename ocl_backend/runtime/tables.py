"""Tables: tensors that Python keeps from call to call, and that nothing is written to.

A call that reads one can be recalled, though it is none of its arguments: the recipe holds the
table's memory.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from ocl_backend.runtime import shim

P = ParamSpec("P")
Made = TypeVar("Made", Tensor, tuple[Tensor, Tensor])


def as_table(tensor: Tensor) -> Tensor:
    """Promise that nothing is written to a tensor any more, and return it.

    Args:
        tensor: on a device `ocl`, the only one in its storage.
    """
    shim.library().ocl_set_table(ctypes.c_void_p(tensor.data_ptr()))
    return tensor


class KeptTables:
    """Tables of several functions, by their arguments: those used last, up to a number of bytes.

    A number of tables would bound nothing: one can have 100 bytes or 100 MB.
    """

    def __init__(self, most_bytes: int) -> None:
        """Keep up to `most_bytes`, and the table that was used last even if it has more."""
        self.most_bytes = most_bytes
        self.bytes = 0
        self._kept: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def of(self, make: Callable[P, Made]) -> Callable[P, Made]:
        """Return `make`, a function of positional arguments, which is called once while kept."""

        @wraps(make)
        def made(*args: P.args, **kwargs: P.kwargs) -> Made:
            key = (make, *args)
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    table: Made = self._kept[key][0]
                    return table
            table = make(*args, **kwargs)
            tensors = table if isinstance(table, tuple) else (table,)
            self._keep(key, table, sum(tensor.nbytes for tensor in tensors))
            return table

        return made

    def _keep(self, key: Any, table: Any, size: int) -> None:
        with self._lock:
            _, before = self._kept.pop(key, (None, 0))
            self._kept[key] = table, size
            self.bytes += size - before
            while self.bytes > self.most_bytes and len(self._kept) > 1:
                self.bytes -= self._kept.popitem(last=False)[1][1]
