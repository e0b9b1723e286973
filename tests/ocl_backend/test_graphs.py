"""Graphs: a step's commands, captured once and replayed: tests/csrc has them without torch."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn import functional

from ocl_backend.runtime import memory
from tests.ocl_backend.cpu_twin import ocl, place


@pytest.fixture(params=list(memory.Submission), ids=lambda who: who.name.lower())
def there(device: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return the device as torch knows it, whose commands calls, a thread or batches submit."""
    where = place(device)
    memory.set_submission(where.index, request.param)
    with ocl.device(where.index):
        yield where
    ocl.synchronize(where)
    memory.set_submission(where.index, memory.Submission.EACH_CALL)


def captured(function: Callable[[], Any], warm: int = 2) -> tuple[Any, Any]:
    """Return a graph of a call, and what the call returned."""
    for _ in range(warm):
        function()
    graph = ocl.OCLGraph()
    with ocl.graph(graph):
        result = function()
    return graph, result


def agrees(module: nn.Module, *samples: Tensor) -> None:
    """Fail unless replays for several inputs give what eager calls give."""
    with torch.no_grad():
        static = [one.clone() for one in samples]
        graph, out = captured(lambda: module(*static))
        for seed in range(3):
            torch.manual_seed(seed)
            given = [
                torch.randn_like(one) if one.is_floating_point() else one.clone() for one in samples
            ]
            for target, value in zip(static, given, strict=True):
                target.copy_(value)
            graph.replay()
            torch.testing.assert_close(out.cpu(), module(*given).cpu())


def test_a_perceptron_replays(there: Any) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(33, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))
    agrees(module.to(there), torch.randn(7, 33, device=there))


def test_a_convolutional_network_replays(there: Any) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(3, 2, 1),
        nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(72, 4),
    )  # fmt: skip
    agrees(module.eval().to(there), torch.randn(2, 3, 12, 12, device=there))


def test_what_is_first_called_in_a_capture_serves_later_calls(there: Any) -> None:
    """Tables that the capture makes have their contents before the first replay."""
    x = torch.randn(2, 3, 11, 11, device=there)

    def function() -> Tensor:
        return functional.adaptive_avg_pool2d(x, 5) + functional.interpolate(x, (5, 5), mode="area")

    graph, out = captured(function, warm=0)
    eager = function().cpu()
    graph.replay()
    torch.testing.assert_close(out.cpu(), eager)


def test_attention_with_a_static_cache_replays(there: Any) -> None:
    torch.manual_seed(0)
    keys, values = (torch.zeros(1, 2, 16, 8, device=there) for _ in range(2))
    query = torch.randn(1, 2, 1, 8, device=there)
    at = torch.zeros(1, dtype=torch.int64, device=there)
    places = torch.arange(16, device=there)

    def step() -> Tensor:
        keys.index_copy_(2, at, query * 2)
        values.index_copy_(2, at, query + 1)
        mask = (places <= at)[None, None, None]
        return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)

    with torch.no_grad():
        graph, out = captured(step)
        for cache in (keys, values):
            cache.zero_()
        known: tuple[list[Tensor], list[Tensor]] = ([], [])
        for number in range(5):
            new = torch.randn(1, 2, 1, 8)
            query.copy_(new.to(there))
            at.fill_(number)
            graph.replay()
            known[0].append(new * 2)
            known[1].append(new + 1)
            want = functional.scaled_dot_product_attention(
                new, torch.cat(known[0], 2), torch.cat(known[1], 2)
            )
            torch.testing.assert_close(out.cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_training_step_replays(there: Any, kind: str) -> None:
    images = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 2, 1, 2])

    def trained(replays: bool) -> list[Tensor]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).to(there)
        if kind == "sgd":
            optimizer: Any = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        else:
            optimizer = torch.optim.Adam(module.parameters(), lr=0.01, capturable=True)
        x, y = images.to(there), labels.to(there)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(module(x), y).backward()
            optimizer.step()

        for _ in range(3):
            step()
        if replays:
            graph = ocl.OCLGraph()
            optimizer.zero_grad(set_to_none=True)
            with ocl.graph(graph):
                functional.cross_entropy(module(x), y).backward()
                optimizer.step()
        for _ in range(4):
            graph.replay() if replays else step()
        return [one.detach().cpu() for one in module.parameters()]

    for ours, theirs in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_capture_runs_nothing(there: Any) -> None:
    x = torch.zeros(100, device=there)
    graph, _ = captured(lambda: x.add_(1), warm=0)
    assert x.sum().item() == 0
    for _ in range(3):
        graph.replay()
    assert x.sum().item() == 300


def test_changed_weights_are_seen(there: Any) -> None:
    """What plans pack of weights is made again: by eager writes, and by another graph's."""
    torch.manual_seed(0)
    with torch.inference_mode():
        weight = torch.randn(96, 64, device=there)
        x = torch.randn(40, 64, device=there)
        forward, out = captured(lambda: functional.linear(x, weight), warm=4)
        update, _ = captured(lambda: weight.mul_(2), warm=0)
        weight.add_(1)
        forward.replay()
        torch.testing.assert_close(out.cpu(), functional.linear(x.cpu(), weight.cpu()))
        update.replay()
        forward.replay()
        torch.testing.assert_close(out.cpu(), functional.linear(x.cpu(), weight.cpu()))


def test_memory_of_a_graph_is_not_given_to_others(there: Any) -> None:
    x = torch.randn(1000, device=there)

    def function() -> Tensor:
        return ((x * 2).sin() + (x * 3).cos()).cumsum(0)

    graph, out = captured(function)
    want = function().cpu()
    others = [torch.full((1000,), float(number), device=there) for number in range(20)]
    graph.replay()
    torch.testing.assert_close(out.cpu(), want)
    for number, other in enumerate(others):
        assert torch.equal(other.cpu(), torch.full((1000,), float(number)))


def test_what_a_graph_reads_stays_when_its_tensor_is_dropped(there: Any) -> None:
    read = [torch.full((5000,), 3.0, device=there)]
    graph, out = captured(lambda: read[0] * 2)
    read.clear()
    gc.collect()
    others = [torch.zeros(5000, device=there) for _ in range(5)]
    graph.replay()
    assert out.sum().item() == 30000
    assert all(other.sum().item() == 0 for other in others)


def test_reset_frees_memory(there: Any) -> None:
    ocl.empty_cache()
    before = ocl.memory_reserved(there)
    read = [torch.ones(1 << 20, device=there)]
    graph, out = captured(lambda: (read[0] + 1).cumsum(0) * 2, warm=0)
    read.clear()
    del out
    ocl.empty_cache()
    assert ocl.memory_reserved(there) > before
    graph.reset()
    ocl.empty_cache()
    assert ocl.memory_reserved(there) == before
    with pytest.raises(RuntimeError, match="no commands"):
        graph.replay()


def test_graphs_share_a_pool(there: Any) -> None:
    pool = ocl.graph_pool_handle()
    x = torch.randn(500, device=there)
    first, second = ocl.OCLGraph(), ocl.OCLGraph()
    with ocl.graph(first, pool=pool):
        y = x + 1
    with ocl.graph(second, pool=first.pool()):
        z = y * 2
    assert first.pool() == second.pool() == pool
    first.replay()
    second.replay()
    torch.testing.assert_close(z.cpu(), (x.cpu() + 1) * 2)


def test_random_numbers_differ_and_are_those_of_the_seed(there: Any) -> None:
    x = torch.ones(1000, device=there)

    def function() -> Tensor:
        return functional.dropout(x, 0.5) + torch.rand(1000, device=there)

    graph, out = captured(function)

    def drawn(call: Callable[[], Any]) -> list[Tensor]:
        torch.manual_seed(7)
        results = []
        for _ in range(3):
            result = call()
            results.append((out if result is None else result).cpu())
        return results

    ours, again, eager = drawn(graph.replay), drawn(graph.replay), drawn(function)
    assert not torch.equal(ours[0], ours[1])
    for one, two, three in zip(ours, again, eager, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


@pytest.mark.parametrize("name", ["item", "cpu", "synchronize", "nonzero", "pinned"])
def test_what_needs_the_host_ends_the_capture(there: Any, name: str) -> None:
    x = torch.ones(4, device=there)
    calls: dict[str, Callable[[], Any]] = {
        "item": lambda: x.sum().item(),
        "cpu": x.cpu,
        "synchronize": ocl.synchronize,
        "nonzero": lambda: x.nonzero(),
        "pinned": lambda: x.copy_(torch.ones(4).pin_memory(), non_blocking=True),
    }
    graph = ocl.OCLGraph()
    with pytest.raises(RuntimeError, match="a graph cannot contain"), ocl.graph(graph):
        x.add_(1)
        calls[name]()
    assert not ocl.is_current_stream_capturing()
    assert x.sum().item() == 4
    with ocl.graph(graph):
        x.add_(1)
    graph.replay()
    assert x.sum().item() == 8


def test_an_error_that_was_caught_makes_the_capture_fail(there: Any) -> None:
    x = torch.ones(4, device=there)
    graph = ocl.OCLGraph()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="cannot contain"):
        x.tolist()
    with pytest.raises(RuntimeError, match="the capture failed: a graph cannot contain"):
        graph.capture_end()
    assert x.tolist() == [1] * 4


def test_wrong_orders_are_told(there: Any) -> None:
    x = torch.ones(4, device=there)
    graph, other = ocl.OCLGraph(), ocl.OCLGraph()
    with pytest.raises(RuntimeError, match="no commands"):
        graph.replay()
    with pytest.raises(RuntimeError, match="no capture of this graph is open"):
        graph.capture_end()
    with ocl.graph(graph):
        assert ocl.is_current_stream_capturing()
        x.add_(1)
        with pytest.raises(RuntimeError, match="already captures"):
            other.capture_begin()
    with pytest.raises(RuntimeError, match="has been captured"):
        graph.capture_begin()
    with ocl.graph(other), pytest.raises(RuntimeError, match="while another is captured"):
        graph.replay()


def test_other_threads_go_on_during_a_capture(there: Any) -> None:
    x = torch.zeros(100, device=there)
    graph = ocl.OCLGraph()
    results = []

    def work() -> None:
        y = torch.full((100,), 2.0, device=there)
        for _ in range(20):
            y = y + 1
        results.append(y.sum().item())

    with ocl.graph(graph):
        x.add_(1)
        thread = threading.Thread(target=work)
        thread.start()
        x.mul_(3)
        thread.join()
    assert results == [2200]
    graph.replay()
    assert x.sum().item() == 300


def test_threads_replay(there: Any) -> None:
    x = torch.zeros(100, device=there)
    graph, _ = captured(lambda: x.add_(1), warm=0)
    threads = [
        threading.Thread(target=lambda: [graph.replay() for _ in range(25)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.sum().item() == 10000


def test_a_wrong_index_is_told_behind_a_replay(there: Any) -> None:
    table, index = torch.randn(5, 3, device=there), torch.tensor([0, 1], device=there)
    graph, _ = captured(lambda: table.index_select(0, index))
    ocl.synchronize(there)
    index.fill_(9)
    graph.replay()
    with pytest.raises(torch.AcceleratorError, match="index out of range"):
        ocl.synchronize(there)
    index.fill_(1)
    graph.replay()
    ocl.synchronize(there)


def test_small_copies_from_the_host_are_constants(there: Any) -> None:
    x = torch.zeros(3, device=there)
    graph, _ = captured(lambda: x.copy_(torch.tensor([1.0, 2.0, 3.0])), warm=0)
    x.zero_()
    for _ in range(2):
        graph.replay()
    assert x.tolist() == [1, 2, 3]


def test_a_listing_names_the_commands(there: Any, tmp_path: Path) -> None:
    x, y = torch.zeros(300, device=there), torch.ones(300, device=there)
    graph, _ = captured(lambda: x.copy_(y), warm=0)
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert "copy within device" in (tmp_path / "graph.dot").read_text()


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch has it from 2.13 on")
def test_torchs_own_class_replays(there: Any) -> None:
    x = torch.zeros(10, device=there)
    graph = torch.accelerator.Graph()
    with torch.Stream(there), graph:
        x.add_(1)
    graph.replay()
    graph.replay()
    assert x.sum().item() == 20
