"""Records the problems of networks that users run, without computing them; and ranks them.

    python -m benchmarks record-networks benchmarks/data/shapes/forty_networks.jsonl
    python -m benchmarks rank-shapes benchmarks/data/shapes/forty_networks.jsonl --count 40

A network is met in fp32 and in bf16 (autocast, images and films channels_last), with 1 and 32
items, in evaluation and training, in a process of its own. The file is a recording as
`torch.ocl.tunable` writes it, of one step of each: calls of a problem add up over all of them, and
the most called stand first. Beyond a bound, those are left out in which least time goes, by the
roofline of a large GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from benchmarks.shapes.networks import NETWORKS, Network
from benchmarks.shapes.unbuilt import calls
from oclgen import recording
from oclgen.problem import Problem
from oclgen.roofline import Roofs

BATCHES = (1, 32)
DTYPES = ("fp32", "bf16")
MODES = ("eval", "train")
GPU, LAUNCH_MS = Roofs(50_000.0, 4_000.0, {"fp16": 500_000.0, "bf16": 500_000.0}), 0.005
"""The rates by which problems are weighed, of an H100 or H200, and the least time of one."""
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The memory format that bf16 gets, by the number of dimensions."""


def main(
    path: Path, names: Sequence[str], batches: Sequence[int], device: int, most: int
) -> list[str]:
    """Write a recording of networks, and print a line for each; return those that failed.

    Args:
        path: of the recording, which is written anew.
        names: of `NETWORKS`; all without any.
        batches: items of an input.
        device: index; its kind says which problems a network has.
        most: problems that are kept.
    """
    met: Counter[Problem] = Counter()
    failed = []
    for network in NETWORKS:
        if names and network.name not in names:
            continue
        command = [sys.executable, "-m", __name__, network.name, str(device), *map(str, batches)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            failed.append(network.name)
            print(f"{network.name}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        own = recording.load(done.stdout.splitlines())
        new = len(own.keys() - met.keys())
        met += own
        print(f"{network.name}: {len(own)} problems, {new} new, {own.total()} calls", flush=True)
        recording.dump(heaviest(met, most), path)
    return failed


def heaviest(met: Counter[Problem], most: int) -> Counter[Problem]:
    """Return the `most` problems in which most time goes on a large GPU, with their calls."""

    def milliseconds(problem: Problem) -> float:
        roof = GPU.over(problem.flops, problem.bytes, problem.dtype)
        return met[problem] * max(roof.ms, LAUNCH_MS)

    kept = sorted(met, key=lambda one: (-milliseconds(one), one.key()))[:most]
    return Counter({problem: met[problem] for problem in kept})


def met_by(network: Network, batches: Sequence[int], device: int) -> Counter[Problem]:
    """Return how often a network's steps ask for each problem, over all dtypes and modes.

    Args:
        network: is made here.
        batches: items of an input.
        device: index.

    Raises:
        ValueNeededError: a step needs a value.
    """
    model = network.make().to(place := f"ocl:{device}")
    met: Counter[Problem] = Counter()
    for dtype, batch, mode in product(DTYPES, batches, MODES):
        if (batch, mode) == (1, "train") and not network.is_trained_alone:
            continue
        given = network.inputs(batch)
        if dtype != "fp32":
            model, given = _last(model), {name: _last(one) for name, one in given.items()}
        given = {name: one.to(place) for name, one in given.items()}
        met += calls(lambda: _run(model, given, dtype, mode), device)  # noqa: B023 (called at once)
    return met


def _last(given: Any) -> Any:
    """Return a tensor, or a module's parameters, with channels last; on the CPU for a while."""
    if isinstance(given, Tensor):
        return given.contiguous(memory_format=FORMATS.get(given.ndim, torch.contiguous_format))
    for one in given.parameters():
        if one.ndim in FORMATS:
            one.data = _last(one.data.cpu()).to(one.device)
    return given


def _run(model: nn.Module, given: dict[str, Tensor], dtype: str, mode: str) -> None:
    model.train(mode == "train")
    device = next(iter(given.values())).device
    half = nullcontext() if dtype == "fp32" else torch.autocast(device.type, torch.bfloat16)
    with torch.set_grad_enabled(mode == "train"):
        with half:
            result = model(*given.values()) if "x" in given else model(**given)
        if mode == "train":
            results = (one for one in tree_leaves(result) if isinstance(one, Tensor))
            graded = [one.float().square().mean() for one in results if one.requires_grad]
            torch.stack(graded).sum().backward()  # type: ignore[no-untyped-call]
            model.zero_grad()


if __name__ == "__main__":
    (_one,) = [network for network in NETWORKS if network.name == sys.argv[1]]
    for _problem, _count in met_by(_one, [*map(int, sys.argv[3:])], int(sys.argv[2])).items():
        print(json.dumps({"problem": _problem.key(), "calls": _count}))
