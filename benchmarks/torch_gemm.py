"""Times torch's matrix product, CUDA if there is one, else CPU; the peer of `gemm.py`.

It is a process of its own, since CUDA and the device `ocl` do not share one: problem keys come in
on stdin, one per line; milliseconds go out, one JSON list per line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from oclgen.keys import parse_key
from oclgen.problem import GemmProblem

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
SAMPLE_S = 0.15


def operands(problem: GemmProblem, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A [batch, m, k] and B [batch, k, n], transposed views where the problem says so."""
    a, b = (
        torch.randn(problem.buffers[role], dtype=DTYPES[problem.dtype], device=device)
        for role in ("a", "b")
    )
    a, b = a.mT if problem.trans_a else a, b.mT if problem.trans_b else b
    return (a[0], b[0]) if problem.batch == 1 else (a, b)


def cpu_ms(run: Callable[[], object]) -> float:
    """Return the milliseconds of one call."""
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def cuda_ms(run: Callable[[], object]) -> float:
    """Return the milliseconds of one call on the GPU, by its own events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def device_name() -> str:
    """Return torch's name of what it runs on here."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def samples(problem: GemmProblem) -> list[float]:
    """Return times in milliseconds after a warm-up."""
    torch.backends.cuda.matmul.allow_tf32 = problem.dtype == "tf32"
    a, b = operands(problem, device_name())
    out = torch.matmul(a, b)

    def run() -> object:
        return torch.matmul(a, b, out=out)

    return timed(run)


def timed(run: Callable[[], object]) -> list[float]:
    """Return times in milliseconds of a few calls after a warm-up."""
    once = cuda_ms if device_name() == "cuda" else cpu_ms
    for _ in range(3):
        once(run)
    times: list[float] = []
    while len(times) < 5 or (sum(times) < SAMPLE_S * 1e3 and len(times) < 50):
        times.append(once(run))
    return times


def main() -> None:
    """Answer every line on stdin; the first line out names the peer."""
    serve(samples)


def serve(answer: Callable[[Any], list[float]]) -> None:
    """Name the peer, then answer every line with the times of its problem."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(json.dumps(f"torch {torch.__version__} {name}"), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(parse_key(line.strip()))), flush=True)


if __name__ == "__main__":
    main()
