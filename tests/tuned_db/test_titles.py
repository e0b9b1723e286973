"""Problems have names that people read; a key that is not read is its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.problem import AttentionProblem, ConvProblem, GemmProblem, Problem
from tests.tuned_db.tuned_samples import record
from tuned_db.analysis import rate_of
from tuned_db.plots import peak_chart
from tuned_db.titles import title_of


@pytest.mark.parametrize(
    ("problem", "title"),
    [
        (GemmProblem(8192, 4096, 512, "bf16"), "GEMM 8192 x 4096 x 512, bf16"),
        (
            GemmProblem(8, 9, 7, trans_b=True, batch=3, bias="n", activation="relu", residual=True),
            "GEMM 8 x 9 x 7, fp32, 3 products, B transposed, bias, residual, relu",
        ),
        (
            ConvProblem(8, 64, 56, 28, 32, 3, 1, 2, 1, 1, 0, direction="bwd_data", layout="nhwc"),
            "Conv 3 x 1, 64 to 32 channels, 8 images of 56 x 28, fp32, gradient of the images, "
            "stride 2 x 1, padding 1 x 0, channels_last",
        ),
        (
            AttentionProblem(2, 16, 4, 128, 256, 64, 64, "fp16", causal=True),
            "Attention 128 x 256, 16 heads (4 of key and value) of 64, batch 2, fp16, causal",
        ),
    ],
)
def test_a_problem_is_named_in_words(problem: Problem, title: str) -> None:
    assert title_of(problem.key()) == title


def test_a_key_of_another_version_is_its_own_name() -> None:
    assert title_of("fft:1024") == "fft:1024"


def test_only_fp32_is_held_against_the_peak_of_fp32() -> None:
    """Matrix units passed it by a factor of ten, and flattened all else in a chart."""
    peak = (1000.0, 100.0)
    one, other = (
        replace(record(GemmProblem(64, 64, 64, dtype)), peak=peak) for dtype in ("fp32", "bf16")
    )
    shown = rate_of(other)
    assert shown is not None
    assert (shown.of_peak, shown.of_bound) == (None, None)
    both = peak_chart([one, other])
    assert (len(both.series[0].points), both.y) == (1, "part of the fp32 peak")
    assert peak_chart([other]).y == "GFLOP/s"
