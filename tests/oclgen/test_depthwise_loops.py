"""Depthwise filters of many taps in channels_last: their rows of taps are loops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families.depthwise import depthwise
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import ConvProblem
from oclgen.variant import Variant
from tests.oclgen.test_guesses import CPU

LAYER = ConvProblem(
    2, 24, 11, 13, 24, 9, 9, pad_h=4, pad_w=4, groups=24, layout="nhwc", bias=True, residual=True
)
STRIDED = replace(LAYER, stride_h=2, stride_w=2, bias=False, residual=False)
CONFIG = replace(depthwise.DEFAULT, patch_h=3, patch_w=5, vec_c=8, local_c=1, local_size=4)
LAYERS = {
    "all terms": LAYER,
    "a last vector that overlaps": replace(LAYER, in_channels=21, out_channels=21, groups=21),
    "strided": STRIDED,
    "gradient": replace(STRIDED, direction="bwd_data"),
    "gradient of stride 3 and 9 x 7": replace(
        STRIDED, kernel_w=7, pad_w=3, stride_h=3, stride_w=3, direction="bwd_data"
    ),
    "fewer rows of taps than phases": replace(
        STRIDED, kernel_h=2, kernel_w=30, pad_h=1, pad_w=15, stride_h=3, direction="bwd_data"
    ),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_loops_over_rows_of_taps_add_what_written_out_taps_add(
    layer: ConvProblem, device: Device
) -> None:
    assert CONFIG.is_looped(layer)
    result = Bench(device, layer).measure(Variant("depthwise", CONFIG).plan(layer), limit_ms=0.0)
    assert result.ok, result.reason


@pytest.mark.parametrize(("taps", "is_looped"), [(7, False), (9, True)])
def test_only_many_taps_are_loops(taps: int, is_looped: bool) -> None:
    layer = replace(LAYER, kernel_h=taps, kernel_w=taps, pad_h=taps // 2, pad_w=taps // 2)
    first = depthwise.guesses(layer, CPU)[0]
    assert first.is_looped(layer) == is_looped
