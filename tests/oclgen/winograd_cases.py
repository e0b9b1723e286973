"""Convolutions and configs that between them meet every edge: shared by the Winograd tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any

from hypothesis import strategies as st

from oclgen.activations import ACTIVATIONS
from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_register, gemm_staged
from oclgen.families.winograd import winograd_blocked as blocked
from oclgen.families.winograd import winograd_fused as fused
from oclgen.families.winograd import winograd_staged as staged
from oclgen.families.winograd import winograd_weights as weights
from oclgen.families.winograd.winograd_geometry import OUT_TILES
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import DTYPES, ConvProblem
from oclgen.variant import Variant

SHAPES = (
    ConvProblem(1, 1, 1, 2, 1, 3, 3, pad_h=1, pad_w=1),
    ConvProblem(2, 3, 7, 9, 5, 3, 3, pad_h=1, pad_w=1),
    ConvProblem(1, 17, 13, 8, 19, 3, 3),
    ConvProblem(3, 5, 3, 20, 8, 3, 3, pad_h=2, pad_w=2),
)
EVEN = ConvProblem(1, 8, 8, 8, 16, 3, 3, pad_h=0, pad_w=2)
DIRECTED = tuple(replace(p, direction=d) for p in SHAPES for d in ("fwd", "bwd_data"))
GRADIENTS = tuple(
    (replace(p, direction="bwd_weights"), out_tile)
    for p, out_tile in (
        (SHAPES[1], 2), (SHAPES[2], 4), (SHAPES[3], 6), (replace(SHAPES[1], dtype="bf16"), 4),
    )
)  # fmt: skip
OTHER_FILTERS = (
    (ConvProblem(1, 3, 9, 11, 5, 5, 5, pad_h=2, pad_w=2), 2),
    (ConvProblem(2, 5, 6, 13, 8, 5, 5, pad_h=4, direction="bwd_data"), 4),
    (ConvProblem(2, 5, 7, 9, 6, 5, 5, pad_h=2, pad_w=1, direction="bwd_weights"), 4),
    (ConvProblem(2, 3, 8, 7, 4, 2, 2, pad_h=1), 5),
    (ConvProblem(1, 4, 9, 5, 3, 2, 2, direction="bwd_data"), 3),
    (ConvProblem(2, 3, 9, 12, 5, 4, 4, pad_h=1, pad_w=2, direction="bwd_data"), 5),
    (ConvProblem(1, 4, 10, 8, 6, 4, 4, pad_h=2, pad_w=1, direction="bwd_weights"), 3),
    (ConvProblem(1, 2, 11, 9, 3, 6, 6, pad_h=3, pad_w=2), 3),
    (ConvProblem(2, 3, 9, 8, 4, 7, 7, pad_h=3, pad_w=3), 2),
    (ConvProblem(1, 3, 12, 9, 2, 7, 7, pad_h=3, pad_w=1, direction="bwd_weights"), 2),
)
"""Filters that are not 3x3, which `winograd_fused` does not serve: problem and out_tile."""
CUT = (
    (ConvProblem(2, 3, 9, 11, 5, 9, 9, pad_h=4, pad_w=4), (6, 3)),
    (ConvProblem(1, 5, 12, 9, 7, 7, 7, pad_h=3, pad_w=2), (5, 4)),
    (ConvProblem(2, 4, 13, 11, 4, 5, 8, pad_h=2, pad_w=7), (4, 3)),
    (ConvProblem(1, 6, 14, 12, 3, 11, 10, pad_h=5), (4, 5)),
)
"""Filters that are cut into blocks, which they fill or not, with out_tile and taps of a block."""
PIXELS = tuple(
    (replace(p, layout="nhwc"), out_tile)
    for p, out_tile in (
        (SHAPES[0], 2),
        (replace(SHAPES[1], direction="bwd_data"), 4),
        (replace(SHAPES[3], bias=True, activation="relu"), 6),
        (replace(SHAPES[2], dtype="fp16", bias=True), 4),
        *OTHER_FILTERS,
        *GRADIENTS,
    )
)
"""Images in channels_last, which the staged families alone read as they lie: with out_tile."""

BLOCKED = blocked.Config(
    out_tile=4, tile_rows=2, item_t=3, item_k=8, vec_k=4, unroll_c=1, workers=2, split_k=1,
    filters_inside=False,
)  # fmt: skip
FUSED = fused.Config(
    out_tile=4, tile_t=8, tile_k=8, tile_c=3, item_t=8, item_k=8, vec=4, stage_u=True,
    pad_v=4, pad_u=0, pad_m=1, pass_k=4,
)  # fmt: skip
REGISTER = Variant("gemm_register", gemm_register.DEFAULT).to_text()
STAGED = staged.Config(out_tile=4, vec_t=1, local_t=4, vec_k=1, local_k=2, gemm=REGISTER)
STAGED_PRODUCT = Variant("gemm_staged", gemm_staged.DEFAULT).to_text()
WEIGHTS = weights.Config(out_tile=4, slice_t=16, local_t=4, local_c=2, gemm=STAGED_PRODUCT)
BASES = {"winograd_blocked": BLOCKED, "winograd_fused": FUSED, "winograd_staged": STAGED}

EPILOGUES = tuple(
    (base, replace(SHAPES[1], bias=True, activation=activation))
    for base, activation in zip(cycle((BLOCKED, FUSED, STAGED)), ACTIVATIONS, strict=False)
)
STORED = tuple(
    (base, replace(SHAPES[1], dtype=dtype, bias=True))
    for base in (BLOCKED, FUSED, STAGED)
    for dtype in DTYPES
    if dtype != "fp32"
)
VARIANTS = (
    replace(BLOCKED, out_tile=2, item_k=16, vec_k=16, filters_inside=True, workers=3),
    replace(BLOCKED, out_tile=6, item_k=1, vec_k=1, tile_rows=1, unroll_c=2, split_k=2),
    replace(BLOCKED, item_t=16, item_k=4, filters_inside=True, split_k=2, tile_rows=5),
    fused.DEFAULT,
    replace(FUSED, tile_t=16, tile_k=16, vec=2, stage_u=False, pad_v=2, pad_m=0, pass_k=2),
    replace(STAGED, out_tile=2, vec_t=16, local_t=1, gemm=STAGED_PRODUCT),
    replace(STAGED, out_tile=6, vec_t=4),
)


def family_of(config: Any) -> str:
    """Return the name of the family that a config belongs to."""
    bases = {**BASES, "winograd_weights": WEIGHTS}
    return next(name for name, base in bases.items() if type(base) is type(config))


def label(case: Any) -> str:
    """Return a test's name for a problem, a tiling or a config."""
    if isinstance(case, int):
        return f"F{case}"
    if isinstance(case, tuple):
        return "F{}x{}".format(*case)
    return case.key() if isinstance(case, ConvProblem) else family_of(case)


def run(device: Device, problem: ConvProblem, config: Any) -> tuple[float, str]:
    """Run one variant once; return its relative L2 error and why it is wrong, or ""."""
    plan = FAMILIES[family_of(config)].plan(problem, config)
    measured = Bench(device, problem).measure(plan, limit_ms=0.0)  # no time is wanted
    return measured.error, measured.reason


def problems() -> st.SearchStrategy[ConvProblem]:
    """Return any small convolution that Winograd serves."""
    size, padding = st.integers(7, 21), st.integers(0, 1)
    channels = st.integers(2, 20)
    kernel = st.shared(st.sampled_from((2, 3, 3, 4, 5, 6, 7)), key="kernel")
    return st.builds(
        ConvProblem,
        batch=st.integers(1, 3), in_channels=channels, height=size, width=size,
        out_channels=channels, kernel_h=kernel, kernel_w=kernel,
        pad_h=padding, pad_w=padding, direction=st.sampled_from(("fwd", "bwd_data")),
    )  # fmt: skip


def one_of(**values: tuple[Any, ...]) -> dict[str, st.SearchStrategy[Any]]:
    """Return a strategy per parameter."""
    return {name: st.sampled_from(choices) for name, choices in values.items()}


BOTH = (False, True)
CONFIGS = {
    "winograd_blocked": st.builds(
        blocked.Config,
        **one_of(
            out_tile=OUT_TILES, tile_rows=(1, 2, 3, 7), item_t=(1, 3, 8), item_k=(4, 8, 12),
            vec_k=(1, 4), unroll_c=(1, 3), workers=(1, 2, 5), split_k=(1, 2),
            filters_inside=BOTH,
        ),
    ),
    "winograd_fused": st.builds(
        fused.Config,
        **one_of(
            out_tile=(2, 4), tile_t=(4, 8, 16), tile_k=(8, 16), tile_c=(1, 3, 4),
            item_t=(4, 8), item_k=(4, 8), vec=(1, 2, 4), stage_u=BOTH, pad_v=(0, 4),
            pad_u=(0, 4), pad_m=(0, 1), pass_k=(1, 2, 4),
        ),
    ),
    "winograd_staged": st.builds(
        staged.Config,
        **one_of(
            out_tile=OUT_TILES, vec_t=(1, 2, 8), local_t=(1, 3, 8), vec_k=(1, 2),
            local_k=(1, 5), gemm=(REGISTER, STAGED_PRODUCT),
        ),
    ),
}  # fmt: skip
