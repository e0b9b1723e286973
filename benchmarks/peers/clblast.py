"""CLBlast as a peer, through its C interface, on our queue and our buffers; it need not be there.

Nugteren 2018, doi:10.1145/3204919.3204924. Times are of all its kernels, from a marker before them
to one behind them. Its defaults are those of its own database; with trials, the parameters of its
kernel `Xgemm` are searched at random for one product, and the best serve all.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from contextlib import suppress
from ctypes import c_char_p, c_float, c_int, c_size_t, c_void_p
from ctypes.util import find_library
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Call, Samples, calls
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem

import pyopencl as cl  # isort: skip  (oclgen.opencl.device prepares its loader)

ROW_MAJOR, TRANSPOSED, SINGLE = 101, {False: 111, True: 112}, 32
"""Values of CLBlast's enumerations."""
TURN_S = 0.05
SEARCHED = {"cpu": 1024, "gpu": 4096}
"""Size of the square product whose parameters are searched: it fills the device."""
VALUES: dict[str, tuple[int, ...]] = {
    "GEMMK": (0,),
    "KREG": (1,),
    "KWG": (16, 32),
    "KWI": (2,),
    "MDIMA": (4, 8, 16, 32),
    "MDIMC": (4, 8, 16, 32),
    "MWG": (16, 32, 64, 128),
    "NDIMB": (4, 8, 16, 32),
    "NDIMC": (4, 8, 16, 32),
    "NWG": (16, 32, 64, 128),
    "SA": (0, 1),
    "SB": (0, 1),
    "STRM": (0, 1),
    "STRN": (0, 1),
    "VWM": (1, 2, 4, 8),
    "VWN": (1, 2, 4, 8),
}
"""Values of the parameters of `Xgemm` that its own tuner tries."""


class ClblastError(RuntimeError):
    """CLBlast refused a call; the message has its status."""


class Clblast:
    """The library on one device."""

    def __init__(self, device: Device, path: str, trials: int) -> None:
        self._device, self._library = device, ctypes.CDLL(path)
        self._queue = c_void_p(device.queue.int_ptr)
        self._trials = trials
        self.library = Path(path).name
        self.name = "CLBlast tuned" if trials else "CLBlast"

    @classmethod
    def found(cls, device: Device, path: str, trials: int) -> Clblast | None:
        """Return the library at `path`, or the system's; None where there is none.

        Args:
            device: an opened one.
            path: of the library; "": the system's.
            trials: of its own tuner for each problem.

        Raises:
            OSError: there is no library at `path`.
        """
        path = path or find_library("clblast") or ""
        return cls(device, path, trials) if path else None

    def contestant(self, problem: GemmProblem, buffers: dict[str, Any]) -> dict[str, Samples]:
        """Return the turn of an fp32 product on buffers by role, under its name.

        The turn raises `ClblastError` where the library refuses the product.
        """
        return {self.name: partial(self._turn, problem, buffers)}

    def _turn(self, problem: GemmProblem, buffers: dict[str, Any]) -> list[float]:
        if self._trials:
            self._tune()
            self._trials = 0
        return calls(partial(self._gemm, problem, buffers), self._clock, TURN_S)()

    def _gemm(self, p: GemmProblem, buffers: dict[str, Any]) -> None:
        a, b, c = (c_void_p(buffers[role].int_ptr) for role in "abc")
        ld_a, ld_b = c_size_t(p.m if p.trans_a else p.k), c_size_t(p.k if p.trans_b else p.n)
        ld_c, start = c_size_t(p.n), c_size_t(0)
        shape = [
            *map(c_int, (ROW_MAJOR, TRANSPOSED[p.trans_a], TRANSPOSED[p.trans_b])),
            *map(c_size_t, (p.m, p.n, p.k)),
        ]
        operands: list[list[Any]] = [
            [each, start, ld] for each, ld in ((a, ld_a), (b, ld_b), (c, ld_c))
        ]
        call, behind = self._library.CLBlastSgemm, []
        if p.batch > 1:
            call = self._library.CLBlastSgemmStridedBatched
            strides = (p.m * p.k, p.k * p.n, p.m * p.n)
            for operand, stride in zip(operands, strides, strict=True):
                operand.append(c_size_t(stride))
            behind = [c_size_t(p.batch)]
        status = call(
            *shape, c_float(1.0), *operands[0], *operands[1], c_float(0.0), *operands[2], *behind,
            ctypes.byref(self._queue), None,
        )  # fmt: skip
        if status:
            raise ClblastError(f"CLBlast's status for {p.key()} is {status}")

    def _clock(self, run: Call) -> float:
        begin = cl.enqueue_marker(self._device.queue)
        run()
        end = cl.enqueue_marker(self._device.queue)
        end.wait()
        return float(end.profile.end - begin.profile.end) * 1e-6

    def _tune(self) -> None:
        """Give `Xgemm` the parameters that are the best of some for one product."""
        size = SEARCHED.get(self._device.limits.kind, SEARCHED["cpu"])
        searched = GemmProblem(size, size, size)
        buffers = {
            role: self._device.upload(np.full(shape, 1e-3, np.float32))
            for role, shape in searched.buffers.items()
        }
        run = partial(self._gemm, searched, buffers)
        best: tuple[float, dict[str, int]] = (inf, {})
        for parameters in islice(candidates(self._device.limits), self._trials):
            with suppress(ClblastError):
                self._override(parameters)
                best = min(best, (min(calls(run, self._clock, 0.0)()), parameters), key=_ms)
        if best[1]:
            self._override(best[1])

    def _override(self, parameters: dict[str, int]) -> None:
        names = (c_char_p * len(parameters))(*(name.encode() for name in parameters))
        values = (c_size_t * len(parameters))(*parameters.values())
        status = self._library.CLBlastOverrideParameters(
            c_void_p(self._device.handle.int_ptr), b"Xgemm", c_int(SINGLE),
            c_size_t(len(parameters)), names, values,
        )  # fmt: skip
        if status:
            raise ClblastError(f"CLBlast's status for {parameters} is {status}")


def candidates(limits: Limits, seed: int = 0) -> Iterator[dict[str, int]]:
    """Yield parameters drawn at random that the kernel and the device allow, without end."""
    draw = random.Random(seed)
    while True:
        parameters = {name: draw.choice(values) for name, values in VALUES.items()}
        if _is_valid(parameters, limits):
            yield parameters


def _is_valid(p: dict[str, int], limits: Limits) -> bool:
    """Say whether tiles are whole multiples of what work-items and loads cover, as it demands."""
    group = p["MDIMC"] * p["NDIMC"]
    staged = 4 * p["KWG"] * (p["SA"] * p["MWG"] + p["SB"] * p["NWG"])
    return (
        p["MWG"] % (p["MDIMC"] * p["VWM"]) == 0
        and p["NWG"] % (p["NDIMC"] * p["VWN"]) == 0
        and p["MWG"] % (p["MDIMA"] * p["VWM"]) == 0
        and p["NWG"] % (p["NDIMB"] * p["VWN"]) == 0
        and group % p["MDIMA"] == 0
        and group % p["NDIMB"] == 0
        and p["KWG"] % max(group // p["MDIMA"], 1) == 0
        and p["KWG"] % max(group // p["NDIMB"], 1) == 0
        and group <= limits.max_work_group
        and staged <= limits.local_bytes
    )


def _ms(timed: tuple[float, dict[str, int]]) -> float:
    return timed[0]
