"""Recurrent layers that walk their steps in one launch, against the CPU, and when they do."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from ocl_backend.ops.sequence.recurrent_choice import is_faster, is_stepped
from ocl_backend.ops.sequence.recurrent_kernels import Product, rows_of_group
from ocl_backend.ops.sequence.recurrent_steps import Block, rows_of_block
from oclgen.limits import KIB, Limits
from tests import torch_processes
from tests.ocl_backend.cpu_twin import place, relative
from tests.ocl_backend.recurrent_cases import CASES, flat, launches, worst
from tests.oclgen.test_oclgrind import RUNTIME, under_oclgrind

PROFILE = Path(__file__).with_name("wide_gpu.toml")
TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
GPU = Limits("gpu", 48 * KIB, 1024, (1024, 1024, 64), compute_units=132)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_agree(device: Any, name: str, dtype: Any) -> None:
    torch.ocl.reset_fallbacks()
    assert worst(name, place(device), dtype) <= TOLERANCES[dtype]
    assert torch.ocl.fallbacks() == {}


@pytest.mark.parametrize("name", ["lstm of two layers", "gru, packed"])
def test_a_direction_is_one_launch(device: Any, name: str) -> None:
    kernels = launches(name, place(device))
    directions = {"lstm of two layers": 4, "gru, packed": 2}[name]
    for way in ("forward", "backward"):
        assert sum(kernel == f"recurrent_{way}" for kernel in kernels) == directions, kernels


def test_a_gpus_kernels_agree(any_device: None) -> None:
    done = torch_processes.run_module(
        "tests.ocl_backend.recurrent_cases", OCLGEN_DEVICE_PROFILE=str(PROFILE)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, (walks, single, half) in json.loads(done.stdout).items():
        assert walks, name
        assert single <= TOLERANCES[torch.float32], name
        assert half <= TOLERANCES[torch.bfloat16], name


@pytest.mark.skipif(not RUNTIME.exists(), reason="oclgrind is not installed")
def test_a_gpus_kernels_neither_race_nor_leave_their_buffers(tmp_path: Path) -> None:
    cases = "tests.ocl_backend.recurrent_cases", "lstm, packed"
    text = under_oclgrind(tmp_path, "-m", *cases, OCLGEN_DEVICE_PROFILE=str(PROFILE))
    assert len(json.loads(text.splitlines()[-1])) == 2, text
    assert "race" not in text and "Invalid" not in text, text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_gradients_of_gradients(device: Any, kind: Any, packed: bool) -> None:
    torch.manual_seed(0)
    network, x = kind(4, 5, num_layers=2, bidirectional=True), torch.randn(6, 3, 4)

    def twice(network: Any, x: Tensor) -> list[Tensor]:
        leaves = [x.requires_grad_(), *network.parameters()]
        given = pack_padded_sequence(x, [6, 4, 2]) if packed else x
        loss = sum((part**2).sum() for part in flat(network(given)))
        grads = torch.autograd.grad(loss, leaves, create_graph=True)
        return [*grads, *torch.autograd.grad(sum((g**2).sum() for g in grads), leaves)]

    ours = twice(deepcopy(network).to(place(device)), x.to(place(device)))
    theirs = twice(network, x)
    assert max(relative(a, b) for a, b in zip(ours, theirs, strict=True)) <= 2e-6


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_the_last_state_alone_learns(device: Any, kind: Any) -> None:
    """No gradient reaches the sequence, and none is wanted of the weights."""
    torch.manual_seed(0)
    network: Any = kind(4, 20)
    network.requires_grad_(False)
    x = torch.randn(6, 3, 4)

    def learn(network: Any, x: Tensor) -> Tensor:
        (flat(network(x.requires_grad_()))[1] ** 2).sum().backward()
        assert x.grad is not None
        return x.grad

    ours = learn(deepcopy(network).to(place(device)), x.to(place(device)))
    assert relative(ours, learn(network, x)) <= 2e-6


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_a_program_may_overwrite_the_sequence(device: Any, kind: Any) -> None:
    torch.manual_seed(0)
    network, x = kind(4, 9), torch.randn(6, 3, 4)
    twin = deepcopy(network).to(place(device))
    twin(x.to(place(device)))[0].relu_().sum().backward()
    network(x)[0].relu_().sum().backward()
    for ours, theirs in zip(twin.parameters(), network.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert relative(ours.grad, theirs.grad) <= 2e-6


def test_changed_weights_are_read_anew(device: Any) -> None:
    """The order in which weights are read is kept from call to call."""
    torch.manual_seed(0)
    network, x = nn.LSTM(4, 24), torch.randn(6, 3, 4)
    twin, home = deepcopy(network).to(place(device)), x.to(place(device))
    with torch.no_grad():
        for _ in range(4):
            assert relative(twin(home)[0], network(x)[0]) <= 2e-6
        for layer in (network, twin):
            layer.get_parameter("weight_hh_l0").mul_(1.5)
        assert relative(twin(home)[0], network(x)[0]) <= 2e-6


def test_a_compiled_network_learns(device: Any) -> None:
    """The compiler breaks its graph at such a network, and must not trace what serves it."""
    torch.manual_seed(0)
    network, x = nn.GRU(4, 9), torch.randn(6, 3, 4)
    twin = deepcopy(network).to(place(device))
    torch.compile(twin)(x.to(place(device)))[0].sum().backward()
    network(x)[0].sum().backward()
    for ours, theirs in zip(twin.parameters(), network.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert relative(ours.grad, theirs.grad) <= 2e-6


def test_long_steps_are_left_to_products() -> None:
    """Sizes at which kernels without matrix units would be slower."""
    half = torch.bfloat16
    assert is_faster(GPU, "lstm", half, 1, 1500, False)
    assert not is_faster(GPU, "lstm", half, 256, 1024, False)
    assert not is_faster(GPU, "lstm", half, 256, 1024, True)
    processor = Limits("cpu", 256 * KIB, 8192, native_float_width=16, compute_units=2)
    assert is_faster(processor, "lstm", torch.float32, 64, 256, False)
    dots = Limits("cpu", 256 * KIB, 8192, native_float_width=16, compute_units=2,
                  instructions=frozenset({"vdpbf16ps"}))  # fmt: skip
    assert is_faster(dots, "lstm", half, 1, 256, False)
    assert not is_faster(dots, "lstm", half, 128, 512, False)


def test_a_gpus_steps_are_launches_where_one_unit_has_too_much_to_read() -> None:
    sizes = 4, 2
    assert is_stepped(GPU, "lstm", *sizes, 490)
    assert not is_stepped(GPU, "lstm", *sizes, 128)
    assert not is_stepped(Limits("cpu", 256 * KIB, 8192), "lstm", *sizes, 490)
    # a walk has a work-item for each unit, and a sequence of launches an end
    assert is_faster(GPU, "gru", torch.float32, 1, 1500, True, is_long=False)
    assert not is_faster(GPU, "gru", torch.float32, 1, 1500, True, is_long=True)


@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize("hidden", [1, 3, 67, 490, 2000])
def test_a_block_has_all_units_of_its_rows(hidden: int, is_backward: bool) -> None:
    for batch in (1, 5, 64, 1000):
        for limits in (GPU, Limits("gpu", 32 * KIB, 64, compute_units=4)):
            terms = 4 * hidden if is_backward else hidden
            tile = rows_of_block(limits, batch, terms)
            if not tile:
                continue
            block = Block.of(limits, 4, hidden, batch, is_backward)
            assert block.across * block.splits == block.items <= min(256, limits.max_work_group)
            assert block.units * block.tile <= block.items
            assert 4 * block.tile * (terms + block.items) <= limits.most_local_bytes
            assert block.columns == (hidden if is_backward else 4 * hidden)
            assert block.weight_blocks.stride >= block.columns


@pytest.mark.parametrize("gates", [1, 3, 4])
@pytest.mark.parametrize("hidden", [1, 2, 23, 130, 251, 490, 1021, 1024])
def test_a_walk_has_work_items_for_all_columns_and_units(hidden: int, gates: int) -> None:
    for columns, terms in ((gates * hidden, hidden), (hidden, gates * hidden)):
        product = Product.of(columns, terms, 1, GPU)
        assert product.lanes * product.width * product.blocks >= columns
        assert hidden <= product.lanes * product.splits <= GPU.max_work_group
        assert product.splits * product.part >= terms
        assert product.part % product.terms_at_once == 0
        assert product.across % product.width == 0  # rows of weights are aligned


def test_rows_of_a_group_fit_into_local_memory() -> None:
    assert rows_of_group(GPU, "lstm", 1000, 128) > rows_of_group(GPU, "lstm", 1000, 750) > 0
    assert rows_of_group(Limits("gpu", 16 * KIB, 256), "lstm", 4, 512) == 0
    assert rows_of_group(GPU, "gru", 100, 64) == 1  # every compute unit has a row
