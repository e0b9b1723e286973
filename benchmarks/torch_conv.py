"""Times torch's convolution in one direction, CUDA if there is one; the peer of `conv.py`.

It is a process of its own, for the reason `torch_gemm.py` gives, and talks as that one does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch_gemm import DTYPES, device_name, serve, timed

from oclgen.problem import ConvProblem


def samples(problem: ConvProblem) -> list[float]:
    """Return times in milliseconds after a warm-up."""
    x, w, y = (
        torch.randn(problem.buffers[role], dtype=DTYPES[problem.dtype], device=device_name())
        for role in ("x", "w", "y")
    )
    with torch.no_grad():
        return timed(_call(problem, x, w, y))


def _call(
    p: ConvProblem, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor
) -> Callable[[], object]:
    geometry = ([p.stride_h, p.stride_w], [p.pad_h, p.pad_w], [p.dilation_h, p.dilation_w])
    if p.direction == "fwd":
        return lambda: torch.nn.functional.conv2d(x, w, None, *geometry, p.groups)
    wanted = [p.direction == "bwd_data", p.direction == "bwd_weights", False]
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(y, x, w, None, *geometry, False, [0, 0], p.groups, wanted)


def main() -> None:
    """Let cuDNN choose its fastest strict-fp32 algorithm, then answer."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    serve(samples)


if __name__ == "__main__":
    main()
