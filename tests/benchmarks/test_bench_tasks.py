"""What is measured: every layer of the networks, the right call on each side, right peers."""

from __future__ import annotations

from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

from benchmarks.comparison.ours import Ours, Wishes
from benchmarks.peers import torch_peer
from benchmarks.peers.clblast import Clblast, candidates
from benchmarks.tasks import classifiers, conv, gemm, networks, pointwise
from benchmarks.tasks.draw import Draw
from oclgen.keys import parse_key
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.problem import DIRECTIONS, ConvProblem, GemmProblem

NONE = Draw(0, 0)
GPU = Limits(kind="gpu", instructions=frozenset({"mma"}))
SHAPES = Path(__file__).parents[2] / "benchmarks/data/shapes/networks_batch64.jsonl"
SMALL_CONV = ConvProblem(2, 4, 9, 7, 6, 3, 3, 2, 2, 1, 1, groups=2)


TORCHVISION = pytest.mark.skipif(find_spec("torchvision") is None, reason="no torchvision")


def convolutions(name: str) -> set[ConvProblem]:
    """The distinct convolutions of a network of torchvision, at batch 1."""
    found = set()

    def notice(module: nn.Conv2d, inputs: tuple[Tensor], _: Tensor) -> None:
        sizes = [*inputs[0].shape, module.out_channels, *module.kernel_size]
        geometry = [*module.stride, *module.padding, *module.dilation]
        numbers: list[Any] = [*sizes, *geometry, module.groups]
        found.add(ConvProblem(*numbers))

    with torch.device("meta"):
        network = classifiers.made(name, "cpu").eval()
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                module.register_forward_hook(notice)
        network(torch.empty(1, 3, classifiers.SIZE, classifiers.SIZE))
    return found


@TORCHVISION
@pytest.mark.parametrize("name", ["resnet50", "vgg16", "mobilenet_v2", "alexnet"])
def test_all_layers_of_a_network_are_measured_and_no_others(name: str) -> None:
    assert set(conv.LAYERS[name]) == convolutions(name)


def test_a_gpu_measures_every_dtype_and_direction_of_what_networks_ask_for() -> None:
    keys = {f"conv:{task.key}" for task in conv.tasks(GPU, NONE)}
    asked = SHAPES.read_text()
    assert len(keys) > 180
    assert sum(key in asked for key in keys) > 150
    squares = [task for task in gemm.tasks(GPU, NONE) if task.is_in(["squares"])]
    assert {task.dtype for task in squares} == set(gemm.MATRIX_DTYPES)
    problems = [parse_key(task.what["problem"]) for task in squares]
    assert {one.m for one in problems if isinstance(one, GemmProblem)} >= {256, 8192}
    assert {task.dtype for task in gemm.tasks(Limits(kind="cpu"), NONE)} == {"fp32"}


def test_networks_run_in_half_precision_where_there_are_matrix_units() -> None:
    assert {task.dtype for task in networks.tasks(Limits(kind="cpu"), NONE)} == {"fp32"}
    half = [task for task in networks.tasks(GPU, NONE) if task.dtype == "bf16"]
    assert [task.groups for task in half] == [("networks eval bf16",), ("networks train bf16",)]
    x = torch.ones(2, 2)
    for dtype, stored in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with networks.precision("cpu", dtype):
            assert (x @ x).dtype is stored


PROBLEMS: list[GemmProblem | ConvProblem] = [
    GemmProblem(5, 6, 7, trans_a=True),
    GemmProblem(5, 6, 7, trans_b=True, batch=3),
    *(replace(SMALL_CONV, direction=direction) for direction in DIRECTIONS),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key())
def test_the_peer_computes_what_the_problem_says(problem: GemmProblem | ConvProblem) -> None:
    out = torch_peer.problem_call(problem, "cpu")()
    results: Any = [out] if isinstance(out, Tensor) else out
    (tensor,) = [one for one in results if one is not None]
    assert tensor.numel() == prod(problem.buffers[problem.output])
    assert tuple(tensor.shape) == problem.buffers[problem.output][-tensor.dim() :]


def normalised(x: Tensor) -> Tensor:
    """Images with mean 0 and variance 1 in every channel."""
    images = x.view(-1, pointwise.CHANNELS, pointwise.IMAGE**2)
    centred = images - images.mean((0, 2), keepdim=True)
    return centred / (centred.square().mean((0, 2), keepdim=True) + 1e-5).sqrt()


COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "x + x": lambda x: 2 * x,
    "relu": lambda x: x.clamp_min(0),
    "batch norm, eval": lambda x: x / (1 + 1e-5) ** 0.5,
    "batch norm, train": normalised,
    "max pool 2x2": lambda x: x.view(-1, pointwise.IMAGE // 2, 2, pointwise.IMAGE // 2, 2).amax(
        (2, 4)
    ),
    "softmax of rows": lambda x: (e := x.view(-1, pointwise.ROW).exp()) / e.sum(1, keepdim=True),
    "sum": lambda x: x.double().sum().float(),  # of 2^19 numbers
}


@pytest.mark.parametrize("name", sorted(pointwise.OPERATORS.keys() - {"Adam step"}))
def test_operators_compute_what_they_are_called_and_move_the_bytes_that_they_say(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2**19)
    with torch.no_grad():
        out: Any = pointwise.OPERATORS[name].call(x)()
    want = COMPUTED[name](x).flatten()
    torch.testing.assert_close(out.flatten(), want, rtol=1e-5, atol=1e-5)
    moved = pointwise.FLOAT * (x.numel() + out.numel())
    assert pointwise.OPERATORS[name].bytes * x.numel() == pytest.approx(moved, rel=1e-4)


def test_a_step_of_adam_moves_all_parameters_by_its_rate() -> None:
    x = torch.zeros(2**10)
    with torch.no_grad():
        step = pointwise.OPERATORS["Adam step"].call(x)
        step()
    torch.testing.assert_close(x, torch.full_like(x, -1e-4), rtol=1e-3, atol=0.0)


def test_a_call_runs_without_gradients_on_the_device_asked_for() -> None:
    out = pointwise.call("relu", 2**10, "cpu")()
    assert isinstance(out, Tensor)
    assert (out.shape, out.device.type, out.requires_grad) == ((2**10,), "cpu", False)


@TORCHVISION
def test_operations_are_of_the_direct_algorithm() -> None:
    layers = sum(layer.flops for layer in conv.LAYERS["alexnet"])
    linear = 2 * (9216 * 4096 + 4096 * 4096 + 4096 * 1000)
    forward = networks.operations("alexnet", "eval", 1)
    assert forward == layers + linear
    assert networks.operations("alexnet", "train", 2) == 6 * forward


@pytest.mark.parametrize("trials", [0, 1])
def test_ours_verifies_small_problems_and_times_them(device: Device, trials: int) -> None:
    side = Ours(device, Wishes(str(device.index), trials))
    for problem in (GemmProblem(64, 48, 32), ConvProblem(1, 4, 8, 8, 8, 3, 3, pad_h=1, pad_w=1)):
        prepared = side.prepare(problem.op, {"problem": problem.key()})
        assert prepared.notes["error"] < 1e-5
        assert prepared.notes["config"].startswith("{")
        times = prepared.contestants["ours"]()
        assert times
        assert min(times) > 0


def test_a_gpu_builds_ahead_what_it_will_measure(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "limits", replace(device.limits, kind="gpu"))
    problem = GemmProblem(33, 17, 65)
    side = Ours(device, Wishes(str(device.index)))
    device.programs.forget()
    side.prepare("ahead", {"problems": [problem.key()]})
    side.finish_builds()
    monkeypatch.setattr(device.programs, "_compile", None)
    assert side.prepare("gemm", {"problem": problem.key()}).notes["error"] < 1e-5


@pytest.mark.skipif(not find_library("clblast"), reason="CLBlast is not installed")
@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(24, 40, 16),
        GemmProblem(24, 40, 16, trans_a=True),
        GemmProblem(24, 40, 16, trans_b=True),
        GemmProblem(24, 40, 16, batch=2, trans_a=True, trans_b=True),
    ],
    ids=lambda problem: problem.key(),
)
def test_clblast_computes_the_same_product(device: Device, problem: GemmProblem) -> None:
    if problem.batch > 1 and device.index > 0:
        pytest.skip("one device is enough: the programs of batches take long to compile")
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(problem.buffers[r], np.float32) for r in "ab")
    like = np.zeros(problem.buffers["c"], np.float32)
    buffers = {"a": device.upload(a), "b": device.upload(b), "c": device.upload(like)}
    library = Clblast.found(device, "", 0)
    assert library
    (turn,) = library.contestant(problem, buffers).values()
    assert min(turn()) > 0
    want = (a.swapaxes(1, 2) if problem.trans_a else a) @ (
        b.swapaxes(1, 2) if problem.trans_b else b
    )
    np.testing.assert_allclose(device.download(buffers["c"], like), want, rtol=1e-4, atol=1e-4)


def test_candidates_for_clblast_fit_the_device() -> None:
    limits = Limits(max_work_group=256, local_bytes=32 * 1024)
    for p in islice(candidates(limits), 20):
        assert p["MDIMC"] * p["NDIMC"] <= 256
        assert p["MWG"] % (p["MDIMC"] * p["VWM"]) == 0
