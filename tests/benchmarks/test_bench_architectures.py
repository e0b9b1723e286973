"""Model types of transformers: what a seed draws, what is skipped, and both sides' results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.comparison import architectures as command
from benchmarks.comparison.architectures import Screen
from benchmarks.comparison.builders import build
from benchmarks.comparison.ours import Ours, Wishes
from benchmarks.comparison.sides import Side
from benchmarks.comparison.suite import BOUNDS, Clock, Suite, compared
from benchmarks.peers import torch_peer
from benchmarks.report.rows import Result, Row
from benchmarks.tasks import architectures, model_types
from benchmarks.tasks.architectures import MADE, RANGES, Case, Drawn
from benchmarks.tasks.model_types import Sizes
from benchmarks.tasks.task import Task
from oclgen.limits import DeviceInfo
from oclgen.opencl.device import Device
from oclgen.roofline import Roofs
from tests.benchmarks.fake_sides import fake, leave

TOY = Sizes(width=32, heads=2, kv_heads=1, inner=48, layers=1, words=96, tokens=9, batch=2,
            experts=4, side=32, blocks=1, share=4)  # fmt: skip
RESULT = Result(DeviceInfo("d", "v", "cpu", "a", "r", "1", "2", 1), {}, {}, Roofs(1.0, 1.0, {}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "mode", "dtype"),
    [("llama", "eval", "fp32"), ("llama", "generate", "bf16"), ("bert", "train", "fp32"),
     ("vit", "train", "bf16")],
)  # fmt: skip
def test_both_sides_of_a_drawn_type_compute_the_same(
    device: Device, name: str, mode: Any, dtype: str
) -> None:
    if device.index and name != "bert":
        pytest.skip("devices besides the first run one case")
    case = Case(Drawn(name, TOY), mode, dtype)
    ours = Ours(device, Wishes(str(device.index))).prepare("architectures", {"case": case})
    theirs = torch_peer.prepare("architectures", {"case": case}, "cpu")
    row = Row("architectures", case.key, ("group",), dtype)
    row = compared(row, ours.notes["outcome"], theirs.notes["outcome"])
    assert not row.reason
    assert row.difference is not None and 0 < row.difference <= BOUNDS[dtype]
    assert ours.notes["fallbacks"] == 0
    assert min(ours.contestants["ours"]()) > 0


def test_a_seed_draws_every_type_once_with_sizes_within_bounds() -> None:
    for size, of in RANGES.items():
        found = list(architectures.drawn(7, size))
        assert found == list(architectures.drawn(7, size))
        assert sorted(one.name for one in found) == model_types.names()
        assert [one.name for one in found] != [one.name for one in architectures.drawn(8, size)]
        for sizes in (one.sizes for one in found):
            assert sizes.width % sizes.heads == sizes.heads % sizes.kv_heads == 0
            assert of.tokens[0] <= sizes.tokens <= of.tokens[1]
            assert sizes.batch * sizes.tokens <= max(of.most, of.batch * of.tokens[0])
        assert len({one.sizes.width for one in found}) == len(of.widths)


def test_language_models_generate_in_both_dtypes() -> None:
    tasks = architectures.tasks(Drawn("llama", TOY), ("fp32", "bf16"), 3)
    modes = [(task.what["case"].mode, task.dtype) for task in tasks]
    assert modes == [(m, d) for d in ("fp32", "bf16") for m in ("eval", "train", "generate")]
    assert {task.seed for task in tasks} == {3}
    assert len({task.key for task in tasks}) == 6
    assert [
        task.what["case"].mode for task in architectures.tasks(Drawn("vit", TOY), ("fp32",), 3)
    ] == ["eval", "train"]
    counted = [architectures.costs(task.what["case"])["tokens"] for task in tasks[:3]]
    assert counted == [18, 18, 2 * MADE]


def test_sizes_reach_configs_and_their_parts() -> None:
    transformers = __import__("transformers")
    llama = model_types.config_of(transformers.LlamaConfig, TOY)
    assert (llama.hidden_size, llama.num_key_value_heads, llama.vocab_size) == (32, 1, 96)
    clip = model_types.config_of(transformers.CLIPConfig, TOY)
    assert clip.vision_config.image_size == 32
    assert clip.text_config.num_hidden_layers == 1
    wide = model_types.config_of(transformers.ResNetConfig, TOY._replace(blocks=3, share=1))
    usual = transformers.ResNetConfig()
    assert [*wide.depths] == [min(3, blocks) for blocks in usual.depths]
    assert [*wide.hidden_sizes] == [*usual.hidden_sizes]
    assert model_types.config_of(transformers.Wav2Vec2Config, TOY).layerdrop == 0.0


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    with (
        closing(Side("ours", fake, "ours", 2.0)) as ours,
        closing(Side("torch", fake, "torch", 3.0)) as theirs,
    ):
        yield ours, theirs


def test_what_the_peer_cannot_run_is_skipped_and_not_asked_of_ours(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    def task(**what: str) -> Task:
        return Task("architectures", "x", ("group",), 0, "fp32", 0.0, 0.0, what)

    suite = Suite(*sides, Clock(), alone=False)
    row = suite.measured(task(torch="raises", ours="raises"))
    assert (row.ours_ms, row.reason) == (None, "torch: ValueError: it does not fit")
    row = suite.measured(task(ours="raises"))
    assert row.reason == "ours: ValueError: it does not fit"
    assert "x: ours: ValueError" in command.tables(RESULT.with_row(row))
    draw = [Drawn(name, TOY) for name in ("a", "b", "c")]
    asked: list[str] = []

    def prepare(kind: str, what: dict[str, Any], _: float) -> dict[str, Any]:
        asked.append(what["case"].drawn.name)
        question = {"torch": "raises"} if asked[-1] == "b" else {}
        return Side.prepare(sides[1], kind, question, 5.0)

    monkeypatch.setattr(sides[1], "prepare", prepare)
    screen = Screen(sides[1], Clock())
    assert [one.name for one in islice(screen.runs(iter(draw)), 2)] == ["a", "c"]
    assert screen.skipped == {"b": "torch: ValueError: it does not fit"}
    assert screen.summary().endswith("1 (1 ValueError)")
    assert list(Screen(sides[1], Clock(0.0)).runs(iter(draw))) == []


@pytest.mark.usefixtures("any_device")
def test_what_fails_or_dies_while_it_is_built_ahead_stops_nothing(tmp_path: Path) -> None:
    cases = [(tmp_path / f"{i}", outcome) for i, outcome in enumerate(("fails", "dies", ""))]
    build(leave, cases, "0", 1)
    assert [path.read_text() for path, _ in cases] == ["ocl:0"] * 3
    build(leave, [(tmp_path / "late", "")], "0", 1, seconds=-1.0)
    assert not (tmp_path / "late").exists()
