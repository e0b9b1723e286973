"""`torch.compile` where no backend, or Inductor, is named."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from ocl_backend import compilation
from tests.ocl_backend.cpu_twin import assert_same

pytestmark = pytest.mark.usefixtures("any_device")


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    torch.compiler.reset()
    compilation._warn.cache_clear()


def half(x: Any, weight: Any) -> Any:
    return (x.sin() @ weight).sum() + torch.zeros(1, device=x.device)


def test_the_default_backend_computes_and_differentiates() -> None:
    x, weight = torch.randn(3, 4), torch.randn(4, 5)
    ours = [tensor.to("ocl").requires_grad_() for tensor in (x, weight)]
    theirs = [tensor.clone().requires_grad_() for tensor in (x, weight)]
    compiled = torch.compile(half, dynamic=False)
    with pytest.warns(UserWarning, match="no backend of Inductor"):
        result = compiled(*ours)
    expected = half(*theirs)
    result.sum().backward()
    expected.sum().backward()
    assert_same([result, *(t.grad for t in ours)], [expected, *(t.grad for t in theirs)])


def test_graphs_of_the_cpu_go_to_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def kept(graph: Any, inputs: Any, options: Any) -> Any:
        seen.append(options)
        return graph

    monkeypatch.setattr(torch._inductor, "compile", kept)
    expected = half(torch.ones(2, 2), torch.ones(2, 2))
    for options in ({}, {"mode": "max-autotune-no-cudagraphs"}):
        torch.compiler.reset()
        assert torch.equal(
            torch.compile(half, **options)(torch.ones(2, 2), torch.ones(2, 2)), expected
        )
    assert [bool(options) for options in seen] == [False, True]


def test_inductor_by_name_says_what_to_choose() -> None:
    compiled = torch.compile(lambda x: x.sin().sum(), backend="inductor")
    with pytest.raises(Exception, match=r'ocl has no backend of Inductor: .*"aot_eager"'):
        compiled(torch.ones(3, device="ocl"))
