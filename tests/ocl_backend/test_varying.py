"""Sizes that vary from call to call: right results, few programs and bounded memories."""

from __future__ import annotations

import ctypes
import gc
import random
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn import functional

from ocl_backend.dispatch import tuned, varying
from ocl_backend.dispatch.varying import FIXED, MANY, MOST_SHAPES, Forms, Varying, typical
from ocl_backend.ops.fused.window import Window
from oclgen import remembered
from oclgen.families import FAMILIES
from oclgen.limits import Limits
from oclgen.measurement import Measurement
from oclgen.opencl.binaries import MIB, Binaries
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.remembered import Remembered
from oclgen.variant import Variant
from tests.ocl_backend.cpu_twin import place, relative
from tuned_db import open_store

SIZES = (12, 30, 7, 21, 64, 65, 63, 1, 130, 5, 6)
"""The first ones have kernels of their own; then one, tiles and edges of tiles, and larger ones."""


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database of the test's own, and nothing remembered before or after."""
    path = tmp_path / "tuned.sqlite"
    monkeypatch.setenv("OCLGEN_DB", str(path))
    torch.ocl.reload_tuned()
    yield path
    monkeypatch.undo()
    torch.ocl.reload_tuned()


@pytest.fixture
def built(device: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the device builds from now on."""
    device.programs.forget()
    texts: list[str] = []
    plain = device.ahead.find

    def noted(source: str) -> Any:
        if source not in texts:
            texts.append(source)
        return plain(source)

    monkeypatch.setattr(device.ahead, "find", noted)
    return texts


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(19, 33), nn.ReLU(), nn.Linear(33, 5))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 4, 1), nn.Flatten(),
        nn.Linear(36, 5),
    )  # fmt: skip


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (19,)),
    "cnn": (cnn, (3, 14, 14)),
}


def step(network: nn.Module, x: Tensor, target: Tensor) -> list[Tensor]:
    """The loss and all gradients."""
    network.zero_grad()
    loss = functional.cross_entropy(network(x), target)
    loss.backward()
    grads = (parameter.grad for parameter in network.parameters())
    return [loss, *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize("name", NETWORKS)
def test_training_on_varying_batches_is_right(device: Any, name: str) -> None:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    theirs = make()
    ours = make().to(place(device))
    ours.load_state_dict(theirs.state_dict())
    for size in SIZES:
        if name == "cnn" and size > 64:
            continue
        x, target = torch.randn(size, *shape), torch.randint(5, (size,))
        wanted = step(theirs, x, target)
        got = step(ours, x.to(place(device)), target.to(place(device)))
        for mine, reference in zip(got, wanted, strict=True):
            assert relative(mine.cpu(), reference) < 1e-4, size


def test_attention_of_varying_batch_and_length_is_right(device: Any) -> None:
    torch.manual_seed(0)
    for batch, length in ((2, 8), (3, 5), (1, 9), (4, 17), (2, 33), (5, 4), (3, 31), (2, 1)):
        a, b = torch.randn(4 * batch, length, 8), torch.randn(4 * batch, 8, length)
        scores = torch.softmax(torch.bmm(a, b), -1)
        wanted = torch.bmm(scores, a)
        there, other = a.to(place(device)), b.to(place(device))
        got = torch.bmm(torch.softmax(torch.bmm(there, other), -1), there)
        assert relative(got.cpu(), wanted) < 1e-5, (batch, length)


@pytest.mark.parametrize("name", NETWORKS)
def test_batches_that_vary_build_a_bounded_number_of_programs(
    device: Any, name: str, built: list[str]
) -> None:
    make, shape = NETWORKS[name]
    network, draw = make().to(place(device)), random.Random(0)
    sizes = draw.sample(range(17, 65), 30)
    counts = []
    for size in sizes:
        x, target = torch.randn(size, *shape), torch.randint(5, (size,))
        step(network, x.to(place(device)), target.to(place(device)))
        torch.ocl.synchronize(place(device))
        counts.append(len(built))
    # the sizes up to FIXED have kernels of their own, the next one brings those for all others
    assert counts[FIXED] == counts[-1], counts


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_normalisations_of_other_sizes_share_programs(
    device: Any, layout: Any, built: list[str]
) -> None:
    counts = []
    for shape in ((2, 16, 8, 8), (3, 32, 5, 7), (5, 48, 4, 9)):
        x = torch.randn(shape).to(place(device), memory_format=layout)
        norm = nn.BatchNorm2d(shape[1]).to(place(device))
        (norm(x.requires_grad_()) * x).sum().backward()
        norm.eval()(x.detach())
        torch.ocl.synchronize(place(device))
        counts.append(sum("batch_norm" in text for text in built))
    assert counts[0] == counts[-1] > 0, counts


class FakeChooser:
    """Chooses nothing but notes what it is asked for."""

    def __init__(self, device: Any) -> None:
        self.limits = device.limits
        self.measured: set[Problem] = set()
        self.asked: list[Problem] = []

    def was_measured(self, problem: Problem) -> bool:
        return problem in self.measured

    def choose(self, problem: Problem) -> Any:
        self.asked.append(problem)
        return object()


def forms(varying: Varying, problems: list[Problem]) -> list[frozenset[str]]:
    return [varying.form(problem).free for problem in problems]


@pytest.fixture
def watched(device: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeChooser, Varying]:
    monkeypatch.setattr(varying, "has_model", lambda *_: False)
    chooser: Any = FakeChooser(device)
    return chooser, Varying(chooser)


def test_a_size_is_free_from_its_fifth_value_on(watched: tuple[FakeChooser, Varying]) -> None:
    chooser, met = watched
    rows: list[Problem] = [GemmProblem(m, 8, 9) for m in (1, 2, 3, 4, 4, 3, 5, 1)]
    assert forms(met, rows) == [frozenset()] * 6 + [frozenset("m")] * 2
    batches: list[Problem] = [ConvProblem(n, 2, 8, 8, 3, 3, 3) for n in (1, 2, 3, 4, 5)]
    assert forms(met, batches) == [frozenset()] * 4 + [frozenset(("batch",))]
    layers: list[Problem] = [GemmProblem(64, 8 * n, 8 * n + 8) for n in range(1, 9)]
    assert forms(met, layers) == [frozenset()] * 8  # layers of a network differ in two sizes
    heads: list[Problem] = [GemmProblem(n, n, 8, batch=12 * (n % 3 + 1)) for n in range(4, 10)]
    assert forms(met, heads)[-1] == {"batch", "m", "n"}
    chooser.measured.add(rows[0])
    assert met.form(rows[0]) is rows[0]


def test_variants_are_chosen_once_for_a_range_of_sizes(
    watched: tuple[FakeChooser, Varying],
) -> None:
    chooser, met = watched
    problems: list[Problem] = [GemmProblem(m, 8, 9) for m in range(1, 300)]
    assert forms(met, problems)[-1] == {"m"}
    free = frozenset("m")
    assert chooser.asked == [GemmProblem(m, 8, 9, free=free) for m in (16, 64, 256, 1024)]
    ends = [typical(GemmProblem(m, 3, 5, free=free)).m for m in (1, 2, 4, 5, 16, 17)]
    assert ends == [1, 4, 4, 16, 16, 64]


def test_of_many_values_no_kernel_of_its_own_pays(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernels for all sizes are slow, some values have their own, but not each one."""

    class SlowIfFree(FakeChooser):
        def choose(self, problem: Problem) -> Any:
            return SimpleNamespace(cost=10.0 if problem.free else 1.0, ms=None)

    monkeypatch.setattr(varying, "has_model", lambda *_: True)
    chooser: Any = SlowIfFree(device)
    chooser.limits = Limits("gpu")
    rows: list[Problem] = [GemmProblem(m, 8, 9) for m in range(1, MANY + 3)]
    assert forms(Varying(chooser), rows) == [frozenset()] * MANY + [frozenset("m")] * 2


def test_texts_alike_are_one_from_the_fifth_on() -> None:
    alike = Forms()
    assert [alike.vary("chain", f"chain of {n}") for n in (1, 2, 2, 3, 4, 1)] == [False] * 6
    assert alike.vary("chain", "chain of 5") and alike.vary("chain", "chain of 1")
    assert not alike.vary("another", "another of 5")
    for n in range(2 * MOST_SHAPES):
        alike.vary(n, n)
    assert len(alike._met) == MOST_SHAPES


@pytest.mark.parametrize(
    "problem",
    [GemmProblem(60, 48, 36), ConvProblem(3, 8, 9, 9, 8, 3, 3, pad_h=1, pad_w=1)],
)
@pytest.mark.parametrize("free", [False, True])
def test_a_later_process_renders_no_text(
    problem: Problem, free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = "m" if problem.op == "gemm" else "batch"
    problem = replace(problem, free=frozenset({size} if free else ()))
    family = "gemm_register" if problem.op == "gemm" else "conv_gemm"
    variant = Variant(family, FAMILIES[family].DEFAULT)
    rendered = variant.plan(typical(problem))
    kept = Remembered(Binaries(tmp_path / "choices", MIB))
    monkeypatch.setattr(remembered, "IS_ON", True)
    monkeypatch.setattr("oclgen.BEGUN", time.time() + 60)
    monkeypatch.setattr(varying, "of_user", lambda: kept)
    remembered._code.cache_clear()
    varying._texts.cache_clear()
    first = varying.plan(variant, problem)
    assert [one.source for one in first.launches] == [one.source for one in rendered.launches]
    kept.write()
    varying._texts.cache_clear()
    monkeypatch.setattr("oclgen.plan.LazyText.__str__", lambda _: pytest.fail("it is rendered"))
    assert varying.plan(variant, problem) == first
    varying._texts.cache_clear()


def test_equal_texts_of_several_ranges_are_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    read = SimpleNamespace(get=lambda *_: ["".join(("one ", "text"))])
    monkeypatch.setattr(varying, "of_user", lambda: read)
    variant = Variant("gemm_register", FAMILIES["gemm_register"].DEFAULT)
    ranges = [GemmProblem(m, 48, 36, free=frozenset("m")) for m in (16, 64, 256)]
    varying._texts.cache_clear()
    texts = [text for problem in ranges for text in varying._texts(variant, problem)]
    varying._texts.cache_clear()
    assert len(texts) == 3 and all(text is texts[0] for text in texts)


def test_what_is_watched_is_bounded(watched: tuple[FakeChooser, Varying]) -> None:
    _, met = watched
    for n in range(1, 2 * MOST_SHAPES):
        met.form(ConvProblem(n % 8 + 1, n, 8, 8, 3, 3, 3))
    assert len(met._met) == MOST_SHAPES
    assert len(met._choices) <= MOST_SHAPES
    rows: list[Problem] = [GemmProblem(m, 8, 9) for m in range(1, 3 * MANY)]
    forms(met, rows)
    assert max(len(one.values) for one in met._met.values()) == MANY + 1


def test_a_size_that_was_tuned_keeps_its_kernels(device: Any) -> None:
    problem, family = GemmProblem(40, 9, 7), FAMILIES["gemm_register"]
    variant = Variant(family.NAME, family.DEFAULT)
    open_store().of(device.info).record(problem, variant, Measurement((0.001,), error=0.0))
    torch.ocl.reload_tuned()
    b = torch.randn(7, 9).to(place(device))
    for m in range(30, 50):
        torch.mm(torch.randn(m, 7).to(place(device)), b)
    calls = {call.problem.key(): call for call in tuned.prepared_calls()}
    assert calls[problem.key()].choice.rung == "exact"
    assert not calls[problem.key()].choice.problem.free
    assert calls[GemmProblem(49, 9, 7).key()].choice.problem.free == {"m"}


def test_what_plans_a_chain_is_freed_at_once(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[weakref.ref[Window]] = []
    plain = Window.run

    def noted(window: Window) -> None:
        planned.append(weakref.ref(window))
        plain(window)

    monkeypatch.setattr(Window, "run", noted)
    x = torch.arange(35.0).reshape(5, 7).to(place(device))
    gc.collect()
    gc.disable()
    try:
        with torch.no_grad():
            wide = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        torch.ocl.synchronize(place(device))
        assert planned and not any(window() for window in planned)
    finally:
        gc.enable()
    assert relative(wide.cpu(), x.cpu() * x.cpu().pow(2).mean(-1, keepdim=True).rsqrt()) < 1e-5


def test_new_sizes_make_no_classes(device: Any) -> None:
    """As arrays of ctypes do, one for each length, which only a garbage collection frees."""
    a, b = (torch.ones(64, 64).to(place(device)) for _ in range(2))
    (a[:3] @ b).cpu()
    before = {*ctypes.Array.__subclasses__()}
    for rows in range(4, 24):
        (a[:rows] @ b).cpu()
    assert not {*ctypes.Array.__subclasses__()} - before
