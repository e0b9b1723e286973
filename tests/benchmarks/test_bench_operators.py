"""The sweep of operators draws every kind, and both sides make the same call."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest

torch = pytest.importorskip("torch")

from benchmarks.tasks.operators.call import call
from benchmarks.tasks.operators.case import Operator
from benchmarks.tasks.operators.tasks import KINDS, LEAST, MOST, drawn
from oclgen.limits import Limits

CPU = Limits(kind="cpu")
SMALL = 2.0**20
UNSUPPORTED = "avg_pool3d_out_frame"
"""The kernel that torch's CPU lacks in 16 bits."""


def test_a_case_of_each_class_comes_before_the_second_of_any() -> None:
    classes = {
        (name, direction, dtype)
        for name, kind in KINDS.items()
        for direction in ("forward", "gradients")[: 1 + kind.has_gradients]
        for dtype in kind.dtypes
    }
    cases = drawn(1, len(classes) + 30, CPU, SMALL)
    found = Counter((case.kind, case.direction, case.dtype) for case in cases)
    assert set(found) == classes
    assert max(found.values()) <= 2
    assert cases[:40] == drawn(1, 40, CPU, SMALL)
    assert cases[:40] != drawn(2, 40, CPU, SMALL)


def test_cases_have_all_layouts_and_ranks_and_none_is_too_large() -> None:
    cases = drawn(3, 400, Limits(kind="gpu"), 2.0**40)
    assert {case.layout for case in cases} == {"rows", "turned", "cut out"}
    assert {len(case.shape) for case in cases} == {1, 2, 3, 4, 5}
    assert all(prod(case.shape) <= 2 * MOST["gpu"] for case in cases)
    # the elements of distances are those of the result
    whole = [one for one in cases if KINDS[one.kind].part == 1 and one.kind != "cdist"]
    assert min(prod(case.shape) for case in whole) >= MOST["gpu"] / LEAST / 16
    assert any(size % 8 for case in cases for size in case.shape)
    assert len({case.key() for case in cases}) == len(cases)


@pytest.mark.parametrize("seed", range(4))
def test_every_kind_is_called_as_it_is_described(seed: int) -> None:
    for case in drawn(seed, len(KINDS) * 2, CPU, SMALL / 16):
        try:
            result = call(case, "cpu")()
        except NotImplementedError as error:
            assert UNSUPPORTED in str(error)
            continue
        if case.direction == "gradients":
            assert isinstance(result, tuple)
            assert result[0].shape == case.shape
            assert result[0].isfinite().any()


def test_the_first_tensor_lies_as_the_layout_says() -> None:
    strides = {}
    for layout, shape in (("rows", (4, 6)), ("turned", (4, 6)), ("cut out", (4, 6))):
        case = Operator("unary", "pointwise", "forward", "fp32", shape, (("op", "relu"),), layout)
        strides[layout] = call(case, "cpu")().stride()  # type: ignore[attr-defined]
    assert strides == {"rows": (6, 1), "turned": (1, 4), "cut out": (6, 1)}
    images = Operator("unary", "", "forward", "bf16", (2, 3, 4, 5), (("op", "relu"),), "turned")
    result = call(images, "cpu")()
    assert isinstance(result, torch.Tensor)
    assert result.dtype is torch.bfloat16
    assert result.is_contiguous(memory_format=torch.channels_last)
