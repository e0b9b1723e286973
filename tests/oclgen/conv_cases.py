"""Small convolutions that between them meet every edge: shared by the families' tests."""

from __future__ import annotations

from dataclasses import replace

from oclgen.problem import ACTIVATIONS, DIRECTIONS, DTYPES, ConvProblem

SHAPES = (
    ConvProblem(1, 3, 7, 9, 5, 3, 3, pad_h=1, pad_w=1),
    ConvProblem(3, 4, 11, 8, 6, 3, 3, 2, 2, 1, 1),
    ConvProblem(1, 2, 13, 17, 3, 5, 2, 3, 2, 2, 0),
    ConvProblem(2, 6, 9, 9, 4, 3, 3, 1, 1, 2, 2, 2, 2, groups=2),
    ConvProblem(1, 4, 10, 12, 8, 3, 3, 2, 3, 1, 2, 2, 2, groups=4),
    ConvProblem(3, 5, 6, 5, 7, 1, 1),
    ConvProblem(1, 3, 7, 6, 2, 1, 1, 2, 2),
    ConvProblem(1, 1, 1, 1, 1, 1, 1),
    ConvProblem(1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1),
    ConvProblem(2, 3, 19, 21, 4, 7, 7, 2, 2, 3, 3),
    ConvProblem(1, 2, 23, 23, 3, 11, 11, 4, 4, 2, 2),
    ConvProblem(1, 17, 5, 4, 33, 3, 3, pad_h=1, pad_w=1),
)
DIRECTED = tuple(replace(shape, direction=d) for shape in SHAPES for d in DIRECTIONS)
EPILOGUES = tuple(
    replace(SHAPES[0], bias=bias, activation=activation)
    for bias in (False, True)
    for activation in ACTIVATIONS
)
STORED = tuple(
    replace(SHAPES[1], dtype=dtype, direction=d) for dtype in DTYPES for d in DIRECTIONS
)
DEPTHWISE_SHAPES = (
    ConvProblem(1, 4, 9, 11, 4, 3, 3, 1, 1, 1, 1, groups=4),
    ConvProblem(3, 5, 13, 35, 5, 3, 3, 2, 2, 1, 1, groups=5),
    ConvProblem(2, 3, 7, 7, 6, 5, 3, 1, 1, 2, 1, groups=3),
    ConvProblem(1, 2, 17, 16, 6, 3, 5, 3, 3, 1, 2, groups=2),
    ConvProblem(1, 2, 12, 19, 2, 3, 3, 2, 1, 2, 3, 2, 3, groups=2),
    ConvProblem(1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1),
)
DEPTHWISE = (
    *(replace(shape, direction=d) for shape in DEPTHWISE_SHAPES for d in DIRECTIONS),
    *(replace(DEPTHWISE_SHAPES[1], bias=True, activation=a) for a in ACTIVATIONS),
    *(replace(DEPTHWISE_SHAPES[1], dtype=t, direction=d) for t in DTYPES for d in DIRECTIONS),
)
