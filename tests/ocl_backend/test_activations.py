"""Activations: every row of the table, in each of the places that read it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.kernels import pointwise_table
from ocl_backend.kernels.activations import MASKS, NUMBERS, OPERATORS, activate
from ocl_backend.kernels.special_table import SPECIAL
from oclgen.activations import ACTIVATIONS, Activation, Operator
from oclgen.measuring.reference import random_inputs, reference
from oclgen.problem import GemmProblem
from oclgen.render import activation_preamble
from tests.ocl_backend.cpu_twin import place, relative

NAMES = [name for name in ACTIVATIONS if name != "none"]


def of_torch(name: str, x: Tensor) -> Tensor:
    """The table's reference."""
    return torch.from_numpy(ACTIVATIONS[name].reference(x.double().numpy())).to(x.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_the_torch_operator_of_its_row(name: str) -> None:
    x = torch.linspace(-8, 8, 41, dtype=torch.float64)
    torch.testing.assert_close(activate(name, x), of_torch(name, x))
    assert OPERATORS[ACTIVATIONS[name].forward.name] == name


@pytest.mark.parametrize("name", NAMES)
def test_the_pointwise_operator_and_what_it_is_fused_with_follow_the_row(
    device: Any, name: str
) -> None:
    x, bias = torch.linspace(-8, 8, 42).view(6, 7), torch.linspace(-1, 1, 5)
    w = torch.linspace(-1, 2, 35).view(7, 5)
    ours, our_w, our_bias = (tensor.to(place(device)) for tensor in (x, w, bias))

    def added() -> Tensor:
        return activate(name, ours + ours)

    def multiplied() -> Tensor:
        return activate(name, torch.addmm(our_bias, ours, our_w))

    assert relative(activate(name, ours).cpu(), of_torch(name, x)) <= 1e-5
    assert relative(added().cpu(), of_torch(name, 2 * x)) <= 1e-5
    assert relative(multiplied().cpu(), of_torch(name, torch.addmm(bias, x, w))) <= 1e-5
    for function in (added, multiplied):
        function()
        with torch.ocl.profile(file=None) as seen:
            function()
        assert len(seen.commands) == 1


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 6e-7), (torch.float64, 4e-15)])
def test_gelu_is_as_exact_as_its_dtype(device: Any, dtype: Any, most: float) -> None:
    """Its fit ends at 5, and what is beyond falls to zero."""
    if dtype is torch.float64 and "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip(f"{device.name} has no cl_khr_fp64")
    x = torch.linspace(-30, 5, 3501, dtype=dtype)
    got = torch.nn.functional.gelu(x.to(place(device))).cpu().double()
    want = 0.5 * x.double() * torch.erfc(-x.double() / 2**0.5)
    assert (got - want).abs().max() <= most
    ends = torch.tensor([torch.inf, torch.nan, 30, -30], dtype=dtype)
    got = torch.nn.functional.gelu(ends.to(place(device))).cpu()
    want = torch.tensor([torch.inf, torch.nan, 30, 0], dtype=dtype)
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in NAMES if ACTIVATIONS[name].backward])
def test_the_gradient_follows_the_row(device: Any, name: str) -> None:
    x = torch.linspace(-8, 8, 42, dtype=torch.float32)
    theirs, ours = x.clone().requires_grad_(), x.to(place(device)).requires_grad_()
    for leaf in (theirs, ours):
        activate(name, leaf).sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    assert relative(ours.grad.cpu(), theirs.grad) <= 1e-5


def test_masks_are_the_gradients_that_the_rows_call_so() -> None:
    assert MASKS == {"threshold_backward": "relu", "hardtanh_backward": "relu6"}
    assert NUMBERS["hardtanh"] == NUMBERS["hardtanh_backward"] == (0, 6)


def test_a_new_row_is_known_to_problems_epilogues_and_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="'half' is unknown"):
        GemmProblem(4, 4, 4, activation="half")
    row = Activation(Operator("hardshrink", "self * 0.5"), lambda x: x * 0.5)
    monkeypatch.setitem(ACTIVATIONS, "half", row)
    problem = GemmProblem(4, 4, 4, activation="half")
    assert activation_preamble("half") == "#define ACT(x) ((x) * 0.5f)"
    inputs = random_inputs(problem, seed=0)
    plain = reference(GemmProblem(4, 4, 4), inputs)
    np.testing.assert_allclose(reference(problem, inputs), plain * 0.5)


def test_an_operator_is_one_row_of_one_table() -> None:
    names = ("UNARY", "BINARY", "TERNARY", "ACTIVATIONS", "BACKWARD")
    rows = Counter(row for name in names for row in getattr(pointwise_table, name))
    rows.update(list(SPECIAL))
    operators = (one for row in ACTIVATIONS.values() for one in (row.forward, row.backward))
    rows.update(one.name for one in operators if one and one.name)
    assert {row for row, count in rows.items() if count > 1} == set()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_stands_inside_other_kernels_is_one_expression(name: str) -> None:
    row = ACTIVATIONS[name]
    assert ";" not in row.forward.expression
    assert not row.masks or (row.backward and ";" not in row.backward.expression)
