"""Times what the host spends on a token of a Llama-shaped model, and counts what it does for it.

    OCLGEN_DEVICE_PROFILE=tests/ocl_backend/wide_gpu.toml OCLGEN_SUBMITTER=1 \
        python -m benchmarks token-host

It runs transformers' `generate`, unchanged, on many narrow layers, so that the device has little to
do. Milliseconds are processor time of the calling thread for a token: on the device, the part of
that which passes while it waits for the token, and on torch's CPU, where the thread computes, too.
Of each run the token counts that is faster than seven in eight, and of several runs the fastest.
`calls` are those of torch's operators that reach the dispatcher, `asked` functions of the device's
Python that run. A runtime for processors lets the waiting thread run kernels: compare without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ocl_backend
from benchmarks.costs.token_launches import CACHES, PROMPT, TOKENS, Shape, generate, model

PACKAGE = str(Path(ocl_backend.__file__).parent)
SHAPE = Shape(64, 176, 8, 2)
MADE = 40
WARM = 3
"""Runs before those that count: what two alike did is repeated from the third on."""


class Times(NamedTuple):
    """Milliseconds of the calling thread for a token; those in which it waits are among them."""

    total: float
    waits: float


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts calls of operators."""

    calls = 0

    def __torch_dispatch__(
        self, call: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count one and make it."""
        self.calls += 1
        return call(*args, **(kwargs or {}))


def of_a_token(count: Callable[[int], int]) -> float:
    """Return how much a further token adds to what `count` returns for a number of tokens."""
    few, many = TOKENS
    return (count(many) - count(few)) / (many - few)


def called(network: Any, cache: str) -> float:
    """Return the calls of operators for a token.

    Args:
        network: a model.
        cache: one of `CACHES`.
    """

    def count(tokens: int) -> int:
        counting = Counting()  # type: ignore[no-untyped-call]
        with counting:
            generate(network, cache, tokens)
        return counting.calls

    return of_a_token(count)


def asked(network: Any, cache: str) -> float:
    """Return how many functions of the device's Python run for a token that was made before.

    Args:
        network: a model on the device.
        cache: one of `CACHES`.
    """

    def count(tokens: int) -> int:
        found = 0

        def see(frame: FrameType, event: str, _: object) -> None:
            nonlocal found
            found += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

        for _ in range(WARM):
            generate(network, cache, tokens)
        sys.setprofile(see)
        try:
            generate(network, cache, tokens)
        finally:
            sys.setprofile(None)
        return found

    return of_a_token(count)


def timed(network: Any, cache: str, runs: int) -> Times:
    """Return the processor time of a token that follows others.

    Args:
        network: a model.
        cache: one of `CACHES`.
        runs: the fastest of them counts.
    """
    ends: list[float] = []
    waits: list[float] = []

    def note(_: Any, scores: torch.Tensor) -> torch.Tensor:
        begin = thread_time()
        if scores.device.type == "ocl":
            torch.get_device_module("ocl").synchronize()
        ends.append(thread_time())
        waits.append(ends[-1] - begin)
        return scores

    options = {} if cache == "dynamic" else {"cache_implementation": cache}
    prompt = torch.arange(1, 1 + PROMPT).reshape(1, -1).to(network.device)
    found = []
    for run in range(WARM + runs):
        ends.clear()
        waits.clear()
        network.generate(
            prompt, do_sample=False, max_new_tokens=MADE, min_new_tokens=MADE,
            logits_processor=[note], **options,
        )  # fmt: skip
        tokens = [
            Times(1e3 * (end - begin), 1e3 * wait)
            for begin, end, wait in zip(ends[2:], ends[3:], waits[3:], strict=False)
        ]
        if run >= WARM:
            found.append(sorted(tokens)[len(tokens) // 8])
    return min(found)


def main(layers: int, runs: int, device: str) -> None:
    """Print a line for each cache.

    Args:
        layers: of the model.
        runs: the fastest of them counts.
        device: torch's name of it.
    """
    torch.set_num_threads(1)
    theirs = model(SHAPE, layers, torch.bfloat16)
    ours = model(SHAPE, layers, torch.bfloat16).to(device)
    print(f"cache     calls  asked   ms: host  waits     cpu   of a token, {layers} layers")
    for cache in CACHES:
        counts = called(ours, cache), asked(ours, cache)
        here, there = timed(ours, cache, runs), timed(theirs, cache, runs)
        print(
            f"{cache:8}{counts[0]:7.0f}{counts[1]:7.1f}{here.total:12.2f}{here.waits:7.2f}"
            f"{there.total:8.2f}"
        )
