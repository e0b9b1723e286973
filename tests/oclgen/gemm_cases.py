"""Products and configs that between them meet every edge: shared by the GEMM families' tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any, Literal

from hypothesis import strategies as st

from oclgen.activations import ACTIVATIONS
from oclgen.families.gemm import (
    gemm_amx,
    gemm_async,
    gemm_columns,
    gemm_dot,
    gemm_long,
    gemm_mma,
    gemm_pairs,
    gemm_register,
    gemm_staged,
    gemm_stream,
    gemm_tall,
)
from oclgen.problem import DTYPES, GemmProblem
from oclgen.variant import Variant

SIZES = ((1, 1, 1), (1, 37, 64), (29, 1, 7), (7, 13, 5), (16, 32, 16), (33, 65, 17), (64, 64, 40))

BASE = GemmProblem(17, 24, 19)
LAYOUTS = tuple(
    replace(BASE, trans_a=trans_a, trans_b=trans_b, dtype=dtype)
    for dtype in DTYPES
    for trans_a in (False, True)
    for trans_b in (False, True)
    if dtype == "fp32" or trans_a == trans_b
)
BATCHES = tuple(
    replace(BASE, batch=3, shared_a=shared_a, shared_b=shared_b)
    for shared_a in (False, True)
    for shared_b in (False, True)
)
BIASES: tuple[Literal["none", "m", "n"], ...] = ("none", "m", "n")
EPILOGUES = (
    *(
        replace(BASE, bias=bias, activation=activation)
        for bias, activation in zip(cycle(BIASES), ACTIVATIONS, strict=False)
    ),
    replace(BASE, bias="n", activation="relu", residual=True),
    replace(BASE, batch=2, residual=True),
)

REGISTER = gemm_register.Config(
    item_m=3, item_n=8, vec_n=4, local_m=2, local_n=1, unroll_k=2,
    pack_a=False, pack_b=False, loop_m=1, order="m", split_k=1,
)  # fmt: skip
REGISTERS = (
    REGISTER,
    replace(REGISTER, item_n=1, vec_n=1, order="n"),
    replace(REGISTER, pack_a=True, loop_m=2),
    replace(REGISTER, pack_b=True, split_k=3, item_n=16, vec_n=16),
    replace(REGISTER, pack_a=True, pack_b=True, unroll_k=1, order="n", split_k=2),
)
SHIFTED = (
    replace(REGISTER, item_n=16, local_m=1),
    replace(REGISTER, item_n=16, local_m=1, order="n", split_k=2),
)
"""Whose last block of columns begins earlier, so that it ends at n."""

STAGED = gemm_staged.Config(
    tile_m=16, tile_n=16, tile_k=8, local_m=4, local_n=4, vec_m=2, vec_n=4, stage_a=True,
    stage_b=True, pad_a=0, pad_b=0, double_buffer=False, prefetch=False, unroll_k=4, split_k=1,
    group_m=1,
)  # fmt: skip
STAGEDS = (
    STAGED,
    replace(STAGED, double_buffer=True, prefetch=True, unroll_k=8, pad_a=2, pad_b=4, group_m=2),
    replace(STAGED, prefetch=True, stage_a=False, split_k=2),
    replace(STAGED, double_buffer=True, stage_b=False, vec_m=1, vec_n=1),
    replace(STAGED, stage_a=False, stage_b=False, local_m=8, local_n=2, split_k=3),
)

DOT = gemm_dot.Config(item_m=2, item_n=3, vec_k=4, local_k=4, local_n=2, split_k=1)
DOTS = (
    DOT,
    replace(DOT, local_k=1, local_n=1, vec_k=16, split_k=2),
    replace(DOT, item_m=1, item_n=1, vec_k=1, local_k=8),
)

COLUMNS = gemm_columns.Config(item_m=2, vec_n=4, unroll_k=4, local_n=2, local_k=4, split_k=1)
COLUMN_CONFIGS = (
    COLUMNS,
    replace(COLUMNS, item_m=1, vec_n=1, unroll_k=1, local_k=8, split_k=2),
    replace(COLUMNS, item_m=8, unroll_k=2, local_n=8, local_k=32),
)

STREAMED = gemm_stream.Config(item_m=2, tile_n=32, vec_n=4, unroll_k=4, split_k=1)
STREAM_CONFIGS = (
    STREAMED,
    replace(STREAMED, item_m=1, vec_n=1, unroll_k=1, split_k=2),
    replace(STREAMED, item_m=5, tile_n=64, vec_n=8, unroll_k=8),
)

TALL = gemm_tall.Config(item_m=2, item_n=8, local_m=8, local_n=2)
TALLS = (
    TALL,
    replace(TALL, item_m=1, item_n=7, local_m=16, local_n=1),
    replace(TALL, item_n=4, local_m=4, local_n=4),
)

LONG = gemm_long.Config(item_m=4, item_n=4, local_m=6, local_n=8, local_k=2, tile_k=16, split_k=1)
LONGS = (
    LONG,
    replace(LONG, item_m=1, item_n=8, local_m=8, local_n=2, local_k=4, split_k=2),
    replace(LONG, item_m=8, item_n=2, local_m=2, local_n=3, local_k=1, tile_k=8, split_k=3),
)

MMA = gemm_mma.Config(
    unit="mma", tile_m=64, tile_n=64, tile_k=16, warps_m=2, warps_n=2, stages=2, pending=0,
    split_k=1, group_m=1, pack_a=False, pack_b=False,
)  # fmt: skip
WGMMA = replace(MMA, unit="wgmma", warps_m=4, warps_n=1, stages=3)
MMAS = (
    MMA,
    replace(MMA, stages=3, split_k=2, group_m=8, pack_a=True),
    replace(MMA, tile_m=32, tile_n=128, tile_k=32, warps_m=1, warps_n=4, pack_b=True),
    WGMMA,
    replace(WGMMA, tile_m=128, pending=1, split_k=2, pack_a=True, pack_b=True),
    replace(WGMMA, tile_m=128, tile_n=128, warps_n=2, stages=2, pack_b=True),
)

ASYNC = gemm_async.Config(
    tile_m=32, tile_n=32, tile_k=8, local_m=8, local_n=8, warp_m=4, pad_a=4, pad_b=0, stages=2,
    split_k=1, group_m=1, pack_a=False, pack_b=False,
)  # fmt: skip
ASYNCS = (
    ASYNC,
    replace(ASYNC, tile_n=64, tile_k=16, warp_m=2, local_n=16, stages=3, split_k=2, group_m=8),
    replace(ASYNC, tile_m=64, warp_m=8, pad_a=0, pad_b=4, stages=4),
    replace(ASYNC, tile_m=64, pad_a=0, split_k=2, pack_a=True, pack_b=True, order="n"),
    replace(ASYNC, tile_n=64, tile_k=16, local_k=4, stages=3, order="n"),
    replace(ASYNC, tile_m=64, pad_a=0, local_k=2, pack_a=True, split_k=2),
)

STREAM = replace(ASYNC, groups=4)
ODD = GemmProblem(70, 45, 100)
SHARING = (
    # shares begin and end inside of tiles; then several to a tile
    (replace(ODD, trans_b=True, bias="n", activation="relu"), STREAM),
    (replace(ODD, trans_a=True, bias="m", activation="sigmoid"), replace(STREAM, groups=29)),
    # a tile lies whole in a share; then others are dealt out whole, here and in a batch
    (replace(ODD, m=90), replace(STREAM, groups=5, group_m=2)),
    (replace(ODD, n=70, bias="n"), replace(STREAM, groups=2)),
    (
        replace(ODD, m=33, batch=3, shared_a=True, residual=True),
        replace(STREAM, groups=5, group_m=8),
    ),
    # whole tiles alone; a share for each step
    (ODD, replace(STREAM, groups=3)),
    (GemmProblem(20, 30, 37), replace(STREAM, groups=5)),
    # slices in a work-group, more rows than they exchange at a time
    (ODD, replace(STREAM, tile_k=16, local_k=4, groups=5)),
    (replace(ODD, batch=2), replace(STREAM, tile_n=64, local_k=2, groups=0, split_k=5)),
    # packed operands
    (replace(ODD, trans_b=True), replace(STREAM, tile_m=64, pad_a=0, pack_a=True, pack_b=True)),
    # a last slice that is shorter than the others
    (replace(ODD, activation="relu", residual=True), replace(ASYNC, split_k=5, stages=4)),
)
"""Products whose tiles work-groups share."""

GATHERED = (
    (GemmProblem(33, 45, 7, bias="n", activation="relu", residual=True), ASYNC),
    (GemmProblem(70, 90, 20, trans_a=True, batch=2, bias="m"), replace(ASYNC, tile_n=128)),
    # memory for half of a work-item's rows; tiles that divide the rows
    (GemmProblem(64, 35, 9, trans_b=True, residual=True), replace(ASYNC, tile_m=64, tile_k=2)),
)
"""Products whose rows of C are not aligned."""

AMX = gemm_amx.DEFAULT
AMXES = (
    AMX,
    replace(AMX, item_m=32, pack_rows=False, blocks=2, tile_k=32),
    replace(AMX, item_m=16, item_n=48, order="n", split_k=2),
    replace(AMX, item_m=48, item_n=16, blocks=3, tile_k=64),
    replace(AMX, item_m=32, item_n=16, swap=True),
    replace(AMX, item_m=16, item_n=32, swap=True, pack_rows=False, blocks=2, tile_k=64, order="n"),
    replace(AMX, item_m=16, item_n=16, swap=True, split_k=2),
    replace(AMX, item_n=16, across=True, blocks=3, tile_k=32, pack_rows=False),
    replace(AMX, item_m=32, item_n=16, swap=True, across=True, blocks=2),
    replace(AMX, item_m=32, item_n=16, within=True, blocks=2, tile_k=64),
    replace(AMX, item_n=16, within=True, across=True, blocks=3, split_k=2, order="n"),
    replace(AMX, item_m=48, item_n=16, swap=True, within=True, across=True, blocks=2),
)
PAIRS = gemm_pairs.Config(
    item_m=6, item_n=16, loop_m=1, order="m", pack_a=False, pack_b=False, split_k=1
)
PAIRSES = (
    PAIRS,
    replace(PAIRS, item_m=5, pack_a=True, split_k=2, order="n"),
    replace(PAIRS, item_n=32, loop_m=2, pack_b=True),
    replace(PAIRS, item_n=48, pack_a=True, pack_b=True, split_k=3),
)

VARIANTS = [Variant("gemm_register", config) for config in REGISTERS]
VARIANTS += [Variant("gemm_staged", config) for config in STAGEDS]
VARIANTS += [Variant("gemm_dot", config) for config in DOTS]
VARIANTS += [Variant("gemm_columns", config) for config in COLUMN_CONFIGS]
VARIANTS += [Variant("gemm_stream", config) for config in STREAM_CONFIGS]
VARIANTS += [Variant("gemm_tall", config) for config in TALLS]
VARIANTS += [Variant("gemm_long", config) for config in LONGS]
DEFAULTS = [
    Variant("gemm_register", gemm_register.DEFAULT),
    Variant("gemm_staged", gemm_staged.DEFAULT),
    Variant("gemm_dot", gemm_dot.DEFAULT),
    Variant("gemm_columns", gemm_columns.DEFAULT),
    Variant("gemm_stream", gemm_stream.DEFAULT),
    Variant("gemm_tall", gemm_tall.DEFAULT),
    Variant("gemm_long", gemm_long.DEFAULT),
]


def label(case: Any) -> str:
    """Return a test's name for a problem or a variant."""
    return case.key() if isinstance(case, GemmProblem) else case.family


def problems(largest: int = 40) -> st.SearchStrategy[GemmProblem]:
    """Return any product up to `largest` in each size."""
    size = st.integers(1, largest)
    return st.builds(
        GemmProblem,
        m=size, n=size, k=size,
        dtype=st.sampled_from(sorted(DTYPES)),
        trans_a=st.booleans(), trans_b=st.booleans(),
        batch=st.integers(1, 3), shared_a=st.booleans(), shared_b=st.booleans(),
        bias=st.sampled_from(("none", "m", "n")),
        activation=st.sampled_from([*ACTIVATIONS]), residual=st.booleans(),
    )  # fmt: skip


def one_of(**values: tuple[Any, ...]) -> dict[str, st.SearchStrategy[Any]]:
    """Return a strategy per parameter."""
    return {name: st.sampled_from(choices) for name, choices in values.items()}


BOTH = (False, True)
REGISTER_CONFIGS = st.builds(
    gemm_register.Config,
    **one_of(
        item_m=(1, 2, 5), item_n=(1, 4, 8, 12), vec_n=(1, 4, 8), local_m=(1, 4), local_n=(1, 3),
        unroll_k=(1, 3), pack_a=BOTH, pack_b=BOTH, loop_m=(1, 3), order=("m", "n"),
        split_k=(1, 2, 5),
    ),
)  # fmt: skip
STAGED_CONFIGS = st.builds(
    gemm_staged.Config,
    **one_of(
        tile_m=(8, 16, 32), tile_n=(8, 16, 32), tile_k=(4, 8), local_m=(2, 4, 8),
        local_n=(2, 4, 8), vec_m=(1, 2, 4), vec_n=(1, 2, 4), stage_a=BOTH, stage_b=BOTH,
        pad_a=(0, 4), pad_b=(0, 4), double_buffer=BOTH, prefetch=BOTH, unroll_k=(1, 4),
        split_k=(1, 2), group_m=(1, 2, 8),
    ),
)  # fmt: skip
DOT_CONFIGS = st.builds(
    gemm_dot.Config,
    **one_of(
        item_m=(1, 2, 5), item_n=(1, 2, 7), vec_k=(1, 4, 8), local_k=(1, 2, 16), local_n=(1, 3),
        split_k=(1, 2),
    ),
)  # fmt: skip
COLUMNS_CONFIGS = st.builds(
    gemm_columns.Config,
    **one_of(
        item_m=(1, 2, 5), vec_n=(1, 2, 4), unroll_k=(1, 2, 8), local_n=(1, 8), local_k=(1, 3, 16),
        split_k=(1, 2),
    ),
)  # fmt: skip
ANY_STREAM = st.builds(
    gemm_stream.Config,
    **one_of(item_m=(1, 2, 5), tile_n=(8, 24), vec_n=(1, 4, 8), unroll_k=(1, 3, 8), split_k=(1, 2)),
)
TALL_CONFIGS = st.builds(
    gemm_tall.Config,
    **one_of(
        item_m=(1, 2, 4), item_n=(1, 4, 7, 12), local_m=(1, 3, 8, 16), local_n=(1, 2, 3),
    ),
)  # fmt: skip
LONG_CONFIGS = st.builds(
    gemm_long.Config,
    **one_of(
        item_m=(1, 2, 4, 8), item_n=(1, 2, 4, 8), local_m=(1, 3, 8), local_n=(1, 2, 5),
        local_k=(1, 2, 8), tile_k=(8, 16, 32), split_k=(1, 2),
    ),
)  # fmt: skip
ANY_VARIANT = st.one_of(
    st.builds(Variant, st.just("gemm_columns"), COLUMNS_CONFIGS),
    st.builds(Variant, st.just("gemm_dot"), DOT_CONFIGS),
    st.builds(Variant, st.just("gemm_long"), LONG_CONFIGS),
    st.builds(Variant, st.just("gemm_register"), REGISTER_CONFIGS),
    st.builds(Variant, st.just("gemm_staged"), STAGED_CONFIGS),
    st.builds(Variant, st.just("gemm_stream"), ANY_STREAM),
    st.builds(Variant, st.just("gemm_tall"), TALL_CONFIGS),
)
