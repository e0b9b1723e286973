"""What a seed draws is the same on every machine, can be computed, and is spread widely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from benchmarks.tasks import attention, classifiers, conv, gemm, networks, pointwise
from benchmarks.tasks.draw import Draw, distinct, log_uniform
from benchmarks.tasks.task import merged, task_of
from oclgen.keys import parse_key
from oclgen.limits import Limits
from oclgen.problem import DIRECTIONS, GemmProblem

KINDS = ("cpu", "gpu", "other")
DRAWS: dict[str, Callable[[int, int, str], list[Any]]] = {
    "gemm": gemm.drawn,
    "conv": conv.drawn,
    "attention": attention.drawn,
    "networks": networks.drawn,
    "pointwise": pointwise.drawn,
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_draws_the_same_and_another_seed_others(
    draw: Callable[[int, int, str], list[Any]], kind: str
) -> None:
    first = draw(20261122, 12, kind)
    assert len(set(first)) == 12
    assert draw(20261122, 12, kind) == first
    assert draw(20261122, 5, kind) == first[:5]
    assert draw(20261122, 0, kind) == []
    assert len(set(first) & set(draw(20261123, 12, kind))) < 6


def test_a_seed_draws_the_same_on_every_machine() -> None:
    assert [(p.m, p.n, p.k, p.batch) for p in gemm.drawn(1, 3, "cpu")] == [
        (1, 1545, 36, 1),
        (1, 276, 73, 3),
        (1, 148, 147, 1),
    ]
    assert networks.drawn(1, 2, "cpu") == [
        ("timm.gmlp_ti16_224", 1, "fp32"),
        ("timm.cs3sedarknet_l", 1, "fp32"),
    ]


def test_products_are_small_and_large_even_and_odd_in_all_transposes() -> None:
    products = gemm.drawn(7, 300, "cpu")
    for product in products:
        assert parse_key(product.key()) == product
        assert product.flops <= 2 * 2048**3
    sizes = [size for p in products for size in (p.n, p.k)]
    assert min(sizes) < 24
    assert max(sizes) > 1500
    rows = [p.m for p in products]
    assert min(rows) < 4
    assert max(rows) > 1000
    odd = sum(any(size % 2 for size in (p.m, p.n, p.k)) for p in products)
    whole = sum(not any(size % 8 for size in (p.m, p.n, p.k)) for p in products)
    assert 60 < odd < 240
    assert 60 < whole < 240
    assert {(p.trans_a, p.trans_b) for p in products} == set(gemm.TRANSPOSES)
    assert 20 < sum(p.batch > 1 for p in products) < 150
    chosen = {one for _, group in gemm.groups("cpu").values() for one in group}
    assert len(chosen & set(products)) <= 1


def test_layers_are_of_all_kinds_and_exist_in_all_directions() -> None:
    layers = conv.drawn(7, 300, "gpu")
    for layer in layers:
        for direction in DIRECTIONS:
            problem = replace(layer, direction=direction)
            assert parse_key(problem.key()) == problem
        assert layer.flops <= conv.MOST_FLOPS["gpu"]
        assert layer.bytes <= conv.MOST_FLOPS["gpu"] / conv.LEAST_INTENSITY
    kernels = Counter((layer.kernel_h, layer.kernel_w) for layer in layers)
    assert kernels.keys() == conv.KERNELS.keys()
    assert kernels[3, 3] > kernels[5, 5]
    assert {layer.stride_h for layer in layers} == {1, 2}
    assert {layer.dilation_h for layer in layers} == {1, 2}
    depthwise = [one for one in layers if 1 < one.groups == one.in_channels == one.out_channels]
    grouped = [one for one in layers if 1 < one.groups < one.in_channels]
    assert len(depthwise) > 20
    assert len(grouped) > 5
    assert any(layer.in_channels == 3 for layer in layers)
    assert any(layer.in_channels % 2 for layer in layers if layer.in_channels > 3)
    assert len({layer.batch for layer in layers}) > 10
    assert {layer.height for layer in layers} == set(conv.IMAGES)
    assert max(layer.in_channels * layer.height for layer in layers) <= conv.MOST_ACROSS


@pytest.mark.parametrize("kind", KINDS)
def test_networks_and_operators_fit_the_device(kind: str) -> None:
    drawn = networks.drawn(3, 60, kind)
    assert {1} < {one.batch for one in drawn} <= set(range(1, networks.BATCH[kind] + 1))
    assert len({one.name for one in drawn}) > 40
    assert {one.dtype for one in drawn} == {"fp32", "bf16"}
    assert {one.name.startswith(classifiers.TIMM) for one in drawn} == {True, False}
    table = classifiers.classifiers()
    assert max(table[one.name].gmacs for one in drawn) <= networks.MOST_GMACS[kind]
    calls = pointwise.drawn(3, 20, kind)
    assert {name for name, _ in calls} <= pointwise.OPERATORS.keys()
    assert max(floats for _, floats in calls) <= pointwise.FLOATS[kind]


@pytest.mark.parametrize(("library", "least"), [("torchvision", 70), ("timm", 1000)])
def test_every_network_that_may_be_drawn_is_one_of_its_library(library: str, least: int) -> None:
    pytest.importorskip("torch")
    if find_spec("torchvision") is None or find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    models = classifiers.models_beside("cpu")
    known = {*models.list_models(module=models)}
    if library == "timm":
        known = {classifiers.TIMM + name for name in import_module("timm").list_models()}
    names = {
        name
        for name in classifiers.classifiers()
        if name.startswith(classifiers.TIMM) == (library == "timm")
    }
    assert names <= known
    assert len(names) > least


def test_tasks_carry_the_seed_and_are_in_groups_called_drawn() -> None:
    limits, draw = Limits(kind="cpu"), Draw(5, 3)
    made = {
        "gemm": list(gemm.tasks(limits, draw)),
        "conv": list(conv.tasks(limits, draw, directions=("fwd",))),
        "attention": list(attention.tasks(limits, draw)),
        "networks": list(networks.tasks(limits, draw)),
        "pointwise": list(pointwise.tasks(limits, draw)),
    }
    for kind, tasks in made.items():
        drawn = [task for task in tasks if task.seed is not None]
        assert {task.seed for task in drawn} == {5}
        assert [task.is_in(["drawn"]) for task in tasks] == [task in drawn for task in tasks]
        # networks and attention have two modes, attention also two dtypes
        assert len(drawn) == {"networks": 6, "attention": 12}.get(kind, 3)
    assert all(task.seed is None for task in gemm.tasks(limits, Draw(5, 0)))
    assert len([t for t in gemm.tasks(limits, Draw(5)) if t.seed]) == gemm.DRAWN


def test_the_batch_that_was_asked_for_holds_for_drawn_layers_too() -> None:
    tasks = conv.tasks(Limits(kind="cpu"), Draw(5, 8), batch=3)
    assert all(task.what["problem"].startswith("conv:3,") for task in tasks if task.seed)


def test_a_distribution_that_runs_dry_says_so() -> None:
    with pytest.raises(ValueError, match="gave 2 coins shapes, not 3: ask for fewer"):
        distinct("coins", 0, 3, lambda random: random.choice((0, 1)))


def test_log_uniform_integers_reach_both_ends() -> None:
    drawn = distinct("sizes", 0, 8, lambda random: log_uniform(random, 1, 8))
    assert set(drawn) == set(range(1, 9))


def test_a_product_that_was_chosen_and_drawn_counts_in_both_groups() -> None:
    product = GemmProblem(256, 256, 256)
    (task,) = merged([task_of(product, "squares fp32", 0), task_of(product, "drawn x", 0, 5)])
    assert task.groups == ("squares fp32", "drawn x")
    assert task.seed == 5
