"""Keys and the short forms of the command line, read back into problems."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oclgen.activations import ACTIVATIONS
from oclgen.keys import parse_conv, parse_gemm, parse_key
from oclgen.problem import (
    DIRECTIONS,
    DTYPES,
    FREE_SIZES,
    LAYOUTS,
    ConvProblem,
    GemmProblem,
    ProblemError,
    Volume,
)

SIZE = st.integers(1, 100_000)
GEMMS = st.builds(
    GemmProblem,
    m=SIZE,
    n=SIZE,
    k=SIZE,
    dtype=st.sampled_from(list(DTYPES)),
    trans_a=st.booleans(),
    trans_b=st.booleans(),
    batch=SIZE,
    shared_a=st.booleans(),
    shared_b=st.booleans(),
    bias=st.sampled_from(["none", "m", "n"]),
    activation=st.sampled_from([*ACTIVATIONS]),
    residual=st.booleans(),
    free=st.frozensets(st.sampled_from(FREE_SIZES["gemm"])),
)


WINDOW = (
    "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w",
)  # fmt: skip


@st.composite
def convs(draw: st.DrawFn) -> ConvProblem:
    small, groups = st.integers(1, 5), draw(st.integers(1, 4))
    direction = draw(st.sampled_from(DIRECTIONS))
    forward = direction == "fwd"
    window: dict[str, Any] = {name: draw(small) for name in WINDOW}
    return ConvProblem(
        draw(SIZE), groups * draw(SIZE), draw(st.integers(21, 99)), draw(st.integers(21, 99)),
        groups * draw(SIZE), **window, groups=groups,
        dtype=draw(st.sampled_from(list(DTYPES))), direction=direction,
        bias=forward and draw(st.booleans()),
        activation=draw(st.sampled_from([*ACTIVATIONS])) if forward else "none",
        layout=draw(st.sampled_from(LAYOUTS)),
        residual=forward and draw(st.booleans()),
        free=draw(st.frozensets(st.sampled_from(FREE_SIZES["conv"]))),
    )  # fmt: skip


@st.composite
def volumes(draw: st.DrawFn) -> ConvProblem:
    sizes = [draw(st.integers(1, 4)) for _ in range(4)]
    volume = Volume(draw(st.integers(20, 99)), *sizes)
    channels = [volume.taps * draw(SIZE), draw(SIZE)]
    direction = draw(st.sampled_from(DIRECTIONS))
    into, out = channels[::-1] if direction == "bwd_data" else channels
    return ConvProblem(
        volume.windows * draw(st.integers(1, 9)), into, 9, 9, out, 3, 3, direction=direction,
        layout="nhwc", volume=volume,
    )  # fmt: skip


@given(st.one_of(GEMMS, convs(), volumes()))
def test_a_key_gives_the_problem_back(problem: GemmProblem | ConvProblem) -> None:
    assert parse_key(problem.key()) == problem


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ProblemError, match="is no problem key"):
        parse_key(text)


@pytest.mark.parametrize(
    "text",
    [
        "gemm:01x2x3:fp32:nn:b1:-:-:none",  # one problem has one key
        "gemm:1x2x3:fp32:nn:b1:-:-:none\n",
        "gemm:1x2x3:fp32:nn:b1::-:none",
        "gemm:1x2x99999999999:fp32:nn:b1:-:-:none",
        "conv:1,8,8,8,8,3,3:s1,01:p0,0:d1,1:g1:fp32:fwd:-:none",
        "conv:1,8,8,8,8,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none",
        "conv:1,8,8,8,8,3,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none:nchw",
        "conv:1,8,8,8,8,3,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none:residual:nhwc",
        "x" * 100_000,
    ],
)
def test_texts_that_are_almost_keys(text: str) -> None:
    with pytest.raises(ProblemError, match="is no problem key") as caught:
        parse_key(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["gemm:1x2x3:fp99:nn:b1:-:-:none", "gemm:1x2x3:fp32:nn:b1:-:-:x"])
def test_names_in_a_key_are_judged(text: str) -> None:
    with pytest.raises(ProblemError, match="is unknown; known are"):
        parse_key(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1024x512x256", GemmProblem(1024, 512, 256)),
        (" 7X8x9 ", GemmProblem(7, 8, 9)),
        ("7x8x9:fp16:nt", GemmProblem(7, 8, 9, dtype="fp16", trans_b=True)),
        ("7x8x9:TN:bf16", GemmProblem(7, 8, 9, dtype="bf16", trans_a=True)),
        ("gemm:7x8x9:fp32:tt:b3:b:n:relu", parse_key("gemm:7x8x9:fp32:tt:b3:b:n:relu")),
    ],
)
def test_products_as_typed(text: str, problem: GemmProblem) -> None:
    assert parse_gemm(text) == problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("8,64,56,54,32,3,1", ConvProblem(8, 64, 56, 54, 32, 3, 1)),
        ("8, 64, 56,54,32,3,1,2", ConvProblem(8, 64, 56, 54, 32, 3, 1, 2, 2)),
        ("8,64,56,54,32,3,1,2,1", ConvProblem(8, 64, 56, 54, 32, 3, 1, 2, 2, 1, 1)),
        ("8,64,56,54,32,3,1,2,1,2,4", ConvProblem(8, 64, 56, 54, 32, 3, 1, 2, 2, 1, 1, 2, 2, 4)),
        ("8,4,9,9,4,3,3:bwd_data", ConvProblem(8, 4, 9, 9, 4, 3, 3, direction="bwd_data")),
        (
            "8,4,9,9,4,3,3:fp16:bwd_weights",
            ConvProblem(8, 4, 9, 9, 4, 3, 3, dtype="fp16", direction="bwd_weights"),
        ),
        ("8,4,9,9,4,3,3:nhwc", ConvProblem(8, 4, 9, 9, 4, 3, 3, layout="nhwc")),
        (ConvProblem(1, 8, 8, 8, 8, 3, 3).key(), ConvProblem(1, 8, 8, 8, 8, 3, 3)),
    ],
)
def test_convolutions_as_typed(text: str, problem: ConvProblem) -> None:
    assert parse_conv(text) == problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' in '' is no size"),
        ("1024", "has 1 sizes, a product has 3"),
        ("1x2x3x4", "has 4 sizes"),
        ("1x-2x3", "'-2' in '1x-2x3' is no size"),
        ("1x2.0x3", "'2.0'"),
        ("0x2x3", "m is 0"),
        ("1x2x3:fp64", "'fp64' in '1x2x3:fp64' is unknown"),
        ("1x2x3:nn:tt", "gives trans twice: nn and tt"),
        ("1x2x3:", "'' in '1x2x3:' is unknown"),
        ("gemm:1x2", "is no problem key"),
    ],
)
def test_wrong_products_are_named(text: str, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_gemm(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3", "has 3 numbers, not 7 to 11"),
        ("1,2,3,4,5,1,1,1,1,1,1,1", "has 12 numbers"),
        ("1,2,a,4,5,1,1", "'a' in '1,2,a,4,5,1,1' is no size"),
        ("1,2,3,3,5,7,7", "does not fit 3 x 3"),
        ("1,2,3,3,5,1,1,0", "stride_h is 0"),
        ("1,2,3,3,5,1,1,1,0,1,2", "multiples of groups=2"),
        ("1,2,3,3,5,1,1:backward", "'backward' in"),
        ("1,2,3,3,5,1,1:fwd:fwd", "gives direction twice"),
        ("conv:1", "is no problem key"),
    ],
)
def test_wrong_convolutions_are_named(text: str, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_conv(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("conv:4,8,8,8,8,3,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none:v4,2,1,0,1", "lie in nchw"),
        ("conv:4,8,8,8,8,3,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none:nhwc:v4,2,1,0,1", "the 3 windows"),
        ("conv:3,9,8,8,8,3,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none:nhwc:v4,2,1,0,1", "9 channels"),
        ("conv:3,8,8,8,8,3,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none:nhwc:v2,3,1,0,1", "the 0 windows"),
        ("conv:3,8,8,8,8,3,3:s1,1:p0,0:d1,1:g1:fp32:fwd:-:none:nhwc:v4,2,1,0,0", "a size below 1"),
    ],
)
def test_wrong_volumes_are_named(key: str, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_key(key)
    assert message in str(caught.value)
