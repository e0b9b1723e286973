"""The `_foreach_*` operators, over torch's own samples: lists of tensors without the CPU."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal import common_methods_invocations as invocations
from torch.utils._pytree import tree_map

import ocl_backend  # noqa: F401  (registers the device)
from tests import torch_frames
from tests.ocl_backend.cpu_twin import assert_same, place

torch_frames.walk()

SAMPLES = 3
INFOS = {
    info.name: info
    for database in ("unary", "binary", "pointwise", "reduce", "other")
    for info in getattr(invocations, f"foreach_{database}_op_db")
    if torch.float32 in info.supported_dtypes("cpu")
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", INFOS)
def test_lists_of_tensors(device: Any, name: str) -> None:
    if device.index:
        pytest.skip("what they are made of is tried on every device elsewhere")
    info = INFOS[name]
    torch.manual_seed(0)
    torch.ocl.reset_fallbacks()
    compared = 0
    for _, sample in zip(range(SAMPLES), info.sample_inputs("cpu", torch.float32), strict=False):
        compared += agree_on(info, sample, place(device))
    assert compared
    assert torch.ocl.fallbacks() == {}


def test_a_tensor_that_is_listed_twice(device: Any) -> None:
    x = torch.zeros(5, 2, device=place(device))[:, 0]  # not dense: a launch works on copies
    torch._foreach_add_([x, x], 0.5)
    assert x.tolist() == [1.0] * 5


def agree_on(info: Any, sample: Any, where: Any) -> int:
    """Compare the functional and the in-place form; return how many the CPU can do."""
    compared = 0
    for form in (info.method_variant, info.inplace_variant):
        theirs = deepcopy(sample)
        try:
            result = form(theirs.input, *theirs.args, **theirs.kwargs) if form else None
        except RuntimeError:
            continue
        if form is None or result is None:
            continue
        ours = [
            tree_map(lambda x: x.to(where) if isinstance(x, torch.Tensor) else x, part)
            for part in (sample.input, sample.args, sample.kwargs)
        ]
        found = form(ours[0], *ours[1], **ours[2])
        in_place = form is info.inplace_variant
        mine, reference = (ours[0], theirs.input) if in_place else (found, result)
        assert_same(list(mine), list(reference), tolerance=1e-4)
        compared += 1
    return compared
