"""The torch device's part of `oclgen check`: a sample of operators against float64 on the CPU.

It runs in a process of its own, which may crash; the result of each operator goes through a pipe.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import util
from typing import TYPE_CHECKING, Any

from oclgen.measuring.steps import Talk, serve

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 1e-4
"""Largest difference over the largest value; sums of some hundred fp32 products keep 1e-6."""
SEED = 7


@cache
def operators() -> dict[str, Callable[..., Any]]:
    """Return functions of tensors by name; `SHAPES` says of which shapes."""
    import torch
    from torch.nn import functional

    return {
        "add": lambda a, b: a + b,
        "mul": lambda a, b: a * b,
        "where": lambda a, b: torch.where(a > b, a, b),
        "exp": torch.exp,
        "tanh": torch.tanh,
        "gelu": functional.gelu,
        "silu": functional.silu,
        "sum": lambda a: a.sum(dim=-1),
        "mean": lambda a: a.mean(dim=0),
        "max": lambda a: a.max(dim=-1).values,
        "argmax": lambda a: a.argmax(dim=-1),
        "cumsum": lambda a: a.cumsum(dim=-1),
        "sort": lambda a: a.sort(dim=-1).values,
        "topk": lambda a: a.topk(5, dim=-1).values,
        "softmax": lambda a: a.softmax(dim=-1),
        "log_softmax": lambda a: a.log_softmax(dim=-1),
        "transpose": lambda a: a.transpose(-1, -2).contiguous(),
        "cat": lambda a, b: torch.cat((a, b)),
        "index_select": lambda a: a[[2, 0, 1]],
        "gather": lambda a: a.gather(1, a.argsort(dim=1)),
        "matmul": torch.matmul,
        "bmm": torch.bmm,
        "linear": functional.linear,
        "conv2d": lambda x, w: functional.conv2d(x, w, padding=1),
        "conv2d, stride 2": lambda x, w: functional.conv2d(x, w, stride=2),
        "depthwise conv2d": lambda x, w: functional.conv2d(x, w, groups=8, padding=1),
        "max_pool2d": lambda x: functional.max_pool2d(x, 2),
        "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
        "interpolate": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        "layer_norm": lambda a: functional.layer_norm(a, a.shape[-1:]),
        "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
        "attention": functional.scaled_dot_product_attention,
        "cross_entropy": lambda a: functional.cross_entropy(a, a.argmin(dim=-1)),
    }


MATRIX, IMAGE = (37, 64), (2, 8, 14, 14)
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "add": (MATRIX, MATRIX),
    "mul": (MATRIX, MATRIX),
    "where": (MATRIX, MATRIX),
    "cat": (MATRIX, MATRIX),
    "matmul": (MATRIX, (64, 29)),
    "bmm": ((3, 17, 24), (3, 24, 19)),
    "linear": (MATRIX, (48, 64)),
    "conv2d": (IMAGE, (12, 8, 3, 3)),
    "conv2d, stride 2": (IMAGE, (12, 8, 3, 3)),
    "depthwise conv2d": (IMAGE, (8, 1, 3, 3)),
    "max_pool2d": (IMAGE,),
    "avg_pool2d": (IMAGE,),
    "interpolate": (IMAGE,),
    "batch_norm": (IMAGE,),
    "attention": ((2, 4, 33, 16),) * 3,
}
"""Shapes of the tensors that an operator takes; of others it is one matrix."""


def why_wrong(name: str, device: str) -> tuple[float, str]:
    """Return the largest relative error of an operator and its gradients, and what is wrong or "".

    Args:
        name: of `operators()`.
        device: the torch device, such as "ocl:0".
    """
    import torch

    generator = torch.Generator().manual_seed(SEED)
    shapes = SHAPES.get(name, (MATRIX,))
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    theirs = _outcome(operators()[name], [one.double() for one in inputs])
    ours = _outcome(operators()[name], [one.to(device) for one in inputs])
    worst = 0.0
    for got, want in zip(ours, theirs, strict=True):
        if got.shape != want.shape:
            return float("inf"), f"shape {tuple(got.shape)} instead of {tuple(want.shape)}"
        scale = float(want.double().abs().max()) or 1.0
        error = float((got.cpu().double() - want.double()).abs().max()) / scale
        if not error <= TOLERANCE:  # a NaN is wrong
            return error, f"off by {error:.1e} of the largest value, allowed {TOLERANCE:.0e}"
        worst = max(worst, error)
    return worst, ""


def _outcome(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Return the result and, where it has some, the gradients of a weighted sum of it."""
    import torch

    leaves = [one.requires_grad_() for one in inputs]
    result: Any = function(*leaves)
    if not result.requires_grad:
        return [result]
    generator = torch.Generator().manual_seed(SEED + 1)  # the same weights on every device
    weights = torch.randn(result.shape, generator=generator)
    result.backward(weights.to(result))
    return [result.detach(), *(one.grad for one in leaves if one.grad is not None)]


def _work(talk: Talk) -> None:
    if util.find_spec("torch") is None:
        talk.find("torch", "skipped", "torch is not installed: pip install 'oclgen[torch]'")
        return
    import torch

    if not talk.begins("loading the torch device"):
        return
    import ocl_backend  # noqa: F401 (registers the device)

    talk.tell("torch", torch.__version__)
    talk.find("loading the torch device", "ok", f"torch {torch.__version__}")
    ocl: Any = torch.get_device_module("ocl")
    device = f"ocl:{talk.question['index']}"
    for name in operators():
        if talk.begins(name):
            ocl.reset_fallbacks()
            try:
                error, reason = why_wrong(name, device)
            except Exception as failure:  # whatever an operator raises is its finding
                talk.find(name, "fail", f"{type(failure).__name__}: {failure}")
                continue
            aside = ", ".join(ocl.fallbacks())
            found = reason or f"error {error:.1e}" + (f"; on the CPU: {aside}" if aside else "")
            talk.find(name, "fail" if reason else "ok", found)


if __name__ == "__main__":
    serve(_work)
