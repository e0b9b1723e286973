"""Names of problems for people: a key in words. Pages show the key beside it."""

from __future__ import annotations

from functools import lru_cache

from oclgen.keys import parse_key
from oclgen.packed_problem import PackedProblem
from oclgen.problem import AttentionProblem, ConvProblem, GemmProblem, ProblemError

DIRECTIONS = {
    "fwd": "",
    "bwd_data": "gradient of the images",
    "bwd_weights": "gradient of the weights",
    "bwd_q": "gradient of the query",
    "bwd_kv": "gradients of key and value",
    "bwd": "gradients of query, key and value",
}


@lru_cache(maxsize=4096)
def title_of(key: str) -> str:
    """Return a problem's name, such as "GEMM 1024 x 1024 x 64, bf16, B transposed".

    A key that cannot be read today is its own name.
    """
    try:
        problem = parse_key(key)
    except ProblemError:
        return key
    if isinstance(problem, GemmProblem):
        parts = _gemm(problem)
    elif isinstance(problem, ConvProblem):
        parts = _conv(problem)
    elif isinstance(problem, PackedProblem):
        parts = _packed(problem)
    else:
        parts = _attention(problem)
    if problem.free:
        parts.append(f"any {', '.join(sorted(problem.free))}")
    return ", ".join(part for part in parts if part)


def _gemm(one: GemmProblem) -> list[str]:
    transposed = " and ".join("AB"[n] for n in (0, 1) if (one.trans_a, one.trans_b)[n])
    batch = f"{one.batch} products" if one.batch > 1 else ""
    bias = "" if one.bias == "none" else "bias"
    return [
        f"GEMM {one.m} x {one.n} x {one.k}",
        one.dtype,
        batch,
        f"{transposed} transposed" if transposed else "",
        f"each of its own {one.ragged}" if one.ragged else "",
        *_epilogue(bias, one.residual, one.activation),
    ]


def _packed(one: PackedProblem) -> list[str]:
    return [f"Packed {one.m} x {one.n} x {one.k}", one.dtype, f"weights {one.format}"]


def _conv(one: ConvProblem) -> list[str]:
    channels = f"{one.in_channels} to {one.out_channels} channels"
    changed = [
        f"{name} {high}" if high == wide else f"{name} {high} x {wide}"
        for name, high, wide, usual in (
            ("stride", one.stride_h, one.stride_w, 1),
            ("padding", one.pad_h, one.pad_w, 0),
            ("dilation", one.dilation_h, one.dilation_w, 1),
        )
        if (high, wide) != (usual, usual)
    ]
    return [
        f"Conv {one.kernel_h} x {one.kernel_w}, {channels}",
        f"{one.batch} images of {one.height} x {one.width}",
        f"windows of {one.volume.taps} of {one.volume.size} slices" if one.volume else "",
        one.dtype,
        DIRECTIONS[one.direction],
        *changed,
        f"{one.groups} groups" if one.groups > 1 else "",
        "channels_last" if one.layout == "nhwc" else "",
        *_epilogue("bias" if one.bias else "", one.residual, one.activation),
    ]


def _attention(one: AttentionProblem) -> list[str]:
    heads = f"{one.heads} heads"
    if one.kv_heads != one.heads:
        heads += f" ({one.kv_heads} of key and value)"
    return [
        f"Attention {one.queries} x {one.keys}, {heads} of {one.head_dim}",
        f"batch {one.batch}",
        one.dtype,
        DIRECTIONS[one.direction],
        "causal" if one.causal else "",
    ]


def _epilogue(bias: str, residual: bool, activation: str) -> list[str]:
    return [bias, "residual" if residual else "", "" if activation == "none" else activation]
