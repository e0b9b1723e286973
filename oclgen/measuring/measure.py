"""Measures one variant on a device: build, verify against float64, time; failures are values.

The search decides which variant is measured, and the database keeps the result.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.measurement import Cache, Measurement, undisturbed
from oclgen.measuring.canary import POISON, POISON_OF_SUMS, Guarded, guarded
from oclgen.measuring.conditions import before_and_after, conditions
from oclgen.measuring.excerpt import AFFORDABLE, Excerpt, excerpt
from oclgen.measuring.reference import random_inputs, references
from oclgen.opencl.device import BuildError, Device, LaunchError, PreparedPlan
from oclgen.plan import COUNTER_BYTES, COUNTERS, Plan
from oclgen.problem import DTYPES, Problem, stored_dtype

TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 4e-3, "bf16": 3e-2, "int8": 0.0}
"""Largest relative L2 error against float64; single elements may be off by ten times as much of
the largest; sums of integers must be equal. Winograd F(4x4) with 256 channels has 2.1e-6 in
fp32."""
WARM_UP_MS = 20.0
MIN_SAMPLES, MAX_SAMPLES, SAMPLE_MS = 5, 100, 250.0
"""Samples are taken until their median is known, and no longer than this."""
KNOWN = 0.005
"""The median is known when its 95 % confidence interval is this part of it to either side."""
LOSER = 1.5
"""A variant none of whose first samples comes within this factor of the best time has lost."""
HOPELESS = 3.0
"""A variant whose first launch takes this many times the best is not timed any further."""
SPOT_BYTES = 32 * 2**20
"""Bytes of each input that are read back after a variant, to see whether it was written to."""
AS_THEY_ARE = ("int64", "uint8")
"""Dtypes of buffers whose items are not converted."""
WHOLE = ("int8", "int32")
"""Dtypes of buffers whose items are whole numbers, here as there."""
FLUSH_BYTES = 64 * 2**20
"""The least bytes that are written between launches with cold caches; four times a larger cache."""


class Bench:
    """Inputs, reference and guarded buffers of one problem on one device, for many variants.

    Of a problem too large for a float64 reference in seconds an excerpt is compared (see
    `oclgen.measuring.excerpt`), drawn anew by `seed`; that every element was written is checked
    always, and so is that nothing was written beside the buffers. `cache` says what time is
    measured. Every launch of a variant is made within a context that `leave()` returns: a program
    that uses the device, too, may make it wait there. `affordable` bounds the reference's work.
    """

    def __init__(
        self,
        device: Device,
        problem: Problem,
        seed: int = 0,
        cache: Cache = "warm",
        leave: Callable[[], AbstractContextManager[object]] = nullcontext,
        affordable: float = AFFORDABLE,
    ) -> None:
        self.device, self.problem, self.seed, self.cache = device, problem, seed, cache
        self._leave = leave
        inputs, self.excerpt, self._expected = _case(problem, seed, affordable)
        self._like = {
            role: encode(np.zeros(problem.buffers[role], np.float32), stored_dtype(problem, role))
            for role in problem.outputs
        }
        stored = {
            role: np.ascontiguousarray(encode(array, stored_dtype(problem, role)))
            for role, array in inputs.items()
        }
        self._inputs = [(guarded(device, role, each.nbytes), each) for role, each in stored.items()]
        self.buffers = {one.role: one.region for one, _ in self._inputs}
        self._spots = random.Random(seed)
        self._write_inputs()
        self._flush = Flush(device) if cache == "cold" else None

    @property
    def expected(self) -> NDArray[Any]:
        """The first output's reference, as much of it as is compared."""
        return self._expected[self.problem.output]

    def measure(self, plan: Plan, limit_ms: float = float("inf")) -> Measurement:
        """Verify `plan`, then time it; give up early when it is far slower than `limit_ms`.

        `limit_ms` is the best time known so far. Failures are returned, never raised.
        """
        before = conditions(self.device.info, self.device.handle)
        try:
            error, reason, samples = self._try(plan, limit_ms)
            if spoiled := self._spoiled_inputs():
                error, reason = float("inf"), spoiled
                self._write_inputs()  # the next variant must not pay for this one
        except BuildError as refusal:
            return Measurement(invalidity="compile", reason=str(refusal), seed=self.seed)
        except LaunchError as refusal:
            return Measurement(invalidity="runtime", reason=str(refusal), seed=self.seed)
        if reason:
            return Measurement((), "correctness", reason, error, self.seed)
        after = conditions(self.device.info, self.device.handle)
        noted = before_and_after(before, after)
        return Measurement(samples, "none", "", error, self.seed, self.cache, noted)

    def _try(self, plan: Plan, limit_ms: float) -> tuple[float, str, tuple[float, ...]]:
        """Return the error, why the variant is wrong or "", and its times."""
        outs = [
            guarded(self.device, role, one.nbytes, POISON_OF_SUMS if _is_whole(one) else POISON)
            for role, one in self._like.items()
        ]
        spaces = [guarded(self.device, role, size) for role, size in plan.workspaces]
        if plan.counters:
            spaces += [guarded(self.device, COUNTERS, COUNTER_BYTES * plan.counters, content=0)]
        written = {one.role: one.region for one in (*outs, *spaces)}
        prepared = self.device.prepare(plan, {**self.buffers, **written})
        with self._leave():
            first = prepared.run()
        error, reason = self._judge(outs, spaces)
        if reason:
            return error, reason, ()
        on_cpu = self.device.limits.kind == "cpu"
        bound, chances = HOPELESS * limit_ms, MIN_SAMPLES if on_cpu else 2
        timed = as_called(prepared, self.problem)
        with self._leave():
            first = first if timed is prepared else timed.run()
            first = second_chance(timed, first, bound, chances)
            if first > bound:
                return error, "", (first,)
            samples = time_samples(timed, limit_ms, self._flush)
        # a race may show in a later launch only
        error, reason = self._judge(outs, spaces)
        if reason:
            return error, f"after {len(samples)} launches: {reason}", ()
        return error, "", undisturbed(samples) if on_cpu else samples

    def _judge(self, outs: Sequence[Guarded], spaces: Sequence[Guarded]) -> tuple[float, str]:
        """Return the largest error against the reference, and why an output is wrong or ""."""
        damages = [damage for one in (*outs, *spaces) if (damage := one.damage())]
        if damages:
            return float("inf"), f"wrote out of bounds: {', '.join(damages)}"
        left = sum(one.changed() for one in spaces if one.role == COUNTERS)
        if left:
            return float("inf"), f"left {left} bytes of {COUNTERS} that are not zero"
        judged = [self._compared(out) for out in outs]
        return max(error for error, _ in judged), next((why for _, why in judged if why), "")

    def _compared(self, out: Guarded) -> tuple[float, str]:
        """Return the error of one output, and why it is wrong or ""."""
        role = out.role
        stored = self.device.download(out.region, self._like[role])
        got = decode(stored, stored_dtype(self.problem, role))
        if _is_whole(stored):
            never = np.frombuffer(bytes([POISON_OF_SUMS]) * stored.itemsize, stored.dtype)
            unwritten, what = int(np.count_nonzero(got == never)), "written"
        else:
            unwritten, what = got.size - int(np.count_nonzero(np.isfinite(got))), "finite"
        if unwritten:
            return float("inf"), f"{unwritten} of {got.size} elements of {role} are not {what}"
        part = self.excerpt.of(role, got)
        return compare(part, self._expected[role], TOLERANCE[self.problem.dtype])

    def _spoiled_inputs(self) -> str:
        """Say which inputs, or what lies beside them, a variant wrote to; "" if none.

        Of a large input a random part is looked at: reading all of it takes longer than a variant.
        """
        for one, array in self._inputs:
            if damage := one.damage():
                return f"wrote out of bounds: {damage}"
            stored = array.reshape(-1).view(np.uint8)
            begin = self._spots.randrange(max(stored.size - SPOT_BYTES, 0) + 1)
            spot = stored[begin : begin + SPOT_BYTES]
            if not np.array_equal(self.device.download(one.region, spot, begin), spot):
                return f"wrote to its input {one.role}"
        return ""

    def _write_inputs(self) -> None:
        for one, array in self._inputs:
            one.restore()
            self.device.write(one.region, array)


def as_called(prepared: PreparedPlan, problem: Problem) -> PreparedPlan:
    """Return the launches of every call.

    Packed weights are constants: dispatch keeps what is made of them, or lets another family serve.
    """
    if problem.op != "packed":
        return prepared
    steps = tuple(step for step in prepared.steps if not step[1].of_weights)
    return prepared if len(steps) == len(prepared.steps) else replace(prepared, steps=steps)


class Flush:
    """Writes more than the last-level cache holds, so that the next launch finds it cold."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._size = self.bytes_of(device)
        self._buffer = device.empty(self._size)

    @staticmethod
    def bytes_of(device: Device) -> int:
        """Return how many other bytes a device reads until its caches hold nothing older."""
        return max(FLUSH_BYTES, 4 * device.cache_bytes)

    def __call__(self) -> None:
        """Write; a launch that is enqueued next runs after it."""
        self._device.fill(self._buffer, 0, self._size)


@lru_cache(maxsize=2)
def _case(
    problem: Problem, seed: int, affordable: float
) -> tuple[Mapping[str, NDArray[Any]], Excerpt, Mapping[str, NDArray[Any]]]:
    """Return the inputs as the dtype stores them, the part to compare, and its references."""
    inputs = {}
    for role, array in random_inputs(problem, seed).items():
        dtype = stored_dtype(problem, role)
        inputs[role] = decode(encode(array, dtype), dtype)
    part = excerpt(problem, seed, affordable)
    cut = {role: part.of(role, array) for role, array in inputs.items()}
    return inputs, part, references(part.problem, cut)


def second_chance(prepared: PreparedPlan, first: float, bound: float, most: int) -> float:
    """Return the fastest of the first launches: one, or more while none is within `bound`.

    The first launch also pays for what runtimes put off until then, and on a processor other
    programs may take the cores away. Where nothing is fast enough (a `bound` of 0: the variant is
    verified alone), there is none.

    Args:
        prepared: what is launched.
        first: milliseconds of the first launch.
        bound: milliseconds that are fast enough.
        most: launches in all; no third one begins after `SAMPLE_MS`.

    Raises:
        LaunchError: the device refused a launch.
    """
    spent = best = first
    if bound <= 0:
        return first
    for launch in range(2, most + 1):
        if best <= bound or (launch > 2 and spent > SAMPLE_MS):
            break
        again = prepared.run()
        best, spent = min(best, again), spent + again
    return best


def time_samples(
    prepared: PreparedPlan, limit_ms: float = float("inf"), flush: Callable[[], None] | None = None
) -> tuple[float, ...]:
    """Return event times in ms after a warm-up: as many as it takes to know their median.

    Args:
        prepared: what is launched, on the same buffers each time, so that caches are warm.
        limit_ms: what is clearly slower is given up after `MIN_SAMPLES`.
        flush: called before each launch, to empty the caches.

    Returns:
        `MIN_SAMPLES` to `MAX_SAMPLES` times.

    Raises:
        LaunchError: the device refused a launch.
    """
    spent = 0.0
    while spent < WARM_UP_MS:
        spent += max(prepared.run(), 0.01)
    samples: list[float] = []
    end = time.perf_counter() + SAMPLE_MS / 1e3
    while len(samples) < MIN_SAMPLES or (len(samples) < MAX_SAMPLES and time.perf_counter() < end):
        if flush:
            flush()
        samples.append(prepared.run())
        if len(samples) >= MIN_SAMPLES and (
            min(samples) > LOSER * limit_ms or uncertainty(samples) < KNOWN
        ):
            break
    return tuple(samples)


def uncertainty(samples: Sequence[float]) -> float:
    """Return half of the 95 % confidence interval of the median, as a part of the median.

    1.57 x interquartile range / sqrt(n) for roughly normal times: the notches of McGill, Tukey and
    Larsen 1978, which outliers do not touch.
    """
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return float(1.57 * (high - low) / np.sqrt(len(samples)) / max(middle, 1e-9))


def compare(got: NDArray[Any], want: NDArray[Any], tolerance: float) -> tuple[float, str]:
    """Return (relative L2 error, why it is wrong or ""); a NaN is wrong.

    Args:
        got: the kernel's results, of any dtype.
        want: the same in float64, of the same shape.
        tolerance: allowed relative L2 error; one item may be off by ten times as much of the
            largest.
    """
    difference = np.abs(got.astype(np.float64) - want)
    error = _length(difference) / (_length(want) or 1.0)
    worst = float(difference.max()) / (float(np.abs(want).max()) or 1.0)
    if error <= tolerance and worst <= 10 * tolerance:
        return error, ""
    return error, f"relative L2 {error:.2e}, worst element {worst:.2e}, allowed {tolerance:.0e}"


def _length(array: NDArray[Any]) -> float:
    """Return the L2 norm without BLAS, whose threads stay on their cores for 25 ms after a call.

    A processor's kernel that is timed next would lack those cores.
    """
    return float(np.sqrt(np.square(array).sum()))


def _is_whole(stored: NDArray[Any]) -> bool:
    return stored.dtype in WHOLE


def encode(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return fp32 values as stored: float32, float16, or bf16 bits in uint16 (round to even).

    Integers and packed weights are stored as they are, a NaN as the least integer.
    """
    if dtype in AS_THEY_ARE:
        return array
    if dtype in WHOLE:
        whole: NDArray[Any] = np.nan_to_num(array, nan=np.iinfo(dtype).min)
        return whole.astype(dtype, copy=False)
    if dtype == "bf16":
        bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)
    assert DTYPES[dtype] in (2, 4)
    return array.astype(np.float16 if dtype == "fp16" else np.float32, copy=False)


def decode(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return stored values as float32, integers as they are; the inverse of `encode`."""
    if dtype in (*AS_THEY_ARE, *WHOLE):
        return array
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)
