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


def test_the_compiler_traces_no_choice_of_a_kernel() -> None:
    """Behind a break of the graph it took numpy there for torch, which has other dtypes."""
    from torch._dynamo import trace_rules

    from ocl_backend.dispatch import accepted
    from oclgen.predictor import forest
    from tuned_db.choosing import chooser

    torch.compile(half)
    for function in (forest.Forest.predict, chooser.Chooser.candidates, accepted.ask):
        assert trace_rules.check(function), function.__module__


def test_inductor_by_name_says_what_to_choose() -> None:
    compiled = torch.compile(lambda x: x.sin().sum(), backend="inductor")
    with pytest.raises(Exception, match=r'ocl has no backend of Inductor: .*"aot_eager"'):
        compiled(torch.ones(3, device="ocl"))


def test_attention_over_sizes_that_are_symbols() -> None:
    """Its kernels serve graphs whose sizes vary, also sizes that nothing is known of."""
    compiled = torch.compile(
        torch.nn.functional.scaled_dot_product_attention, backend="aot_eager", dynamic=True
    )
    for batch in (2, 3):
        q, k, v = torch.randn(3, batch, 2, 6, 8)
        ours = [tensor.to("ocl").requires_grad_() for tensor in (q, k, v)]
        theirs = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        result = compiled(*ours)
        expected = torch.nn.functional.scaled_dot_product_attention(*theirs)
        result.sum().backward()
        expected.sum().backward()
        assert_same([result, *(t.grad for t in ours)], [expected, *(t.grad for t in theirs)])


def test_attention_over_sizes_that_may_be_zero() -> None:
    """torch asks for no proof that a size of which nothing is known is not zero."""
    choose = torch.compile(
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
        backend="eager", fullgraph=True,
    )  # fmt: skip
    x = torch.randn(4, 2, 6, 8, device="ocl")
    torch._dynamo.mark_dynamic(x, 0)
    assert choose(x).shape == x.shape


@pytest.mark.filterwarnings("error:Dynamo detected a call")
def test_operators_behind_a_break_are_not_traced() -> None:
    """A loop that cannot be captured runs as it is: each of its operators is called from torch."""

    def alternating(x: Any) -> Any:
        total = 0
        for row in x.unbind(0):
            if row.sum() > 0:
                total = total + row
            else:
                total = total - row.flip(0)
        return total

    x = torch.tensor([[1.0, 2.0], [-3.0, 1.0], [2.0, -5.0], [0.5, 0.25]])
    found = torch.compile(alternating)(x.to("ocl"))
    assert found.tolist() == alternating(x).tolist()
