"""Language models and networks of images: the same weights on both sides, results compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.comparison.ours import Ours, Wishes
from benchmarks.comparison.suite import BOUNDS, compared
from benchmarks.peers import torch_peer
from benchmarks.report.rows import Row
from benchmarks.report.text import line
from benchmarks.tasks import images, language, steps
from benchmarks.tasks.draw import Draw
from benchmarks.tasks.language import Case, Decoder
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.roofline import Roofs

GPT2 = Decoder("gpt2", 1, 32, 2, 2, 64, 96)
LLAMA = Decoder("llama", 1, 32, 4, 2, 48, 96)
CASES = {
    "prefill": Case(GPT2, "prefill", 2, 9),
    "train": Case(GPT2, "train", 2, 9),
    "autocast": Case(GPT2, "train", 2, 9, "bf16"),
    "bf16": Case(LLAMA, "prefill", 1, 9, "bf16"),
    "dynamic": Case(LLAMA, "dynamic", 1, 5, "bf16", 4),
    "static": Case(LLAMA, "static", 1, 5, "bf16", 4),
}


@pytest.mark.parametrize("name", CASES)
def test_both_sides_of_a_language_model_compute_the_same(device: Device, name: str) -> None:
    if device.index and name != "train":
        pytest.skip("devices besides the first run one case")
    case = CASES[name]
    ours = Ours(device, Wishes(str(device.index))).prepare("language", {"case": case})
    theirs = torch_peer.prepare("language", {"case": case}, "cpu")
    row = Row("language", case.key, ("group",), case.dtype, tokens=ours.notes["tokens"])
    row = compared(row, ours.notes["outcome"], theirs.notes["outcome"])
    assert not row.reason
    assert row.difference is not None and 0 < row.difference <= BOUNDS[case.dtype]
    assert ours.notes["fallbacks"] == 0
    assert min(ours.contestants["ours"]()) > 0


def test_a_network_of_images_computes_the_same_on_both_sides(device: Device) -> None:
    if device.index:
        pytest.skip("the networks are the same on every device")
    pytest.importorskip("diffusers")
    case = images.Case("dit", 1, 8, (2, 16, 1))
    ours = Ours(device, Wishes(str(device.index))).prepare("images", {"case": case})
    theirs = torch_peer.prepare("images", {"case": case}, "cpu")
    row = Row("images", case.key, ("group",))
    row = compared(row, ours.notes["outcome"], theirs.notes["outcome"])
    assert not row.reason
    assert ours.notes["fallbacks"] == 0


def test_results_that_differ_make_a_row_wrong() -> None:
    row, one = Row("language", "x", ("group",), ours_ms=1.0), np.array([1.0, -4.0], np.float32)
    near = compared(row, [one], [one * (1 + 1e-4)])
    assert not near.is_wrong
    assert near.difference == pytest.approx(1e-4, rel=0.1)
    assert compared(row, [one, one], [one, one + 1]).is_wrong
    assert compared(row, [one * np.nan], [one]).is_wrong
    assert not compared(row, None, [one]).is_wrong
    assert compared(replace(row, dtype="bf16"), [one], [one * 1.05]).difference is not None


def test_a_row_says_tokens_difference_and_fallbacks() -> None:
    row = Row("language", "x", ("group",), ours_ms=4.0, tokens=32, difference=2e-3, fallbacks=3)
    text = line(row, Roofs(1.0, 1.0, {}))
    assert "8000 tokens/s" in text
    assert "apart 2e-03  fallbacks 3" in text
    assert row.as_json(Roofs(1.0, 1.0, {}))["tokens_per_s"] == {"ours": 8000.0}


def test_weights_are_equal_in_every_making_and_differ_within_a_network() -> None:
    def make() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.LayerNorm(200),
                                   torch.nn.Linear(200, 300))  # fmt: skip

    one, other = ([*steps.seeded(make, torch.float32).parameters()] for _ in range(2))
    assert all(map(torch.equal, one, other))
    first, _, scale, _, last, _ = (parameter.detach() for parameter in one)
    assert not torch.equal(first.flatten(), last.flatten())
    assert float(first.std()) == pytest.approx(300**-0.5, rel=0.02)
    assert float(scale.min()) == 1.0
    assert torch.get_default_dtype() is torch.float32


def test_a_seed_draws_decoders_and_batches_within_bounds() -> None:
    for size, most in language.MOST_WEIGHTS.items():
        for decoder, batch, tokens in language.drawn(7, 3, size):
            assert most / 2 <= language.weights(decoder) <= most
            assert batch * tokens <= language.MOST_TOKENS[size]
    tasks = list(language.tasks("small", Draw(7, 1)))
    assert {task.what["case"].mode for task in tasks if task.seed == 7} >= {"train", "dynamic"}
    assert len({task.key for task in tasks}) == len(tasks)
    gpu = Limits(kind="gpu", instructions=frozenset({"mma"}))
    dtypes = {task.dtype for task in images.tasks("gpu", Draw(7, 1), gpu)}
    assert dtypes == {"fp32", "fp16", "bf16"}
    assert {task.dtype for task in images.tasks("gpu", Draw(7, 1), Limits(kind="gpu"))} == {"fp32"}
