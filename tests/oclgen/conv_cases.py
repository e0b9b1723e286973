"""Small convolutions that between them meet every edge, and configs far from the default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oclgen.families import FAMILIES, families_for
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import DIRECTIONS, ConvProblem, Direction, Volume
from oclgen.variant import Variant

SHAPES = (
    ConvProblem(3, 4, 11, 8, 6, 3, 3, 2, 2, 1, 1),
    ConvProblem(1, 2, 7, 9, 3, 5, 2, 3, 1, 2, 0),
    ConvProblem(2, 6, 9, 9, 4, 3, 3, 1, 1, 2, 2, 2, 2, groups=2),
    ConvProblem(1, 8, 6, 5, 4, 3, 3, 2, 1, 1, 2, 2, 2, groups=4),
    ConvProblem(3, 5, 6, 5, 7, 1, 1),
    ConvProblem(1, 3, 7, 6, 2, 1, 1, 2, 2),
    # one element, of which a kernel tap meets nothing but padding
    ConvProblem(1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1),
    ConvProblem(1, 17, 5, 4, 33, 3, 3, pad_h=1, pad_w=1),
    # more taps than are written out, most of them in the padding of some results
    ConvProblem(1, 4, 2, 23, 6, 1, 19, 1, 2, 0, 12, 1, 2, groups=2),
)
VOLUMES = (
    (ConvProblem(8, 48, 7, 6, 24, 3, 3, 1, 1, 1, 1), Volume(4, 3, 1, 1)),
    (ConvProblem(6, 32, 9, 8, 16, 3, 2, 2, 2, 1, 0, 1, 2), Volume(7, 2, 2, 0, 2)),
    (ConvProblem(5, 24, 4, 5, 40, 1, 1), Volume(5, 1)),
    (ConvProblem(12, 16, 5, 4, 8, 2, 3, 1, 2, 2, 1), Volume(5, 2, 1, 1)),
)
"""Images of three dimensions by the channels of their windows: padded, strided and dilated."""
DEPTHWISE_SHAPES = (
    ConvProblem(3, 5, 9, 35, 5, 3, 3, 2, 2, 1, 1, groups=5),
    ConvProblem(2, 3, 7, 7, 6, 5, 3, 1, 1, 2, 1, groups=3),
    # phases of two strides, of which some have no tap, and rows of whole vectors
    ConvProblem(1, 3, 10, 12, 6, 3, 3, 2, 3, 1, 2, 2, 2, groups=3),
    # fewer elements than the stride has phases
    ConvProblem(1, 2, 1, 2, 2, 1, 1, 3, 3, 1, 1, groups=2),
    # more taps than a work-item keeps sums of
    ConvProblem(1, 2, 13, 12, 4, 11, 9, 1, 2, 5, 4, groups=2),
)
EVERY_WAY = tuple(
    replace(shape, direction=direction)
    for shape in (*SHAPES, *DEPTHWISE_SHAPES)
    for direction in DIRECTIONS
)
PIXELS = tuple(
    replace(SHAPES[4], layout="nhwc", direction=direction, bias=direction == "fwd")
    for direction in DIRECTIONS
)
"""Images in channels_last, which 1x1 convolutions read without a copy."""
DEPTHWISE_PIXELS = tuple(
    replace(shape, layout="nhwc", direction=direction, bias=direction == "fwd")
    for shape in (
        ConvProblem(3, 6, 9, 11, 6, 3, 3, 2, 2, 1, 1, groups=6),
        ConvProblem(2, 4, 7, 8, 4, 5, 3, 1, 3, 2, 0, 1, 2, groups=4),
        # phases of the gradient that no tap reaches, and padding past the kernel
        ConvProblem(1, 2, 5, 4, 2, 1, 2, 3, 2, 0, 2, groups=2, dtype="bf16"),
        # more taps than a work-item keeps sums of, and channels of two blocks
        ConvProblem(1, 34, 12, 13, 34, 9, 11, 1, 1, 4, 5, groups=34),
    )
    for direction in DIRECTIONS
)
EPILOGUES = (
    replace(SHAPES[4], bias=True, activation="gelu"),
    replace(DEPTHWISE_SHAPES[1], bias=True, activation="relu"),
)
HALVES = (
    replace(SHAPES[4], dtype="bf16"),
    replace(SHAPES[0], dtype="fp16", direction="bwd_weights"),
    replace(DEPTHWISE_SHAPES[0], dtype="fp16"),
    replace(DEPTHWISE_SHAPES[0], dtype="bf16", direction="bwd_weights"),
)
OWN = (
    "depthwise", "depthwise_weights", "conv_narrow_weights", "conv_register",
    "conv_register_weights", "conv_gemm", "conv_as_gemm_register", "conv_as_gemm_staged",
)  # fmt: skip

VARIED: dict[str, dict[str, Any]] = {
    "depthwise": {"patch_h": 2, "patch_w": 5, "vec": 2, "guarded": False, "local_size": 4},
    "depthwise_weights": {
        "patch_h": 2, "patch_w": 5, "vec": 2, "guarded": False, "local_size": 128, "local_k": 16,
        "split": 2, "tap_rows": 2,
    },
    "conv_narrow_weights": {
        "item_m": 3, "item_c": 2, "tap_rows": 2, "patch_h": 3, "local_m": 1, "local_c": 2,
        "local_k": 16, "stages": 2, "split": 2,
    },
    "conv_register": {
        "images": 2, "item_x": 3, "vec": 4, "vecs": 2, "unroll": 2, "taps_outer": True,
        "channels_fastest": True,
    },
    "conv_register_weights": {
        "item_c": 2, "vec": 4, "vecs": 2, "unroll": 2, "split": 3, "outputs_fastest": True,
    },
    "conv_gemm": {
        "tile_m": 32, "tile_n": 64, "tile_k": 16, "local_m": 4, "local_n": 4, "vec_m": 2,
        "vec_n": 2, "pad": 4, "buffers": 2, "prefetch": True, "unroll_k": 8,
        "taps_outer": False, "split_k": 2, "m_fastest": False,
    },
}  # fmt: skip
"""For each family another value of every parameter; of images in planes where layouts differ."""
VARIED_PIXELS: dict[str, dict[str, Any]] = {
    "depthwise": {
        "patch_h": 2, "patch_w": 3, "vec_c": 2, "local_size": 64, "local_c": 4, "rounds": 2,
    },
    "depthwise_weights": {
        "patch_h": 2, "patch_w": 3, "vec_c": 2, "local_size": 128, "local_c": 32, "split": 3,
        "tap_rows": 2,
    },
}  # fmt: skip
"""The same of images in channels_last."""
OVERLAPPING: dict[str, dict[str, Any]] = {
    "depthwise": {"patch_h": 2, "patch_w": 3, "vec_c": 4, "local_size": 8, "local_c": 1},
    "depthwise_weights": {
        "patch_h": 2, "patch_w": 3, "vec_c": 4, "local_size": 2, "local_c": 1, "split": 2,
    },
}  # fmt: skip
"""The last vector of channels overlaps the one before it, where 4 does not divide them."""
IN_ROWS: dict[str, dict[str, Any]] = {
    "depthwise": {"patch_h": 2, "patch_w": 3, "vec_c": 8, "local_size": 8, "local_c": 1},
    "depthwise_weights": {
        "patch_h": 2, "patch_w": 3, "vec_c": 8, "local_size": 1, "local_c": 1, "split": 2,
    },
}  # fmt: skip
"""Rows of results of whole vectors of channels, of which the last one overlaps, too."""


def varied(name: str, layout: str) -> dict[str, Any]:
    """Return another value of every parameter that the family has for images that lie so."""
    return VARIED_PIXELS.get(name, VARIED[name]) if layout == "nhwc" else VARIED[name]


def check_sums(device: Device, problem: ConvProblem, variant: Variant) -> None:
    """Compare with float64 what a variant computes in 16 bits with sums that are exact to fp32."""
    result = Bench(device, problem).measure(variant.plan(problem), limit_ms=0.0)
    assert result.ok, f"{problem.key()} {variant}: {result.reason}"
    # what rounding the result to 8 bits leaves
    assert result.error < 4e-3


def label(value: object) -> str:
    return value.key() if isinstance(value, ConvProblem) else str(value)


def pairs(problems: tuple[ConvProblem, ...]) -> list[Any]:
    """Return (family name, problem) for each of this folder's families that serves."""
    return [(f.NAME, p) for p in problems for f in families_for(p) if f.NAME in OWN]


def variants(name: str, problem: ConvProblem) -> list[Any]:
    """Return configs that differ from the default in all that can be changed together."""
    base, changes = FAMILIES[name].DEFAULT, varied(name, problem.layout)
    if name == "conv_register":
        return [replace(base, **{**changes, "images": min(2, problem.batch)})]
    if name in OVERLAPPING and problem.layout == "nhwc" and problem.in_channels > 4:
        wide = [IN_ROWS[name]] if problem.in_channels >= 8 and problem.dtype != "fp16" else []
        return [replace(base, **each) for each in (changes, OVERLAPPING[name], *wide)]
    if name != "conv_gemm":
        return [replace(base, **changes)]
    weights = problem.direction == "bwd_weights"
    ways = [
        {**changes, "taps_outer": weights},
        {"tile_m": 16, "tile_n": 8, "tile_k": 4, "local_m": 2, "local_n": 4, "vec_m": 2,
         "vec_n": 2, "unroll_k": 2},
        {"tile_m": 8, "tile_n": 128, "local_m": 2, "local_n": 32, "buffers": 2},
    ]  # fmt: skip
    return [replace(base, **way) for way in ways]


def of_volume(number: int, direction: Direction) -> ConvProblem:
    """Return a convolution of three dimensions; `bwd_data` reads windows of y, as deep as x's."""
    flat, volume = VOLUMES[number]
    if direction == "bwd_data":
        flat = replace(flat, in_channels=flat.out_channels, out_channels=flat.in_channels)
    return replace(flat, direction=direction, layout="nhwc", volume=volume)
