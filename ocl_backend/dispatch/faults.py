"""Indices and values out of range: how kernels note them, and which Python errors they become.

A kernel cannot raise, and waiting for each would take longer than most of them run. So a kernel
notes the first fault in its device's record and goes on; in place of a wrong index it uses the
nearest item. The next call that waits raises `torch.AcceleratorError`. With `OCLGEN_SYNC_ERRORS=1`,
every call waits and raises what the CPU raises.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch.settings import SYNC_ERRORS
from ocl_backend.runtime import capture, launch, shim


class FaultRule(NamedTuple):
    """An operator's error: its type and text on the CPU, and whether -1 means the last item.

    A text without `{index}` is about values: which one was wrong is not told. Without `noun` the
    text is told as it is.
    """

    error: type[Exception]
    text: str
    wraps: bool = False
    noun: str = "index"

    def told_later(self, name: str) -> str:
        """Return the text of operator `name` for the next call that waits, with the same fields."""
        if not self.noun:
            return f"{name.split()[0]}: {self.text}"
        if "{index}" not in self.text:
            return f"{name}: {self.text}"
        bounds = BOUNDS.replace("index", self.noun, 1)
        return f"{name}: {bounds}, and the nearest item was taken"


BOUNDS = "index {index} is out of bounds for dimension {dim} with size {size}"
SELF = "index out of range in self"
FLAT = "out of range: tried to access index {index} on a tensor of {size} elements."

RULES: dict[str, FaultRule] = {
    "index": FaultRule(IndexError, BOUNDS, wraps=True),
    "index_put": FaultRule(IndexError, BOUNDS, wraps=True),
    "index_fill": FaultRule(IndexError, BOUNDS, wraps=True),
    "take": FaultRule(IndexError, FLAT, wraps=True),
    "put": FaultRule(IndexError, FLAT, wraps=True),
    "index_select": FaultRule(IndexError, SELF),
    "index_add": FaultRule(RuntimeError, BOUNDS),
    "index_copy": FaultRule(IndexError, f"index_copy_(): {BOUNDS}"),
    "embedding_bag": FaultRule(
        RuntimeError,
        "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {index}",
    ),
    "embedding_bag first": FaultRule(
        RuntimeError,
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
        "position 0. However, got {index}",
        noun="",
    ),
    "embedding_bag last": FaultRule(
        RuntimeError,
        "offsets[-1] can not be greater than input's length {size} but got offsets[-1] of {index}",
        noun="",
    ),
    "gather": FaultRule(RuntimeError, BOUNDS),
    "scatter": FaultRule(RuntimeError, BOUNDS),
    "roi": FaultRule(IndexError, BOUNDS, noun="image"),
    "masked_scatter": FaultRule(
        RuntimeError, "Number of elements of source < number of ones in mask"
    ),
    "nll_loss": FaultRule(IndexError, "Target {index} is out of bounds.", noun="target"),
    "multi_margin_loss": FaultRule(RuntimeError, "target out of range", noun=""),
    "multilabel_margin_loss": FaultRule(RuntimeError, "target out of range", noun=""),
    "bernoulli": FaultRule(
        RuntimeError, "Expected p_in >= 0 && p_in <= 1 to be true, but got false."
    ),
    "poisson": FaultRule(RuntimeError, "invalid Poisson rate, expected rate to be non-negative"),
    "multinomial": FaultRule(
        RuntimeError, "probability tensor contains either `inf`, `nan` or element < 0"
    ),
    "multinomial sum": FaultRule(
        RuntimeError, "invalid multinomial distribution (sum of probabilities <= 0)"
    ),
    "binary_cross_entropy": FaultRule(
        RuntimeError, "all elements of input should be between 0 and 1"
    ),
    "binary_cross_entropy target": FaultRule(
        RuntimeError, "all elements of target should be between 0 and 1"
    ),
}
"""By the operator's name, which a record numbers from 1 in this order."""

NUMBERS = {name: number for number, name in enumerate(RULES, start=1)}


@cache
@capture.aside()
def record(device: int) -> Tensor:
    """Return the record of device `device`, [4] int64, which the shim watches from then on."""
    words = torch.zeros(4, dtype=torch.int64, device=torch.device("ocl", device))
    texts = [rule.told_later(name).encode() for name, rule in RULES.items()]
    shim.library().ocl_watch_faults(
        ctypes.c_int(device),
        ctypes.c_int64(words.data_ptr()),
        (ctypes.c_char_p * len(texts))(*texts),
        ctypes.c_int(len(texts)),
    )
    return words


def check(device: int) -> None:
    """Raise what the CPU raises if a launch was wrong, where every call is to wait for it.

    Raises:
        IndexError, RuntimeError: an index or a value was out of range; the device can be used on.
    """
    if not SYNC_ERRORS.value:
        return
    words = (ctypes.c_int64 * 4)()
    found = shim.library().ocl_take_fault(ctypes.c_int(device), words)
    if found < 0:
        raise launch.error(-found)
    if found:
        number, index, size, dim = words
        rule = RULES[list(RULES)[number - 1]]
        raise rule.error(rule.text.format(index=index, size=size, dim=dim))


NOTE = """\
// notes what names no item, until the host has read of it
void note_fault(volatile __global long *faults, const long number, const long index,
                const long size, const long dim)
{
    if (atomic_cmpxchg((volatile __global int *)faults, 0, (int)number) == 0) {
        faults[1] = index;
        faults[2] = size;
        faults[3] = dim;
    }
}
"""
"""OpenCL C that kernels which check indices begin with."""
