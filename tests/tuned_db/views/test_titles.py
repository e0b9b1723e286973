"""Problems have names that people read; a key that is not read is its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.problem import AttentionProblem, ConvProblem, GemmProblem, Problem, Volume
from tests.tuned_db.tuned_samples import record
from tuned_db.views.analysis import rate_of
from tuned_db.views.plots import dtypes_of, roofline_chart
from tuned_db.views.titles import title_of


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
            ConvProblem(6, 24, 9, 9, 8, 3, 3, layout="nhwc", volume=Volume(5, 3)),
            "Conv 3 x 3, 24 to 8 channels, 6 images of 9 x 9, windows of 3 of 5 slices, fp32, "
            "channels_last",
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


def test_each_dtype_is_held_against_its_own_peak() -> None:
    """Matrix units pass the peak of fp32 by a factor of ten, and would flatten all else."""
    peak, peaks = (1000.0, 100.0), {"bf16": 8000.0}
    fp32, bf16, fp16 = (
        replace(record(GemmProblem(64, 64, 64, dtype)), peak=peak, peaks=peaks)
        for dtype in ("fp32", "bf16", "fp16")
    )
    shown = rate_of(bf16)
    assert shown is not None
    assert shown.of_peak == pytest.approx(shown.gflops / 8000.0)
    assert shown.of_bound == pytest.approx(shown.gflops / (100.0 * shown.intensity))
    unknown = rate_of(fp16)
    assert unknown is not None
    assert (unknown.of_peak, unknown.of_bound) == (None, None)
    records = [fp32, bf16, fp16]
    assert dtypes_of(records) == ["fp32", "fp16", "bf16"]
    charts = {dtype: roofline_chart(records, dtype) for dtype in dtypes_of(records)}
    assert [len(one.series[0].points) for one in charts.values()] == [1, 1, 1]
    highest = {
        dtype: max(y for _, y in one.series[1].points)
        for dtype, one in charts.items()
        if one.series[1:]
    }
    assert highest == {"fp32": 1000.0, "bf16": 8000.0}
    assert "peak unknown" in charts["fp16"].title
