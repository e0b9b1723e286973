"""Reads problems from text: the canonical keys of records and the short forms people type.

It is not the place where a problem's sizes are judged; `oclgen.problem` does that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from oclgen.attention_problem import ATTENTION_DIRECTIONS
from oclgen.packed_problem import FORMATS
from oclgen.problem import (
    DIRECTIONS,
    DTYPES,
    LAYOUTS,
    PRODUCT_DTYPES,
    AttentionProblem,
    ConvProblem,
    GemmProblem,
    Known,
    PackedProblem,
    Problem,
    ProblemError,
    Volume,
)

_SIZE = r"[1-9]\d{0,9}"
_PAIR = r"(\d{1,10}),(\d{1,10})"

_GEMM_KEY = re.compile(
    rf"gemm:(?P<m>{_SIZE})x(?P<n>{_SIZE})x(?P<k>{_SIZE}):(?P<dtype>\w+):(?P<trans>[nt]{{2}})"
    rf":b(?P<batch>{_SIZE}):(?P<shared>-|a?b?):(?P<bias>-|m|n):(?P<activation>\w+)"
    r"(?P<residual>:residual)?(?::ragged_(?P<ragged>[mk]))?(?::any_(?P<free>[a-z_]+))?"
)
_CONV_KEY = re.compile(
    rf"conv:(?P<sizes>{_SIZE}(?:,{_SIZE}){{6}}):s{_PAIR}:p{_PAIR}:d{_PAIR}:g(?P<groups>{_SIZE})"
    r":(?P<dtype>\w+):(?P<direction>\w+):(?P<bias>-|bias):(?P<activation>\w+)"
    rf"(?::(?P<layout>nhwc))?(?::v(?P<volume>{_SIZE},{_SIZE},{_SIZE},{_PAIR}))?"
    r"(?P<residual>:residual)?(?::any_(?P<free>[a-z_]+))?"
)

_ATTENTION_KEY = re.compile(
    rf"attention:(?P<sizes>{_SIZE}(?:,{_SIZE}){{6}}):(?P<dtype>\w+):(?P<direction>\w+)"
    r":(?P<causal>-|causal):(?P<mask>-|mask):(?P<dropout>-|dropout)(?::w(?P<window>[1-9]\d{0,9}))?"
    r"(?::any_(?P<free>[a-z_]+))?"
)

_PACKED_KEY = re.compile(
    rf"packed:(?P<m>{_SIZE})x(?P<n>{_SIZE})x(?P<k>{_SIZE}):(?P<dtype>\w+):(?P<format>\w+)"
    r"(?::any_(?P<free>[a-z_]+))?"
)
_ATTENTION_SIZES = (
    "batch", "heads", "kv_heads", "queries", "keys", "head_dim", "value_dim",
)  # fmt: skip
_CONV_SIZES = (
    "batch", "in_channels", "height", "width", "out_channels", "kernel_h", "kernel_w",
)  # fmt: skip
_CONV_PAIRS = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w")

GEMM_FORM = "MxNxK[:fp32|tf32|fp16|bf16|int8][:nn|nt|tn|tt], for example 1024x1024x1024:fp32:nt"
CONV_FORM = (
    "N,C,H,W,K,R,S[,stride,pad,dilation,groups][:fp32|tf32|fp16|bf16][:fwd|bwd_data|bwd_weights]"
    "[:nchw|nhwc], for example 8,64,56,56,64,3,3,1,1"
)
ATTENTION_FORM = (
    "B,H,Q,K,D[,kv_heads,value_dim][:fp32|fp16|bf16][:fwd|bwd_q|bwd_kv|bwd][:causal][:mask][:dropout]"
    "[:wN], for example 8,16,2048,2048,64:bf16:causal"
)

PACKED_FORM = (
    f"MxNxK:FORMAT[:fp32|fp16|bf16], for example 1x4096x4096:q4_0; formats are {', '.join(FORMATS)}"
)


def parse_problem(text: str) -> Problem:
    """Return the problem that a short form or a key describes; attention and packed by keys alone.

    Raises:
        ProblemError: it is none, or cannot exist.
    """
    if text.startswith(("attention:", "packed:")):
        return parse_key(text)
    if text.startswith("conv:") or "," in text.split(":")[0]:
        return parse_conv(text)
    if text.startswith("gemm:") or "x" in text.split(":")[0].lower():
        return parse_gemm(text)
    raise ProblemError(
        f"{text!r} is no problem. A product is {GEMM_FORM}; a convolution is {CONV_FORM}"
    )


def parse_key(text: str) -> Problem:
    """Return the problem whose `key()` is `text`.

    Raises:
        ProblemError: `text` is no canonical key, or names a problem that cannot exist.
    """
    problem = (
        _gemm_of_key(text) or _conv_of_key(text) or _attention_of_key(text) or _packed_of_key(text)
    )
    if problem is None or problem.key() != text:
        shown = text if len(text) <= 120 else text[:117] + "..."
        raise ProblemError(
            f"{shown!r} is no problem key; one looks like "
            f"{GemmProblem(64, 64, 64).key()} or {ConvProblem(1, 8, 8, 8, 8, 3, 3).key()}"
        )
    return problem


def _of_key(text: str, kind: type[Known]) -> Known:
    """Return the problem of a key that begins as keys of this kind do."""
    problem = parse_key(text)
    assert isinstance(problem, kind)
    return problem


def _gemm_of_key(text: str) -> GemmProblem | None:
    if not (match := _GEMM_KEY.fullmatch(text)):
        return None
    part: dict[str, Any] = match.groupdict()
    return GemmProblem(
        int(part["m"]),
        int(part["n"]),
        int(part["k"]),
        dtype=part["dtype"],
        trans_a=part["trans"][0] == "t",
        trans_b=part["trans"][1] == "t",
        batch=int(part["batch"]),
        shared_a="a" in part["shared"],
        shared_b="b" in part["shared"],
        bias="none" if part["bias"] == "-" else part["bias"],
        activation=part["activation"],
        residual=part["residual"] is not None,
        free=_free(part),
        ragged=part["ragged"] or "",
    )


def _conv_of_key(text: str) -> ConvProblem | None:
    if not (match := _CONV_KEY.fullmatch(text)):
        return None
    part: dict[str, Any] = match.groupdict()
    return ConvProblem(
        **_named(_CONV_SIZES, part["sizes"].split(",")),
        **_named(_CONV_PAIRS, match.groups()[1:7]),
        groups=int(part["groups"]),
        dtype=part["dtype"],
        direction=part["direction"],
        bias=part["bias"] == "bias",
        activation=part["activation"],
        layout=part["layout"] or "nchw",
        residual=part["residual"] is not None,
        free=_free(part),
        volume=Volume(*map(int, part["volume"].split(","))) if part["volume"] else None,
    )


def _attention_of_key(text: str) -> AttentionProblem | None:
    if not (match := _ATTENTION_KEY.fullmatch(text)):
        return None
    part: dict[str, Any] = match.groupdict()
    return AttentionProblem(
        **_named(_ATTENTION_SIZES, part["sizes"].split(",")),
        dtype=part["dtype"],
        direction=part["direction"],
        causal=part["causal"] == "causal",
        window=int(part["window"] or 0),
        mask=part["mask"] == "mask",
        dropout=part["dropout"] == "dropout",
        free=_free(part),
    )


def _free(part: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(part["free"].split("_") if part["free"] else ())


def _packed_of_key(text: str) -> PackedProblem | None:
    if not (match := _PACKED_KEY.fullmatch(text)):
        return None
    part = match.groupdict()
    return PackedProblem(
        int(part["m"]), int(part["n"]), int(part["k"]), part["dtype"], part["format"],
        _free(part),
    )  # fmt: skip


def parse_packed(text: str) -> PackedProblem:
    """Return the product that a text of `PACKED_FORM` or a canonical key describes.

    Raises:
        ProblemError: the text has another form, or the product cannot exist.
    """
    if text.startswith("packed:"):
        return _of_key(text, PackedProblem)
    sizes, *options = text.strip().split(":")
    numbers = _numbers(sizes, "x", text, PACKED_FORM)
    known = {"dtype": tuple(DTYPES), "format": tuple(FORMATS)}
    found = _options(text, options, known, PACKED_FORM)
    if len(numbers) != 3 or "format" not in found:
        raise ProblemError(f"{text!r} is no product with packed weights: {PACKED_FORM}")
    m, n, k = numbers
    return PackedProblem(m, n, k, **found)


def parse_attention(text: str) -> AttentionProblem:
    """Return the attention that a text of `ATTENTION_FORM` or a canonical key describes.

    Raises:
        ProblemError: the text has another form, or the attention cannot exist.
    """
    if text.startswith("attention:"):
        return _of_key(text, AttentionProblem)
    sizes, *options = text.strip().split(":")
    numbers = _numbers(sizes, ",", text, ATTENTION_FORM)
    if not 5 <= len(numbers) <= 7:
        raise ProblemError(f"{text!r} has {len(numbers)} numbers, not 5 to 7: {ATTENTION_FORM}")
    windows = [option for option in options if re.fullmatch(r"w[1-9]\d{0,9}", option)]
    known: dict[str, tuple[str, ...]] = {
        "dtype": tuple(DTYPES), "direction": ATTENTION_DIRECTIONS, "window": tuple(windows),
        **{flag: (flag,) for flag in ("causal", "mask", "dropout")},
    }  # fmt: skip
    found = _options(text, options, known, ATTENTION_FORM)
    found |= {flag: True for flag in ("causal", "mask", "dropout") if flag in found}
    if "window" in found:
        found["window"] = int(found["window"][1:])
    batch, heads, queries, keys, dim = numbers[:5]
    kv_heads, value_dim = (*numbers[5:], *(heads, dim)[len(numbers) - 5 :])
    return AttentionProblem(batch, heads, kv_heads, queries, keys, dim, value_dim, **found)


def parse_gemm(text: str) -> GemmProblem:
    """Return the product that `MxNxK[:dtype][:nt]` or a canonical key describes.

    Raises:
        ProblemError: the text has another form, or the product cannot exist.
    """
    if text.startswith("gemm:"):
        return _of_key(text, GemmProblem)
    sizes, *options = text.strip().split(":")
    numbers = _numbers(sizes, "x", text, GEMM_FORM)
    if len(numbers) != 3:
        raise ProblemError(f"{text!r} has {len(numbers)} sizes, a product has 3: {GEMM_FORM}")
    trans = ("nn", "nt", "tn", "tt")
    found = _options(text, options, {"dtype": tuple(PRODUCT_DTYPES), "trans": trans}, GEMM_FORM)
    a, b = found.pop("trans", "nn")
    m, n, k = numbers
    return GemmProblem(m, n, k, trans_a=a == "t", trans_b=b == "t", **found)


def parse_conv(text: str) -> ConvProblem:
    """Return the convolution that a text of `CONV_FORM` or a canonical key describes; stride, pad
    and dilation hold for both axes.

    Raises:
        ProblemError: the text has another form, or the convolution cannot exist.
    """  # noqa: D205
    if text.startswith("conv:"):
        return _of_key(text, ConvProblem)
    sizes, *options = text.strip().split(":")
    numbers = _numbers(sizes, ",", text, CONV_FORM)
    if not 7 <= len(numbers) <= 11:
        raise ProblemError(f"{text!r} has {len(numbers)} numbers, not 7 to 11: {CONV_FORM}")
    known = {"dtype": tuple(DTYPES), "direction": DIRECTIONS, "layout": LAYOUTS}
    found = _options(text, options, known, CONV_FORM)
    stride, pad, dilation, groups = (*numbers[7:], *(1, 0, 1, 1)[len(numbers) - 7 :])
    pairs = (stride, stride, pad, pad, dilation, dilation)
    return ConvProblem(
        **_named(_CONV_SIZES, numbers[:7]), **_named(_CONV_PAIRS, pairs), groups=groups, **found
    )


def _named(names: Sequence[str], numbers: Sequence[int | str]) -> dict[str, Any]:
    return {name: int(number) for name, number in zip(names, numbers, strict=True)}


def _numbers(sizes: str, separator: str, text: str, form: str) -> list[int]:
    parts = [part.strip() for part in sizes.lower().split(separator)]
    for part in parts:
        if not re.fullmatch(r"\d{1,10}", part):
            raise ProblemError(f"{part!r} in {text!r} is no size; write {form}")
    return [int(part) for part in parts]


def _options(
    text: str, options: list[str], known: dict[str, tuple[str, ...]], form: str
) -> dict[str, Any]:
    """Return what each `:option` sets, by parameter name; each may be given once."""
    found: dict[str, Any] = {}
    for option in options:
        name = next((name for name, values in known.items() if option.lower() in values), None)
        if name is None:
            raise ProblemError(f"{option!r} in {text!r} is unknown; write {form}")
        if name in found:
            raise ProblemError(f"{text!r} gives {name} twice: {found[name]} and {option}")
        found[name] = option.lower()
    return found
