"""Measures one variant on a device: build, verify against float64, time; failures are values.

Which variant to measure and where the result goes is the search's and the database's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.device import BuildError, Device, LaunchError, PreparedPlan
from oclgen.excerpt import Excerpt, excerpt
from oclgen.measurement import Measurement
from oclgen.plan import Plan
from oclgen.problem import DTYPES, Problem
from oclgen.reference import random_inputs, reference

TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 4e-3, "bf16": 3e-2}
"""Largest relative L2 error against float64; single elements may be off by ten times as much of
the largest. Winograd F(4x4) with 256 channels has 2.1e-6 in fp32."""
WARM_UP_MS, SAMPLE_MS = 20.0, 150.0
MIN_SAMPLES, MAX_SAMPLES = 5, 50


class Bench:
    """Inputs, reference and poisoned output of one problem on one device, for many variants.

    Of a problem too large for a float64 reference in seconds an excerpt is compared (see
    `oclgen.excerpt`), drawn anew by `seed`; that every element was written is checked always.
    """

    def __init__(self, device: Device, problem: Problem, seed: int = 0) -> None:
        self.device, self.problem = device, problem
        inputs, self.excerpt, self.expected = _case(problem, seed)
        self._poison = encode(
            np.full(problem.buffers[problem.output], np.nan, np.float32), problem.dtype
        )
        self.buffers = {
            role: device.upload(encode(array, problem.dtype)) for role, array in inputs.items()
        }

    def measure(self, plan: Plan, limit_ms: float = float("inf")) -> Measurement:
        """Verify `plan`, then time it; give up early when it is slower than 3 x `limit_ms`.

        `limit_ms` is the best time known so far. Failures are returned, never raised.
        """
        try:
            out = self.device.upload(self._poison)
            prepared = self.device.prepare(plan, {**self.buffers, self.problem.output: out})
            first = prepared.run()
            got = decode(self.device.download(out, self._poison), self.problem.dtype)
        except BuildError as error:
            return Measurement(invalidity="compile", reason=str(error))
        except LaunchError as error:
            return Measurement(invalidity="runtime", reason=str(error))
        distance, reason = self._judge(got)
        if reason:
            return Measurement(invalidity="correctness", reason=reason, error=distance)
        if first > 3 * limit_ms:
            # the first launch also pays for what runtimes put off until then
            first = min(first, prepared.run())
        samples = (first,) if first > 3 * limit_ms else time_samples(prepared)
        return Measurement(samples=samples, error=distance)

    def _judge(self, got: NDArray[Any]) -> tuple[float, str]:
        """Return the error against the reference, and why the output is wrong or ""."""
        unwritten = got.size - int(np.count_nonzero(np.isfinite(got)))
        if unwritten:
            return float("inf"), f"{unwritten} of {got.size} elements are not finite"
        part = self.excerpt.of(self.problem.output, got)
        return compare(part, self.expected, TOLERANCE[self.problem.dtype])


@lru_cache(maxsize=2)
def _case(problem: Problem, seed: int) -> tuple[Mapping[str, NDArray[Any]], Excerpt, NDArray[Any]]:
    """Return the inputs as the dtype stores them, the part to compare, and its reference."""
    inputs = {
        role: decode(encode(array, problem.dtype), problem.dtype)
        for role, array in random_inputs(problem, seed).items()
    }
    part = excerpt(problem, seed)
    cut = {role: part.of(role, array) for role, array in inputs.items()}
    return inputs, part, reference(part.problem, cut)


def time_samples(prepared: PreparedPlan) -> tuple[float, ...]:
    """Return event times in ms after a warm-up; caches are warm, buffers stay the same."""
    spent, once = 0.0, 0.0
    while spent < WARM_UP_MS:
        once = prepared.run()
        spent += max(once, 0.01)
    wanted = int(SAMPLE_MS / max(once, 1e-3))
    return tuple(_repeat(prepared.run, min(max(wanted, MIN_SAMPLES), MAX_SAMPLES)))


def _repeat(run: Callable[[], float], times: int) -> list[float]:
    return [run() for _ in range(times)]


def compare(got: NDArray[Any], want: NDArray[Any], tolerance: float) -> tuple[float, str]:
    """Return (relative L2 error, why it is wrong or "")."""
    difference = np.abs(got.astype(np.float64) - want)
    norm = float(np.linalg.norm(want)) or 1.0
    error = float(np.linalg.norm(difference)) / norm
    worst = float(difference.max()) / (float(np.abs(want).max()) or 1.0)
    if error > tolerance or worst > 10 * tolerance:
        return error, f"relative L2 {error:.2e}, worst element {worst:.2e}, allowed {tolerance:.0e}"
    return error, ""


def encode(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return fp32 values as stored: float32, float16, or bf16 bits in uint16 (round to even)."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)
    assert DTYPES[dtype] in (2, 4)
    return array.astype(np.float16 if dtype == "fp16" else np.float32, copy=False)


def decode(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return stored values as float32; the inverse of `encode`."""
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)
