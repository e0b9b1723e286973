"""Our side: generated kernels, the torch device `ocl`, and CLBlast on the same queue and buffers.

It says what is timed on the device and how; `suite.py` decides when, and against what.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from importlib import metadata
from itertools import count
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.comparison.variants import PreparedVariant, known, ready, searched
from benchmarks.peers.clblast import Clblast
from benchmarks.tasks import architectures, attention, images, language, networks, pointwise
from benchmarks.tasks.sweep_calls import Case, call
from benchmarks.timing import Call, Clock, Prepare, Prepared, bursts, calls, steps, wall_ms
from oclgen import GENERATOR_VERSION
from oclgen.keys import parse_key
from oclgen.measuring import peak
from oclgen.measuring.excerpt import WORK_PER_ELEMENT
from oclgen.measuring.measure import Bench, encode, time_samples
from oclgen.opencl.device import Device, select
from oclgen.problem import DTYPES, GemmProblem, Problem
from tuned_db.choosing.chooser import Chooser
from tuned_db.storage.store import open_store

CHECKED = 5e8
"""Work of a float64 reference that costs a slow host some tenths of a second: such problems are
verified always, larger ones with `--check`."""
BLOCK = 2**20
"""Random numbers that fill the buffers, over and over."""
BUILDERS = 4
"""Threads that build ahead for a GPU."""
TURN_S = {"cpu": 0.15, "gpu": 0.05, "other": 0.15}
"""Seconds of a turn of operators; products and convolutions are timed until they are known."""


@dataclass(frozen=True)
class Wishes:
    """What the caller asks of our side, for all problems."""

    device: str
    trials: int = 0
    families: tuple[str, ...] = ()
    check: bool = False
    clblast: str = ""
    clblast_trials: int = 0


def start(wishes: Wishes) -> Prepare:
    """Return what prepares a task on the device wished for."""
    return Ours(select(wishes.device), wishes).prepare


@dataclass
class Ours:
    """The device, and what is kept between problems: records, buffers, threads that build."""

    device: Device
    wishes: Wishes
    _kept: dict[tuple[str, int], tuple[int, Any]] = field(default_factory=dict, init=False)
    _threads: ThreadPoolExecutor | None = field(default=None, init=False)

    def prepare(self, kind: str, what: dict[str, Any]) -> Prepared:
        """Make a task ready. "hello" measures the roofs, "ahead" begins to build `problems`."""
        match kind:
            case "hello":
                return Prepared(self._hello(), {})
            case "ahead":
                return Prepared({}, self._build_ahead(what["problems"]))
            case "networks":
                return self._network(**what)
            case "pointwise":
                run = pointwise.call(device=self._torch_device, **what)
                seconds = TURN_S[self.device.limits.kind]
                return Prepared({}, {"ours": calls(run, self._clock(), seconds)})
            case "attention":
                ocl = torch_device()  # before a tensor is made on it
                run = attention.call(device=self._torch_device, **what)
                return self._through_torch(ocl, run)
            case "language":
                return self._modelled(language, **what)
            case "images":
                return self._modelled(images, **what)
            case architectures.KIND:
                return self._modelled(architectures, **what)
            case "sweep":
                return self._swept(**what)
        return self._problem(parse_key(what["problem"]))

    def _hello(self) -> dict[str, Any]:
        measured = peak.measure(self.device)
        roofs = {**asdict(measured), "matrix": peak.matrix_gflops(self.device)}
        packages = {name: metadata.version(name) for name in ("torch", "pyopencl")}
        peers = {self._clblast.name: self._clblast.library} if self._clblast else {}
        return {
            "device": self.device.info,
            "limits": self.device.limits,
            "roofs": roofs,
            "versions": {"generator": GENERATOR_VERSION, **packages},
            "peers": peers,
        }

    @cached_property
    def _clblast(self) -> Clblast | None:
        return Clblast.found(self.device, self.wishes.clblast, self.wishes.clblast_trials)

    @cached_property
    def _chooser(self) -> Chooser:
        return Chooser(open_store(None), self.device.info, self.device.limits)

    @property
    def _torch_device(self) -> str:
        return f"ocl:{self.device.index}"

    def _clock(self) -> Clock:
        return partial(wall_ms, wait=torch_device().synchronize)

    def _network(self, name: str, mode: str, batch: int, dtype: str) -> Prepared:
        ocl, where = torch_device(), self._torch_device
        notes: dict[str, Any] = {"flops": networks.operations(name, mode, batch)}
        if self.wishes.check:
            notes["error"] = networks.error(name, mode, where, dtype)
        before = ocl.fallbacks()
        step = networks.step(name, mode, batch, where, dtype)
        asked = {parse_key(row.problem) for row in ocl.explain(step).rows}
        notes["tuned"] = sum(map(self._is_tuned, asked)), len(asked)
        turn = steps(step, self._clock())
        if (fallen := ocl.fallbacks()) != before:
            notes["reason"] = f"fallbacks: {fallen}"
        return Prepared(notes, {"ours": turn})

    def _modelled(self, kind: ModuleType, case: Any) -> Prepared:
        """Return a step of a language model or a network of images, and what it computes."""
        ocl = torch_device()
        notes: dict[str, Any] = kind.costs(case)
        ocl.reset_fallbacks()
        step = kind.step(case, self._torch_device)
        explained = ocl.explain(step.outcome)
        asked = {parse_key(row.problem) for row in explained.rows}
        notes["tuned"] = sum(map(self._is_tuned, asked)), len(asked)
        notes["outcome"] = [tensor.float().numpy() for tensor in explained.result]
        turn = steps(step.run, self._clock())
        fallen = ocl.fallbacks()
        notes["fallbacks"] = sum(fallen.values())
        notes["reason"] = f"fallbacks: {fallen}" if fallen else ""
        return Prepared(notes, {"ours": turn})

    def _swept(self, case: Case) -> Prepared:
        ocl, run = torch_device(), call(case, self._torch_device)
        ocl.matmul.allow_tf32 = ocl.conv.allow_tf32 = case.dtype == "tf32"
        return self._through_torch(ocl, run)

    def _through_torch(self, ocl: Any, run: Call) -> Prepared:
        """Return a call through torch in bursts, with what served it and what fell back."""
        before = ocl.fallbacks()
        rows = ocl.explain(run).rows
        asked = [parse_key(row.problem) for row in rows]
        notes: dict[str, Any] = {
            "variant": "; ".join(f"{row.family}, {row.rung}" for row in rows),
            "config": json.dumps([(row.problem, row.config) for row in rows]),
            "tuned": (sum(map(self._is_tuned, asked)), len(asked)) if asked else None,
        }
        if (fallen := ocl.fallbacks()) != before:
            notes["reason"] = f"fallbacks: {fallen}"
        seconds = TURN_S[self.device.limits.kind]
        return Prepared(notes, {"ours": bursts(run, ocl.synchronize, seconds)})

    def _problem(self, problem: Problem) -> Prepared:
        prepared, error = self._prepared(problem)
        variant, source = prepared.chosen
        notes = {
            "variant": f"{variant.family}, {source}",
            "config": variant.to_json(),
            "error": error,
            "tuned": (int(bool(self.wishes.trials) or self._is_tuned(problem)), 1),
        }
        contestants = {"ours": lambda: list(time_samples(prepared.plan))}
        if self._clblast and isinstance(problem, GemmProblem) and problem.dtype == "fp32":
            contestants |= self._clblast.contestant(problem, self._buffers(problem))
        return Prepared(notes, contestants)

    def _is_tuned(self, problem: Problem) -> bool:
        """Say whether a record of this very problem serves it, of this device or of one like it."""
        return self._chooser.choose(problem).source_key == problem.key()

    def _prepared(self, problem: Problem) -> tuple[PreparedVariant, float | None]:
        """Return the variant to time, and its error where it was verified."""
        buffers = self._buffers(problem)
        if self.wishes.trials:
            bench = Bench(self.device, problem)
            chosen = searched(bench, self.wishes.trials, self.wishes.families)
            prepared = ready(self.device, problem, chosen, buffers)
        else:
            prepared = known(self._chooser, self.device, problem, buffers)
            if not (self.wishes.check or _work(problem) <= CHECKED):
                return prepared, None
            bench = Bench(self.device, problem)
        variant = prepared.chosen.variant
        if not (verdict := bench.measure(variant.plan(problem), 0.0)).ok:
            raise RuntimeError(f"{variant.family} fails: {verdict.reason}")
        return prepared, verdict.error

    def _buffers(self, problem: Problem) -> dict[str, Any]:
        """Return buffers by role, inputs with random numbers; problems of a dtype share them."""
        slot = count()
        return {
            role: self._buffer(problem.dtype, -1 if role == problem.output else next(slot), shape)
            for role, shape in problem.buffers.items()
        }

    def _buffer(self, dtype: str, slot: int, shape: tuple[int, ...]) -> Any:
        """Return the buffer of a slot, made anew where it is too small, and then twice as large."""
        numbers = prod(shape)
        size, buffer = self._kept.pop((dtype, slot), (0, None))
        if size < numbers:
            room = self.device.limits.max_alloc_bytes // DTYPES[dtype]
            size = max(numbers, min(2 * size, room))
            block = np.random.default_rng(slot + 1).standard_normal(BLOCK, np.float32)
            buffer = self.device.upload(np.resize(encode(block, dtype), size))
        self._kept[dtype, slot] = size, buffer
        return buffer

    def finish_builds(self) -> None:
        """Wait for what is built ahead."""
        if self._threads:
            self._threads.shutdown(wait=True)
            self._threads = None

    def _build_ahead(self, keys: list[str]) -> dict[str, Any]:
        """Begin to build the variants of problems, unless the threads' cores are the device."""
        if self.device.limits.kind == "gpu" and not self.wishes.trials:
            self._threads = ThreadPoolExecutor(BUILDERS, "build")
            for key in keys:
                self._threads.submit(self._build, parse_key(key))
        return {}

    def _build(self, problem: Problem) -> None:
        choice = self._chooser.choose(problem)
        for launch in choice.variant.plan(problem).launches:
            self.device.build(launch.source)


def torch_device() -> Any:
    """Return `torch.ocl`, opened; the parent process imports this module and must not open it."""
    import torch

    import ocl_backend  # noqa: F401  (registers the device)

    return torch.get_device_module("ocl")


def _work(problem: Problem) -> float:
    return problem.flops + WORK_PER_ELEMENT * sum(map(prod, problem.buffers.values()))
