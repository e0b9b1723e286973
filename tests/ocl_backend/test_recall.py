"""Calls that are recalled: without Python, and the same in every way that a call can differ."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ocl_backend.dispatch.tuned import reload_tuned
from ocl_backend.fusion import held, recall
from ocl_backend.ops.fused.expressions import MOST_NUMBERS
from ocl_backend.runtime.launch import Prepared
from tests.ocl_backend.cpu_twin import place

CALLS = 6
"""Two alike are noted, then the others are recalled; what the first prepares counts for none."""


@pytest.fixture
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[Prepared]:
    """What Python enqueues from now on."""
    recall.forget()
    calls: list[Prepared] = []
    plain = Prepared.__call__

    def noted(self: Prepared, *values: float) -> None:
        calls.append(self)
        plain(self, *values)

    monkeypatch.setattr(Prepared, "__call__", noted)
    return calls


def drawn(device: Any, *shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(shape).to(place(device), dtype)


def layers(device: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to(place(device))


OPERATORS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pointwise": lambda x, y: torch.atan2(x, y),
    "a number": lambda x, y: x * 3 - 1,
    "a reduction": lambda x, y: x.sum(0),
    "cast": lambda x, y: x.to(torch.float16),
    "transposed copy": lambda x, y: x.t().contiguous(),
    "product": lambda x, y: x @ y.t(),
    "linear layer": lambda x, y: functional.linear(x[None], y, x[:, 0]),
    "mean": lambda x, y: (x * y).mean(-1, keepdim=True),
    "several results": lambda x, y: torch.max(x, 1),
    "a list of results": lambda x, y: torch._foreach_norm([x, y, x]),
    "a part of memory": lambda x, y: x[1:] + y[:-1],
    "a range": lambda x, y: x + torch.arange(1, 18, device=x.device),
    "nothing": lambda x, y: x[:0] * y[:0],
    "softmax": lambda x, y: torch.softmax(x, 1),
    "a list of operands": lambda x, y: torch.cat([x, y, x]),
    "indices": lambda x, y: x[torch.tensor([2, 0], device=x.device)],
    "norm": lambda x, y: functional.layer_norm(x, x.shape[1:]),
    "attention": lambda x, y: functional.scaled_dot_product_attention(x[None], y[None], x[None]),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("records", [True, False], ids=["gradients", "no gradients"])
@pytest.mark.parametrize("name", OPERATORS)
def test_soon_nothing_is_asked_of_python(
    device: Any, enqueued: list[Prepared], name: str, records: bool
) -> None:
    for number in range(CALLS):
        x, y = torch.randn(33, 17), torch.randn(33, 17)
        there = x.to(place(device)), y.to(place(device))
        before = len(enqueued)
        with torch.set_grad_enabled(records):
            ours = OPERATORS[name](*there)
        torch.ocl.synchronize(device.index)
        asked = len(enqueued) - before
        assert asked == 0 if number > 2 or name == "nothing" else number > 1 or asked > 0
        theirs = OPERATORS[name](x, y)
        for mine, reference in zip(flat(ours), flat(theirs), strict=True):
            assert mine.stride() == reference.stride()
            assert torch.allclose(mine.cpu(), reference, atol=1e-3)


def flat(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


class Names(TorchDispatchMode):
    """Notes the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, call: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen.add(call.name())
        return call(*args, **(kwargs or {}))


def test_a_mode_sees_the_parts_of_what_is_recalled_whole(device: Any) -> None:
    x, weight = drawn(device, 3, 4), drawn(device, 5, 4)
    with torch.no_grad():
        wanted = [functional.linear(x, weight) for _ in range(CALLS)][-1]
        with Names() as names:
            result = functional.linear(x, weight)
    assert "aten::mm" in names.seen
    assert torch.equal(result, wanted)


def test_tangents_pass_calls_that_are_recalled_without_gradients(device: Any) -> None:
    x = drawn(device, 3, 4)
    with torch.no_grad():
        for _ in range(CALLS):
            x * 3
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            tangent = forward_ad.unpack_dual(dual * 3).tangent
    assert torch.equal(tangent.cpu(), torch.full((3, 4), 3.0))


def test_sparse_tensors_pass_what_is_recalled_before_autograd(device: Any) -> None:
    index, values = torch.tensor([[0, 1], [1, 2]]), torch.tensor([1.0, 2.0])
    x = torch.sparse_coo_tensor(index, values, (3, 3), check_invariants=False).to(place(device))
    with torch.no_grad():
        found = [(x * 2).to_dense().sum().item() for _ in range(CALLS)]
    assert found == [6.0] * CALLS


def test_chains_are_recalled_as_one(device: Any, enqueued: list[Prepared]) -> None:
    model, x = layers(device).eval(), drawn(device, 2, 3, 9, 9)
    with torch.no_grad():
        first = model(x).cpu()
        for _ in range(CALLS):
            model(x)
        torch.ocl.synchronize(device.index)
        enqueued.clear()
        with torch.ocl.profile(file=None) as seen:
            result = model(x)
        assert not enqueued
        assert not [c.name for c in seen.commands if "batch_norm_fwd" in c.name or "relu" in c.name]
    assert torch.equal(result.cpu(), first)


def test_training_is_recalled_whole(device: Any, enqueued: list[Prepared]) -> None:
    model, x = layers(device), drawn(device, 2, 3, 9, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(CALLS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.ocl.synchronize(device.index)
        last = len(enqueued)
        enqueued.clear()
    assert last == 0


def test_numbers_that_return_are_recalled_where_gradients_are_recorded(
    device: Any, enqueued: list[Prepared]
) -> None:
    """As stochastic depth has it: many numbers, each of two layers that follow one another."""
    kept = torch.rand(4, 1).to(place(device))
    for _ in range(CALLS):
        before = len(enqueued)
        for number in range(2, 4 * MOST_NUMBERS):
            kept.div_(number)
            kept.div_(number)
        torch.ocl.synchronize(device.index)
    assert len(enqueued) == before


def test_operands_that_share_memory_are_another_call(device: Any) -> None:
    for _ in range(CALLS):
        x, y = drawn(device, 64), drawn(device, 64)
        assert torch.equal((x * y).cpu(), x.cpu() * y.cpu())
    assert torch.equal((x * x).cpu(), x.cpu() * x.cpu())
    for _ in range(CALLS):
        line = torch.arange(10.0, device=place(device))
        torch.add(line[:8], 1, out=line[:8])
    with pytest.raises(RuntimeError):
        torch.add(line[:8], 1, out=line[1:9])


def test_numbers_dtypes_and_places_are_part_of_a_call(device: Any) -> None:
    x = drawn(device, 40)
    for number in (2, 2, 2, 2, 3, -1.5, True, torch.tensor(4.0), torch.tensor(5.0)):
        assert torch.allclose((x * number).cpu(), x.cpu() * number)
    for start in (0, 0, 0, 0, 1, 4, 3):
        assert torch.equal((x[start:] + 1).cpu(), x.cpu()[start:] + 1)
    for _ in range(CALLS):
        assert (x + 1).dtype is torch.float32
    assert (x.half() + 1).dtype is torch.float16


def test_a_view_of_all_is_not_the_tensor_itself(device: Any) -> None:
    x = drawn(device, 8)
    with torch.inference_mode():  # else torch itself sees to what is returned
        for other in (*[x] * CALLS, x[:]):
            assert torch.ops.aten.add_.Tensor(x, other) is x


def test_outputs_are_resized_and_written_as_ever(device: Any) -> None:
    x = drawn(device, 4, 5)
    for _ in range(CALLS):
        out = torch.empty(0, device=x.device)
        assert torch.mul(x, 2, out=out) is out
        assert torch.equal(out.cpu(), x.cpu() * 2)
        kept = torch.empty(5, 4, device=x.device).t()
        torch.mul(x, 2, out=kept)
        assert kept.stride() == (1, 4)
        assert torch.equal(kept.cpu(), x.cpu() * 2)
        assert x.add_(1) is x


def test_what_was_drawn_is_drawn_anew(device: Any) -> None:
    x = torch.ones(1000, device=place(device))
    draws = [functional.dropout(x).cpu() for _ in range(CALLS)]
    draws += [torch.rand_like(x).cpu() for _ in range(CALLS)]
    draws += [torch.bernoulli(x / 2).cpu() for _ in range(CALLS)]
    assert not [1 for i, a in enumerate(draws) for b in draws[:i] if torch.equal(a, b)]


def test_results_that_depend_on_items_follow_them(device: Any) -> None:
    for seed in range(CALLS):
        torch.manual_seed(seed)
        x = torch.randn(50)
        assert torch.equal(torch.nonzero(x.to(place(device)) > 0).cpu(), torch.nonzero(x > 0))


def test_settings_hold_at_once(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(device, 8, 8)
    for _ in range(CALLS):
        torch.mm(x, x)
    monkeypatch.setattr(torch.ocl.matmul, "allow_tf32", True)
    assert ":tf32:" in torch.ocl.explain(torch.mm, x, x).rows[0].problem
    monkeypatch.undo()
    assert ":fp32:" in torch.ocl.explain(torch.mm, x, x).rows[0].problem


def test_what_was_tuned_anew_is_not_recalled(device: Any, enqueued: list[Prepared]) -> None:
    held.forget()  # no rule is left that a product would share its fate with
    x = drawn(device, 8, 8)
    for _ in range(CALLS):
        torch.mm(x, x)
    enqueued.clear()
    reload_tuned()
    torch.mm(x, x)
    assert enqueued


def test_autocast_does_not_cast_what_kernels_call(device: Any) -> None:
    x = drawn(device, 5, 5, dtype=torch.float16)
    for on in (True, False) * CALLS:
        with torch.autocast("ocl", enabled=on):
            assert torch.trace(x).dtype is torch.float16


def test_who_looks_on_sees_every_call(device: Any) -> None:
    x = drawn(device, 8, 8)

    def many() -> None:
        for _ in range(CALLS):
            torch.mm(x, x)

    many()
    assert torch.ocl.explain(many).rows[0].calls == CALLS


def test_no_memory_is_kept_and_a_lack_is_told(device: Any) -> None:
    x = drawn(device, 256, 256)

    def step() -> Tensor:
        return torch.softmax(x.t() @ x, 0).t().contiguous()

    for _ in range(CALLS):
        step()
    gc.collect()
    torch.ocl.synchronize(device.index)
    before = torch.ocl.memory_allocated(device.index)
    for _ in range(CALLS):
        step()
    torch.ocl.synchronize(device.index)
    assert torch.ocl.memory_allocated(device.index) == before
    torch.ocl.empty_cache()
    total = torch.ocl.get_device_properties(device.index).total_memory
    share = torch.ocl.memory_reserved(device.index) / total
    torch.ocl.set_per_process_memory_fraction(share, device.index)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            step()
    finally:
        torch.ocl.set_per_process_memory_fraction(1.0, device.index)
    assert step().shape == (256, 256)


def test_threads_recall_at_once(device: Any) -> None:
    x, w, b = drawn(device, 32, 32), drawn(device, 32, 32), drawn(device, 32)
    right = torch.relu(torch.addmm(b, x, w)).cpu()
    results: list[Tensor] = []

    def work() -> None:
        results.extend(torch.relu(torch.addmm(b, x, w)).cpu() for _ in range(100))

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 400
    assert all(torch.equal(result, right) for result in results)


def test_rules_stay_as_long_as_their_calls_may_run(device: Any) -> None:
    x, w, b = drawn(device, 32, 32), drawn(device, 32, 32), drawn(device, 32)
    y = torch.addmm(b, x, w)
    assert held.is_holding()
    recall.forget()  # as another thread does at any time
    for rule, _ in [*held._rules.values()]:
        rule.calls = ()
    held._drop_rules()
    assert len(held._rules) == 1
    assert torch.allclose(y.cpu(), torch.addmm(b.cpu(), x.cpu(), w.cpu()), atol=1e-4)
    held._drop_rules()
    assert not held._rules


def test_an_index_out_of_range_is_noticed(device: Any) -> None:
    x = drawn(device, 10, 3)
    for last in (1, 9, 4, 0, 9):
        assert torch.equal(x[torch.tensor([0, last], device=x.device)].cpu(), x.cpu()[[0, last]])
    x[torch.tensor([0, 10], device=x.device)]
    with pytest.raises(torch.AcceleratorError, match="out of bounds"):
        torch.ocl.synchronize(device.index)


def test_an_error_is_raised_by_every_call(device: Any) -> None:
    x, y = drawn(device, 3), drawn(device, 4)
    for _ in range(CALLS):
        with pytest.raises(RuntimeError):
            x * y


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: functional.dropout(x, 0.5),
    "in place": lambda x: torch.empty_like(x).bernoulli_(0.5),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "gradients": lambda x: torch.autograd.grad(DRAWS["attention"](x.requires_grad_()).sum(), x)[0],
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_drawn_without_python(
    device: Any, enqueued: list[Prepared], name: str
) -> None:
    def drawn_twice() -> list[Tensor]:
        torch.manual_seed(7)
        torch.rand(3, device=place(device))  # a call begins at any counter
        results = [DRAWS[name](x.clone()).cpu() for _ in range(CALLS)]
        return [*results, torch.rand(3, device=place(device)).cpu()]

    x = drawn(device, 2, 2, 8, 16)
    recall.suspend(True)
    expected = drawn_twice()
    recall.suspend(False)
    drawn_twice()
    enqueued.clear()
    found = drawn_twice()
    assert len(enqueued) == 0
    for mine, reference in zip(found, expected, strict=True):
        assert torch.equal(mine, reference)
    assert not torch.equal(found[0], found[1])


def test_another_seed_draws_other_numbers(device: Any) -> None:
    x = torch.ones(64, device=place(device))
    found = []
    for seed in (1, 1, 2, 2, 1):
        torch.manual_seed(seed)
        found += [[functional.dropout(x).cpu() for _ in range(CALLS)]]
    first, again, other, others, last = (torch.cat(each) for each in found)
    assert torch.equal(first, again) and torch.equal(first, last) and torch.equal(other, others)
    assert not torch.equal(first, other)
