"""Draws and runs programs for a while; the first wrong one ends it with a command to see it again.

Every second one is a chain in float32 (`draw`), the others are calls of all dtypes (`calls`).

    python -m tests.programs --seconds 30
    python -m tests.programs --seed 12345 --only 17

The seed is printed at the beginning, a fresh one unless it is given. It exits with 1 where a
program differs from the CPU.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import warnings
from typing import Any

import torch

import ocl_backend  # noqa: F401  (registers the device)
from ocl_backend.runtime import memory
from tests.programs.calls import check_calls, draw_calls
from tests.programs.draw import draw
from tests.programs.run import check


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs")
    parser.add_argument("--seconds", type=float, default=30.0, help="when no other program begins")
    parser.add_argument("--seed", type=int, help="of all programs; a fresh one if left out")
    parser.add_argument("--only", type=int, help="the number of the only program to run")
    parser.add_argument("--device", type=torch.device, default=torch.device("ocl", 0))
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    print(f"random programs of seed {seed}", flush=True)
    warnings.simplefilter("ignore")
    end = time.monotonic() + given.seconds
    number, calls = given.only or 0, 0
    while given.only is not None or time.monotonic() < end:
        name = f"{seed}:{number}"
        memory.set_submission(given.device.index, memory.Submission(number // 2 % 3))
        program: Any = draw_calls(name) if number % 2 else draw(name)
        try:
            run: Any = check_calls if number % 2 else check
            calls += run(program, name, given.device)
        except Exception as error:  # an error of the device's own is as wrong
            if not number % 2:
                print(program)
            print(f"{type(error).__name__}: {error}")
            print(f"again: python -m tests.programs --seed {seed} --only {number}")
            return 1
        number += 1
        if given.only is not None:
            print(*(program if given.only % 2 else [program]), sep="\n")
            break
    print(f"{number - (given.only or 0)} programs, {calls} calls: all as on the CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
