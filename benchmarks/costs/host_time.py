"""Times what the host spends per operator call: small tensors, many calls.

    python -m benchmarks host-time --calls 10000

`total` is wall time per call with the wait at the end; `host` the processor time of the calling
thread, which the device's work does not count into even where it shares the cores; `driver` the
part of that which the same launches take by themselves, all prepared and with nothing to set but
workspaces; `ours` the rest; `noted` is `host` while `torch.ocl.tunable` records untuned problems,
taken in turns with it. The chain is held back and runs as one. `cpu` is torch on the CPU, wall
time. Minimum of several rounds.
"""

from __future__ import annotations

from time import perf_counter, thread_time

import torch
from torch.nn.functional import scaled_dot_product_attention

import ocl_backend  # noqa: F401  (registers the device)
from benchmarks.timing import Call
from ocl_backend.fusion import recall
from ocl_backend.fusion.held import settle
from ocl_backend.runtime.launch import Prepared

ROUNDS = 7
ocl = torch.get_device_module("ocl")


def main(calls: int, device: str) -> None:
    """Print microseconds per call for every operator on both sides."""
    columns = ("total", "host", "driver", "ours", "noted", "cpu")
    heads = "".join(f"{column:>8}" for column in columns)
    print(f"{'operator':26}{heads}   us per call, {calls} calls")
    ours, theirs = operators(torch.device(device)), operators(torch.device("cpu"))
    of_round = -(-calls // ROUNDS)
    for name, call in ours.items():
        (total, host), noted = with_recording(call, of_round)
        _, driver = timed(launches_of(call), of_round)
        peer, _ = timed(theirs[name], of_round)
        row = (total, host, driver, host - driver, noted, peer)
        print(f"{name:26}" + "".join(f"{figure:8.2f}" for figure in row))


def operators(device: torch.device) -> dict[str, Call]:
    """Return the calls to time, on tensors of `device`."""
    x, image = torch.ones(64, 64).to(device), torch.ones(1, 8, 16, 16).to(device)
    weight, bias = torch.ones(8, 8, 3, 3).to(device), torch.ones(64).to(device)
    held, heads = torch.ones(4, 64, 8, 8).to(device), torch.ones(1, 4, 32, 64).to(device)
    layers = [
        torch.nn.Conv2d(64, 64, 1, bias=False),
        torch.nn.BatchNorm2d(64),
        torch.nn.ReLU6(inplace=True),
    ]
    chain = torch.nn.Sequential(*layers).to(device).eval().requires_grad_(False)
    return {
        "x + x, 64 x 64": lambda: x + x,
        "relu, 64 x 64": lambda: torch.relu(x),
        "mm, 64^3": lambda: torch.mm(x, x),
        "addmm, 64^3": lambda: torch.addmm(bias, x, x),
        "conv2d 3x3, 8 to 8, 16^2": lambda: torch.conv2d(image, weight, padding=1),
        "chain 1x1, norm, ReLU6": lambda: chain(held),
        "attention, 4 heads, 32 x 64": lambda: scaled_dot_product_attention(heads, heads, heads),
        "dropout, 64 x 64": lambda: torch.dropout(x, 0.5, train=True),
    }


def launches_of(call: Call) -> Call:
    """Return the launches that `call` makes, with the pointers of one call, and nothing else."""
    recall.suspend(True)  # or the launches would not be seen
    call()  # what it prepares at first is no part of it
    settle()
    made: list[tuple[Prepared, tuple[float, ...]]] = []
    plain = Prepared.__call__

    def noted(self: Prepared, *values: float) -> None:
        made.append((self, values))
        plain(self, *values)

    Prepared.__call__ = noted  # type: ignore[method-assign]
    try:
        kept = call()  # whose memory the launches write to
        settle()
    finally:
        Prepared.__call__ = plain  # type: ignore[method-assign]
        recall.suspend(False)

    def again() -> object:
        for launch, values in made:
            plain(launch, *values)
        return kept

    return again


def with_recording(call: Call, calls: int) -> tuple[tuple[float, float], float]:
    """Return what `timed` does, and the processor time while untuned problems are recorded."""
    tunable = ocl.tunable
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    plain: list[tuple[float, float]] = []
    noted: list[tuple[float, float]] = []
    try:
        for _ in range(ROUNDS):
            for is_on, rounds in ((False, plain), (True, noted)):
                tunable.enable(is_on)
                call()
                call()  # the shim recalls what two calls did
                rounds.append(timed(call, -(-calls // ROUNDS), rounds=1))
    finally:
        tunable.record_untuned_enable(False)
        tunable.enable(False)
    walls, hosts = zip(*plain, strict=True)
    return (min(walls), min(hosts)), min(host for _, host in noted)


def timed(call: Call, calls: int, rounds: int = ROUNDS) -> tuple[float, float]:
    """Return microseconds per call: wall time with the wait, and this thread's processor time.

    Args:
        call: what is timed.
        calls: in a round.
        rounds: the fastest of them counts.
    """
    walls, hosts = [], []
    for _ in range(rounds):
        ocl.synchronize()
        wall, host = perf_counter(), thread_time()
        for _ in range(calls):
            call()
        hosts.append((thread_time() - host) / calls)
        ocl.synchronize()
        walls.append((perf_counter() - wall) / calls)
    return 1e6 * min(walls), 1e6 * min(hosts)
