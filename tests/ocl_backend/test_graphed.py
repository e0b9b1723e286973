"""Callables that are recorded and replayed: passes of modules, and functions of torch.compile."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch import Tensor, nn

from ocl_backend import compilation, recorded
from tests.ocl_backend.cpu_twin import ocl, place


@pytest.fixture
def there(device: Any) -> Any:
    where = place(device)
    with ocl.device(where.index):
        yield where
    torch._dynamo.reset()  # forgets what it compiled, and graphs with it
    gc.collect()


def test_graphed_callables_train_as_the_module(there: Any) -> None:
    def trained(graphed: bool) -> list[Tensor]:
        torch.manual_seed(0)
        module: Any = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(there)
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).to(there)
        if graphed:
            module = ocl.make_graphed_callables(module, (torch.randn_like(x),))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for number in range(4):
            optimizer.zero_grad()
            (module(x * (number + 1)) ** 2).mean().backward()
            optimizer.step()
        return [one.detach().cpu() for one in module.parameters()]

    for ours, theirs in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_graphed_functions_in_a_tuple_share_memory(there: Any) -> None:
    x = torch.randn(8, device=there, requires_grad=True)
    y = torch.randn(8, device=there, requires_grad=True)
    double, sine = ocl.make_graphed_callables((lambda a: a * 2, torch.sin), ((x,), (y,)))
    given = torch.randn(8, device=there, requires_grad=True)
    sine(double(given)).sum().backward()
    torch.testing.assert_close(given.grad.cpu(), 2 * (2 * given.detach().cpu()).cos())


def test_a_module_in_another_mode_is_called(there: Any) -> None:
    module: Any = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(there)
    x = torch.randn(2, 4, device=there)
    graphed = ocl.make_graphed_callables(module, (x,))
    want = module[0](x).cpu()
    torch.testing.assert_close(graphed.eval()(x).cpu(), want)


def test_what_cannot_be_graphed_is_told(there: Any) -> None:
    module: Any = nn.Linear(4, 4).to(there)
    with pytest.raises(TypeError, match=r"tensors; got \['int'\]"):
        ocl.make_graphed_callables(module, (3,))
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="has hooks"):
        ocl.make_graphed_callables(module, (torch.ones(4, device=there),))


def counted(function: Any) -> tuple[recorded.Recorded, list[int]]:
    """Return a recorded function, and a list that grows with its calls by Python."""
    calls: list[int] = []

    def call(*given: Any) -> Any:
        calls.append(1)
        return function(*given)

    return recorded.Recorded(call, call), calls


@torch.no_grad()
def test_calls_are_replayed_from_the_third_on_for_each_shape(there: Any) -> None:
    function, calls = counted(lambda x, scale: {"sum": x.sum(0) * scale, "x": (x + 1,)})
    for size in (3, 5):
        for _ in range(6):
            x = torch.randn(size, 4)
            result = function(x.to(there), 2)
            torch.testing.assert_close(result["sum"].cpu(), x.sum(0) * 2)
            torch.testing.assert_close(result["x"][0].cpu(), x + 1)
    assert len(calls) == 2 * (recorded.WARM_UP + 1)
    with torch.enable_grad():
        function(torch.ones(3, 4, device=there), 2)
    assert len(calls) == 2 * (recorded.WARM_UP + 1) + 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_a_function_writes_is_the_callers(there: Any, mode: Any) -> None:
    with mode():
        writes_arrive(there)


def writes_arrive(there: Any) -> None:
    cache = torch.zeros(4, device=there)
    torch._dynamo.mark_static_address(cache)
    function, _ = counted(lambda state, x: (state.add_(1), x.mul_(2), x + state))
    results = []
    for number in range(6):
        x = torch.full((4,), float(number), device=there)
        same, _, out = function(cache, x)
        results.append(out)
        assert x.tolist() == [2 * number] * 4
        assert same.data_ptr() == cache.data_ptr()
    assert cache.tolist() == [6] * 4
    assert [out[0].item() for out in results] == [3 * number + 1 for number in range(6)]


@torch.no_grad()
def test_recordings_end_with_what_they_read(there: Any) -> None:
    function, calls = counted(lambda state, x: (state, x + state))
    for number in range(3):
        state = torch.full((4,), float(number), device=there)
        torch._dynamo.mark_static_address(state)
        for _ in range(5):
            same, out = function(state, torch.ones(4, device=there))
            assert same is state
            assert out.tolist() == [number + 1] * 4
        del state, same
        gc.collect()
    assert len(function._recordings) == 1
    assert len(calls) == recorded.WARM_UP + 3


@torch.no_grad()
def test_what_cannot_be_recorded_is_called_after_one_warning(there: Any) -> None:
    function, _ = counted(lambda x: x + x.sum().item())
    x = torch.ones(2, device=there)
    for _ in range(recorded.WARM_UP):
        function(x)
    with pytest.warns(UserWarning, match=r"without a graph, .*: a graph cannot contain"):
        assert function(x).tolist() == [3, 3]
    assert function(x).tolist() == [3, 3]


def test_compiled_functions_are_replayed(there: Any) -> None:
    torch.compiler.reset()
    compilation._warn.cache_clear()
    module: Any = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(there)
    compiled = torch.compile(module, mode="reduce-overhead", dynamic=False)
    with torch.no_grad(), pytest.warns(UserWarning, match="no backend of Inductor"):
        for _ in range(5):
            x = torch.randn(3, 4, device=there)
            torch.testing.assert_close(compiled(x).cpu(), module(x).cpu())
    x = torch.randn(3, 4, device=there, requires_grad=True)
    compiled(x).sum().backward()
    assert x.grad is not None
