"""The peer's side: torch on CUDA or on the CPU, in a process that opens no OpenCL device.

It has a user's settings: strict fp32 except for tf32 problems, and cuDNN's fastest algorithm.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.tasks import architectures, attention, images, language, networks, pointwise
from benchmarks.tasks.sweep_calls import call
from benchmarks.timing import Call, Clock, Prepare, Prepared, bursts, calls, steps, wall_ms
from oclgen.keys import parse_key
from oclgen.problem import ConvProblem, GemmProblem

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
MODELLED = {"language": language, "images": images, architectures.KIND: architectures}
SAMPLE_S = {"cuda": 0.05, "cpu": 0.15}
"""Seconds of a turn."""


def start(device: str) -> Prepare:
    """Return what prepares a task on "cuda" or "cpu"."""
    torch.backends.cudnn.benchmark = True
    return partial(prepare, device=device)


def prepare(kind: str, what: dict[str, Any], device: str) -> Prepared:
    """Make a task ready and warm.

    Args:
        kind: of `benchmarks.comparison.run.KINDS`, "sweep" or "architectures"; "hello" asks for
            torch's name alone.
        what: the task.
        device: torch's name of it, "cuda" or "cpu".
    """
    if kind == "hello":
        name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        return Prepared({"name": f"torch {torch.__version__} {name}"}, {})
    if device == "cuda":
        allow_tf32(_dtype(kind, what) == "tf32")
    wait = torch.cuda.synchronize if device == "cuda" else None
    clock: Clock = partial(wall_ms, wait=wait)
    if kind == "sweep":
        return Prepared({}, {"torch": bursts(call(**what, device=device), wait, SAMPLE_S[device])})
    if kind == "attention":
        run = attention.call(device=device, **what)
        return Prepared({}, {"torch": bursts(run, wait, SAMPLE_S[device])})
    if kind == "networks":
        return Prepared({}, {"torch": steps(networks.step(device=device, **what), clock)})
    if kind in MODELLED:
        step = MODELLED[kind].step(device=device, **what)
        outcome = [tensor.float().numpy() for tensor in step.outcome()]
        return Prepared({"outcome": outcome}, {"torch": steps(step.run, clock)})
    if kind == "pointwise":
        run = pointwise.call(device=device, **what)
    else:
        problem = parse_key(what["problem"])
        assert isinstance(problem, GemmProblem | ConvProblem)
        run = problem_call(problem, device)
        clock = cuda_ms if device == "cuda" else clock
    return Prepared({}, {"torch": calls(run, clock, SAMPLE_S[device])})


def _dtype(kind: str, what: dict[str, Any]) -> str:
    if kind in ("gemm", "conv"):
        return parse_key(what["problem"]).dtype
    return what["case"].dtype if kind == "sweep" else ""


def allow_tf32(allowed: bool) -> None:
    """Say whether CUDA may round to tf32; of itself torch lets convolutions, not products."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def problem_call(problem: GemmProblem | ConvProblem, device: str) -> Call:
    """Return torch's call of a product or a convolution on normally distributed numbers."""
    tensors = {
        role: torch.randn(shape, dtype=DTYPES[problem.dtype], device=device)
        for role, shape in problem.buffers.items()
    }
    if isinstance(problem, GemmProblem):
        return _product(problem, tensors["a"], tensors["b"])
    return torch.no_grad()(_convolution(problem, **tensors))


def _product(problem: GemmProblem, a: torch.Tensor, b: torch.Tensor) -> Call:
    a, b = a.mT if problem.trans_a else a, b.mT if problem.trans_b else b
    a, b = (a[0], b[0]) if problem.batch == 1 else (a, b)
    out = torch.matmul(a, b)
    return lambda: torch.matmul(a, b, out=out)


def _convolution(p: ConvProblem, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> Call:
    if p.layout == "nhwc":
        x, y = x.permute(0, 3, 1, 2), y.permute(0, 3, 1, 2)
        turned = w.permute(0, 3, 1, 2) if p.turns_weights else w
        w = turned.contiguous(memory_format=torch.channels_last)
    geometry = ([p.stride_h, p.stride_w], [p.pad_h, p.pad_w], [p.dilation_h, p.dilation_w])
    if p.direction == "fwd":
        return lambda: torch.nn.functional.conv2d(x, w, None, *geometry, p.groups)
    wanted = [p.direction == "bwd_data", p.direction == "bwd_weights", False]
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(y, x, w, None, *geometry, False, [0, 0], p.groups, wanted)


def cuda_ms(run: Call) -> float:
    """Return the milliseconds of one call on the GPU, by its own events."""
    begin, end = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))
