"""Operators without a kernel run on the CPU: counted, warned of once, refused on demand."""

from __future__ import annotations

import warnings
from subprocess import CompletedProcess
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from tests import torch_processes
from tests.ocl_backend.cpu_twin import assert_same, place

MISSING = "aten::hash_tensor.out"
"""An operator without a kernel; the tests below fail if it gets one."""


def call(device: Any) -> Any:
    return torch.hash_tensor(torch.ones(3).to(torch.device("ocl", device.index)))


def test_it_runs_is_counted_and_warned_of_once(device: Any) -> None:
    torch.ocl.reset_fallbacks()
    with pytest.warns(UserWarning, match=rf"{MISSING} has no ocl kernel.*OCLGEN_FALLBACK=error"):
        first = call(device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(device)
    assert first.device.index == device.index
    assert torch.equal(first.cpu(), torch.hash_tensor(torch.ones(3)))
    assert torch.ocl.fallbacks()[MISSING] == 2
    torch.ocl.reset_fallbacks()
    assert MISSING not in torch.ocl.fallbacks()


def test_it_works_in_place_and_into_out(device: Any) -> None:
    place = torch.device("ocl", device.index)
    x = torch.tensor([7.0, 3.0], device=place)
    alias = x.view(2, 1)
    x.put_(torch.tensor([0], device=place), torch.tensor([5.0], device=place))
    assert alias.cpu().flatten().tolist() == [5.0, 3.0]
    out = torch.empty(0, dtype=torch.uint64, device=place)
    torch.hash_tensor(x, out=out)
    assert torch.equal(out.cpu(), torch.hash_tensor(x.cpu()))


def test_gradients_pass_through_it(device: Any) -> None:
    place = torch.device("ocl", device.index)
    x = torch.tensor([0.3, 0.6], device=place, requires_grad=True)
    torch.special.erfcx(x).sum().backward()
    y = x.detach().cpu().requires_grad_()
    torch.special.erfcx(y).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad)


def run(policy: str, program: str) -> CompletedProcess[str]:
    return torch_processes.run(f"import ocl_backend, torch\n{program}", OCLGEN_FALLBACK=policy)


CALL = "torch.hash_tensor(torch.ones(2).to('ocl'))"


@pytest.mark.usefixtures("any_device")
def test_the_variable_turns_it_into_an_error() -> None:
    done = run("error", CALL)
    assert done.returncode == 1
    assert f"NotImplementedError: {MISSING} has no ocl kernel" in done.stderr


@pytest.mark.usefixtures("any_device")
def test_copies_and_views_never_fall_back() -> None:
    done = run(
        "error",
        "x = torch.arange(24.).reshape(2, 3, 4).to('ocl')\n"
        "y = x.permute(2, 0, 1).contiguous().half().view(8, 3)[::2].unfold(0, 2, 1).clone()\n"
        "y.resize_(3); y.copy_(torch.ones(3)); y.set_(x.half())\n"
        "print(y.cpu().sum().item(), x[1, 2, 3].item())",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "276.0 23.0\n"


def test_an_unknown_policy_is_refused() -> None:
    done = run("maybe", "")
    assert done.returncode == 1
    assert "OCLGEN_FALLBACK='maybe'; it must be one of warn, error" in done.stderr


@pytest.mark.parametrize("name", ["det", "slogdet"])
@pytest.mark.parametrize("kind", ["dense", "with gaps", "columns first", "columns with gaps"])
def test_gradients_of_determinants_of_matrices_that_lie_otherwise(
    device: Any, kind: str, name: str
) -> None:
    """torch's formula looks at the matrix to know whether its transpose was factorized."""
    torch.manual_seed(0)
    wide, found = torch.randn(2, 4, 8), []
    for where in ("cpu", place(device)):
        leaf = wide.to(where, copy=True).requires_grad_()
        x = {
            "dense": leaf[..., :4].contiguous(),
            "with gaps": leaf[..., ::2],
            "columns first": leaf[..., :4].contiguous().mT,
            "columns with gaps": leaf[..., ::2].mT,
        }[kind]
        result = getattr(torch.linalg, name)(x)
        total = (result if name == "det" else result.logabsdet).sum()
        found.append([total, *torch.autograd.grad(total, leaf)])
    assert_same(found[1], found[0], 1e-4)
