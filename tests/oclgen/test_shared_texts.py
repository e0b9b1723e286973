"""Kernels around a product, which no search tunes, have one text for layers of all sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES
from oclgen.families.parts.planes import FEW, sum_planes
from oclgen.problem import ConvProblem
from oclgen.variant import Variant

SMALL = ConvProblem(4, 32, 28, 28, 48, 3, 3, 1, 1, 1, 1)
LAYERS = (SMALL, ConvProblem(2, 64, 13, 16, 160, 3, 3, 1, 1, 1, 1))
WINOGRAD = ("winograd_filter", "winograd_input", "winograd_output", "winograd_gradient")


@pytest.mark.parametrize(
    ("family", "direction", "kernels"),
    [
        ("conv_gemm", "fwd", ("pack_taps",)),
        ("conv_gemm", "bwd_data", ("pack_taps",)),
        ("winograd_staged", "fwd", WINOGRAD),
        ("winograd_staged", "bwd_data", WINOGRAD),
        ("winograd_weights", "bwd_weights", WINOGRAD),
    ],
)
def test_layers_share_texts(family: str, direction: Any, kernels: tuple[str, ...]) -> None:
    found = []
    for layer in LAYERS:
        problem = replace(layer, direction=direction)
        launches = Variant(family, FAMILIES[family].DEFAULT).plan(problem).launches
        found.append([one.source for one in launches if one.kernel in kernels])
    assert found[0] == found[1] != []


def test_sums_of_many_planes_share_a_text() -> None:
    problem = replace(SMALL, direction="bwd_weights")
    wider = replace(problem, out_channels=64)
    many = {
        sum_planes(of, planes).launch().source for of in (problem, wider) for planes in (16, 128)
    }
    assert len(many) == 1
    few = {sum_planes(of, FEW).launch().source for of in (problem, wider)}
    assert len(few) == 1
    assert many != few
