"""The default problems of a tuning: those that common networks consist of.

`torch.ocl.explain` shows what a given network really runs.
"""

from __future__ import annotations

from dataclasses import replace

from oclgen.limits import Limits
from oclgen.problem import ConvProblem, GemmProblem, Problem

SQUARES = {"cpu": (256, 512, 1024), "gpu": (1024, 2048, 4096), "other": (256, 512, 1024)}
BATCH = {"cpu": 8, "gpu": 64, "other": 8}


def default_problems(limits: Limits) -> list[Problem]:
    """Return products and ResNet's convolutions, in sizes that suit the kind of device.

    Convolutions are those of He et al., arXiv:1512.03385, table 1, in all three directions.
    """
    batch = BATCH[limits.kind]
    products: list[Problem] = [GemmProblem(n, n, n) for n in SQUARES[limits.kind]]
    products.append(GemmProblem(batch, 1000, 512, trans_b=True, bias="n"))
    return products + [
        replace(conv, direction=direction)
        for conv in _resnet(batch)
        for direction in ("fwd", "bwd_data", "bwd_weights")
    ]


def _resnet(batch: int) -> list[ConvProblem]:
    threes = [
        ConvProblem(batch, channels, size, size, channels, 3, 3, pad_h=1, pad_w=1)
        for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7))
    ]
    first = ConvProblem(batch, 3, 224, 224, 64, 7, 7, 2, 2, 3, 3)
    return [*threes, ConvProblem(batch, 256, 56, 56, 64, 1, 1), first]
