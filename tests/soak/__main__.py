"""Puts one process through chores for a while: results and memory must be the same at the end.

    python -m tests.soak --seconds 600
    python -m tests.soak --seconds 60 --seed 12345

Chores are in `tests.soak.chores`. What the process computes in the end is compared with a fresh
process, the memory of the device with that after the first rounds, and the memory of the process
with that at half time. Kernels are built without the compiler's optimiser, except for one in 16,
unless `THOROUGH=1` is set. The command exits with 1 where something differs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import torch

import ocl_backend  # noqa: F401  (registers the device)
from tests import sampled_builds
from tests.soak import chores

LEAST_ROUNDS = 4
MIB = 1 << 20
GROWTH_MIB, GROWTH = 48, 0.05
"""What the process may have taken from half time on: kernels of new sizes, and a share."""
SETTLED_S = 2.0
"""How long a thread may take to let go of what it computed."""


def resident() -> float:
    """Return the memory of this process in MiB, after what Python and the device can give back."""
    gc.collect()
    chores.OCL.synchronize()
    chores.OCL.empty_cache()
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def allocated(device: str, least: int) -> int:
    """Return the bytes of tensors, once they are no more than `least` or after `SETTLED_S`.

    A thread of autograd lets go of a graph that failed after the caller has met the exception.
    """
    until = time.monotonic() + SETTLED_S
    while (found := chores.OCL.memory_allocated(device)) > least and time.monotonic() < until:
        time.sleep(0.01)
        gc.collect()
    return int(found)


def fresh(device: str) -> list[float]:
    """Return the fingerprint of a new process."""
    command = [sys.executable, "-m", "tests.soak", "--fingerprint", "--device", device]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def soak(seconds: float, seed: int, device: str) -> list[str]:
    """Do rounds of all chores for a while; return what is wrong."""
    chores.fingerprint(device)  # what torch imports at a first step it cannot import after Ctrl-C
    rng, begin, rounds = Random(seed), time.monotonic(), 0
    sizes: list[float] = []
    held: list[int] = []
    while rounds < LEAST_ROUNDS or time.monotonic() - begin < seconds:
        for chore in rng.sample(chores.CHORES, len(chores.CHORES)):
            try:
                chore(rng, device)
            except Exception as error:  # of the device's own, too
                return [f"round {rounds}, {chore.__name__}: {type(error).__name__}: {error}"]
        rounds += 1
        sizes.append(resident())
        held.append(allocated(device, min(held, default=0)))
    print(f"{rounds} rounds in {time.monotonic() - begin:.0f} s")
    wrong = []
    half, last = sizes[len(sizes) // 2], sizes[-1]
    print(f"the process had {sizes[0]:.0f} MiB, {half:.0f} at half time, {last:.0f} at the end")
    print(f"tensors had {held[0]} bytes, {held[-1]} at the end")
    if last - half > GROWTH_MIB + GROWTH * half:
        wrong.append(f"the process grew from {half:.0f} to {last:.0f} MiB")
    if held[-1] > held[1]:
        wrong.append(f"tensors took {held[1]} bytes after two rounds, {held[-1]} at the end")
    try:
        chores.agree(chores.fingerprint(device), fresh(device), "a fresh process")
    except chores.WrongError as error:
        wrong.append(str(error))
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seconds", type=float, default=60.0, help="when no other round begins")
    parser.add_argument("--seed", type=int, help="of all rounds; a fresh one if left out")
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--fingerprint", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sampled_builds.begin()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    if given.fingerprint:
        print(json.dumps(chores.fingerprint(given.device)))
        return 0
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    print(f"soak of seed {seed}", flush=True)
    torch.manual_seed(seed)
    wrong = soak(given.seconds, seed, given.device)
    for line in wrong:
        print(f"wrong: {line}")
    if not wrong:
        print("results and memory as at the beginning")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
