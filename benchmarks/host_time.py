"""Times what the host spends per operator call: small tensors, many calls, one wait at the end.

    python benchmarks/host_time.py --calls 10000

Each operator runs on the device `ocl` and on torch's CPU side in turn. Device work on such sizes is
small but not nothing: a CPU device shares the cores with the host. The `enqueue` column stops the
clock before the wait, so it is the host's part alone where the device keeps up.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

import ocl_backend  # noqa: F401  (registers the device)

ROUNDS = 5


def main() -> None:
    """Print microseconds per call for every operator on both sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--device", default="ocl:0")
    options = parser.parse_args()
    print(f"{'operator':24}{'ocl':>8}{'enqueue':>9}{'cpu':>8}   us per call, {options.calls} calls")
    ours, theirs = operators(torch.device(options.device)), operators(torch.device("cpu"))
    for name, call in ours.items():
        total, enqueue = timed(call, options.calls)
        peer, _ = timed(theirs[name], options.calls)
        print(f"{name:24}{total:8.2f}{enqueue:9.2f}{peer:8.2f}")


def operators(device: torch.device) -> dict[str, Callable[[], object]]:
    """Return the calls to time, on tensors of `device`."""
    x, image = torch.ones(64, 64).to(device), torch.ones(1, 8, 16, 16).to(device)
    weight, bias = torch.ones(8, 8, 3, 3).to(device), torch.ones(64).to(device)
    return {
        "x + x, 64 x 64": lambda: x + x,
        "relu, 64 x 64": lambda: torch.relu(x),
        "mm, 64^3": lambda: torch.mm(x, x),
        "addmm, 64^3": lambda: torch.addmm(bias, x, x),
        "conv2d 3x3, 8 to 8, 16^2": lambda: torch.conv2d(image, weight, padding=1),
    }


def timed(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Return median microseconds per call, with and without the wait at the end."""
    samples = []
    for _ in range(ROUNDS):
        torch.ocl.synchronize()
        start = perf_counter()
        for _ in range(calls // ROUNDS):
            call()
        enqueued = perf_counter()
        torch.ocl.synchronize()
        done = perf_counter()
        samples.append(((done - start) / (calls // ROUNDS), (enqueued - start) / (calls // ROUNDS)))
    totals, enqueues = zip(*samples, strict=True)
    return 1e6 * median(totals), 1e6 * median(enqueues)


if __name__ == "__main__":
    main()
