"""Attention of small sizes that between them meet every edge: shared by the families' tests."""

from __future__ import annotations

from dataclasses import replace

from oclgen.attention_problem import ATTENTION_DIRECTIONS
from oclgen.families.attention import (
    attention_amx,
    attention_amx_grad,
    attention_lanes,
    attention_mma,
    attention_register,
    attention_rows,
    attention_split,
)
from oclgen.limits import KIB, Limits
from oclgen.opencl.probe import FATAL
from oclgen.problem import AttentionProblem

BASE = AttentionProblem(2, 4, 2, 37, 45, 24, 40)
HALF = replace(BASE, dtype="bf16")
FEW = replace(BASE, queries=3)

ONE_ITEM = replace(attention_register.DEFAULT, local_m=1, local_n=1, item_v=2, vec=16, chunks=2)
REGISTERS = (
    (replace(BASE, causal=True), attention_register.GPU[1]),
    (replace(BASE, head_dim=20, value_dim=36, window=9, keys=37), attention_register.DEFAULT),
    (replace(BASE, mask=True, dropout=True, dtype="fp16"), replace(ONE_ITEM, item_m=8, loop_m=8)),
    (replace(FEW, queries=1, causal=True), ONE_ITEM),
    (replace(BASE, mask=True, keys=37), attention_register.GPU_FEW_REGISTERS[1]),
)
"""Each is computed in every direction."""

MMAS = (
    (replace(HALF, causal=True), attention_mma.Config(2, 1, 32, stages=2, keep=True)),
    (
        replace(HALF, dtype="fp16", mask=True),
        attention_mma.Config(1, 2, 16, stages=2, keep=False),
    ),
    (
        replace(HALF, causal=True, window=9, queries=70, keys=70),
        attention_mma.Config(1, 2, 16, stages=1, keep=True),
    ),
    (replace(HALF, window=9, keys=37), attention_mma.Config(2, 1, 32, stages=1, keep=False)),
    (replace(BASE, causal=True), attention_mma.Config(2, 1, 16, stages=2, keep=True)),
    (
        replace(BASE, head_dim=20, value_dim=32, mask=True),
        attention_mma.Config(1, 2, 16, stages=1, keep=False),
    ),
)
"""Each is computed in every direction, by emulated units where there are none."""

MMAS_THAT_DROP = (
    (
        replace(HALF, causal=True, dropout=True, queries=70, keys=70),
        attention_mma.Config(2, 2, 32, stages=2, keep=True),
    ),
    (
        replace(HALF, dtype="fp16", mask=True, dropout=True, keys=85),
        attention_mma.Config(2, 1, 80, stages=1, keep=False),
    ),
    (
        replace(BASE, mask=True, dropout=True),
        attention_mma.Config(1, 2, 16, stages=2, keep=True),
    ),
    (
        replace(BASE, causal=True, window=9, dropout=True),
        attention_mma.Config(2, 1, 32, stages=1, keep=False, split_d=2),
    ),
    (
        replace(HALF, queries=70, head_dim=64, value_dim=128, causal=True, dropout=True),
        attention_mma.Config(4, 1, 32, stages=2, keep=True, unit="wgmma"),
    ),
    (
        replace(HALF, queries=150, head_dim=72, dtype="fp16", mask=True, dropout=True),
        attention_mma.Config(8, 1, 16, stages=2, keep=True, unit="wgmma"),
    ),
)
"""Each is computed in every direction and form: tiles of 16 bits, of parts of fp32, and wide."""

SHARED_ROWS = (
    (
        replace(BASE, causal=True, head_dim=36, window=9, queries=45),
        attention_mma.Config(2, 1, 16, stages=1, keep=True, split_d=2),
    ),
    (
        replace(HALF, head_dim=64, value_dim=72, mask=True),
        attention_mma.Config(4, 1, 16, stages=2, keep=False, split_d=4),
    ),
)
"""Gradients alone: their warps share rows."""

WGMMAS = (
    (
        replace(HALF, queries=70, head_dim=64, value_dim=128, causal=True),
        attention_mma.Config(4, 1, 32, stages=2, keep=True, unit="wgmma"),
    ),
    (
        replace(HALF, queries=150, head_dim=72, dtype="fp16", mask=True),
        attention_mma.Config(8, 1, 16, stages=2, keep=True, unit="wgmma"),
    ),
    (
        replace(HALF, queries=150, keys=200, head_dim=64, value_dim=64, causal=True, window=90),
        attention_mma.Config(4, 1, 64, stages=2, keep=True, unit="wgmma"),
    ),
)

IN_LOCAL_MEMORY = (
    (
        replace(HALF, queries=150, keys=130, head_dim=128, value_dim=72, causal=True),
        attention_mma.Config(4, 1, 32, stages=2, keep=False, unit="wgmma"),
    ),
    (
        replace(HALF, queries=90, keys=200, head_dim=64, value_dim=128, dtype="fp16", mask=True),
        attention_mma.Config(8, 1, 64, stages=1, keep=False, unit="wgmma"),
    ),
)
"""Their own tiles lie in local memory; forward those of q, with two stages."""

SPLITS = (
    (replace(FEW, causal=True), attention_split.Config(work_items=32, slice=32, rows=4)),
    (replace(FEW, dtype="fp16", mask=True), attention_split.Config(64, slice=64, rows=8)),
    (replace(FEW, dtype="bf16", window=9, keys=11), attention_split.Config(32, slice=4, rows=1)),
    (replace(FEW, queries=1), attention_split.Config(128, slice=16, rows=1)),
    (
        replace(FEW, dtype="bf16", free=frozenset({"keys"})),
        attention_split.Config(64, slice=64, rows=2),
    ),
)


ROWS = (
    (replace(FEW, causal=True), attention_rows.Config(rows=4, vec=8)),
    (replace(FEW, dtype="bf16", window=9, keys=11), attention_rows.Config(rows=1, vec=4)),
    (replace(FEW, queries=1, mask=True), attention_rows.Config(rows=2, vec=8)),
    (replace(FEW, dtype="fp16", mask=True), attention_rows.Config(rows=2, vec=8)),
    (replace(FEW, keys=70), attention_rows.Config(rows=1, vec=8, ahead=32)),
    (
        replace(FEW, head_dim=64, value_dim=32, keys=70, free=frozenset({"keys"})),
        attention_rows.Config(rows=3, vec=16),
    ),
)

LANES = (
    (replace(BASE, causal=True), attention_lanes.Config(16, vectors=2, sums=12, tile=48, blocks=2)),
    (
        replace(BASE, head_dim=20, value_dim=36, window=9, keys=37),
        attention_lanes.Config(4, vectors=1, sums=2, tile=4, blocks=3),
    ),
    (
        replace(BASE, mask=True, dropout=True, dtype="fp16"),
        attention_lanes.Config(8, vectors=1, sums=5, tile=10, blocks=2),
    ),
    (replace(FEW, dtype="bf16", mask=True), attention_lanes.Config(16, vectors=1, sums=8, tile=24)),
    (BASE, attention_lanes.Config(8, vectors=3, sums=4, tile=12, blocks=2)),
    (FEW, attention_lanes.Config(4, vectors=3, sums=8, tile=16, blocks=2)),
    (replace(HALF, keys=70), attention_lanes.Config(4, vectors=2, sums=12, tile=48, blocks=1)),
    (replace(BASE, queries=97), attention_lanes.Config(8, vectors=2, sums=8, tile=24, blocks=2)),
)
"""Each is computed in every direction: blocks of rows of two heads, of one vector or more; keys
that all rows see, in tiles of which the last is no whole group; queries of two heads in a tile,
and of one head where they are many."""
FOLDED = (
    (FEW, attention_lanes.Config(8, vectors=1, sums=8, tile=16, fold=2)),
    (replace(FEW, causal=True), attention_lanes.Config(4, vectors=1, sums=8, tile=24, fold=4)),
    (
        replace(BASE, mask=True, dropout=True, dtype="fp16"),
        attention_lanes.Config(4, vectors=2, sums=5, tile=10, blocks=2, fold=2),
    ),
    (
        replace(FEW, head_dim=20, value_dim=36, window=9),
        attention_lanes.Config(4, vectors=1, sums=8, tile=128, fold=4),
    ),
)
"""Forward passes with items of a row side by side in a vector."""

XEON = Limits(
    "cpu", 32 * KIB, 4096, (4096,) * 3, 2**32, 2**34, 16, 16, instructions=frozenset(FATAL)
)
AMXES = (
    (HALF, attention_amx.Config(vectors=2, chunk=32, pack=True)),
    (replace(HALF, causal=True), attention_amx.Config(vectors=2, chunk=64, pack=True)),
    (replace(HALF, causal=True, keys=20), attention_amx.Config(vectors=1, chunk=32, pack=True)),
    (
        replace(HALF, causal=True, window=9, queries=70, keys=70, head_dim=64, value_dim=80),
        attention_amx.Config(vectors=1, chunk=32, pack=True),
    ),
    (replace(HALF, window=9, keys=37), attention_amx.Config(vectors=2, chunk=256, pack=True)),
    (
        replace(HALF, mask=True, keys=101, dtype="fp16"),
        attention_amx.Config(vectors=1, chunk=64, pack=True),
    ),
    (replace(HALF, mask=True, causal=True), attention_amx.Config(vectors=2, chunk=32, pack=True)),
    (
        replace(HALF, causal=True, dropout=True, queries=70, keys=70),
        attention_amx.Config(vectors=2, chunk=64, pack=True),
    ),
    (
        replace(HALF, queries=3, keys=5, head_dim=128, value_dim=32),
        attention_amx.Config(vectors=1, chunk=256, pack=True),
    ),
    (
        replace(HALF, queries=3, keys=5, head_dim=64, value_dim=33, mask=True),
        attention_amx.Config(vectors=2, chunk=256, pack=False),
    ),
    (
        replace(HALF, head_dim=32, dtype="fp16"),
        attention_amx.Config(vectors=2, chunk=32, pack=False),
    ),
    (replace(HALF, head_dim=41, mask=True), attention_amx.Config(vectors=1, chunk=64, pack=False)),
    (
        replace(HALF, queries=105, keys=99, head_dim=96, value_dim=112, causal=True, window=40),
        attention_amx.Config(vectors=1, chunk=64, pack=False),
    ),
)
"""Forward alone: items of rows that fill no tile, keys that fill none, and more than one chunk."""

AMX_GRADS = (
    (replace(HALF, queries=70), attention_amx_grad.Config(chunk=32, block=32)),
    (replace(HALF, causal=True, dtype="fp16"), attention_amx_grad.Config(chunk=64, block=32)),
    (
        replace(HALF, causal=True, window=9, queries=70, keys=70, head_dim=64, value_dim=80),
        attention_amx_grad.Config(chunk=32, block=64),
    ),
    (
        replace(HALF, window=40, queries=101, keys=150),
        attention_amx_grad.Config(chunk=64, block=32),
    ),
    (replace(HALF, mask=True, keys=101), attention_amx_grad.Config(chunk=64, block=64)),
    (
        replace(HALF, causal=True, mask=True, dropout=True, dtype="fp16"),
        attention_amx_grad.Config(chunk=32, block=96),
    ),
    (
        replace(HALF, queries=3, keys=5, head_dim=128, value_dim=33),
        attention_amx_grad.Config(chunk=256, block=256),
    ),
)
"""Each is computed in every direction but forward: steps and chunks that are not whole, keys that
the first chunk does not see, and some that no query of a step sees."""


def in_all_directions(problem: AttentionProblem) -> list[AttentionProblem]:
    """Return the problem and its gradients."""
    return [replace(problem, direction=direction) for direction in ATTENTION_DIRECTIONS]
