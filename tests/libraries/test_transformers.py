"""transformers with and without accelerate: loading, pipelines, training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

import ocl_backend  # noqa: F401 (torchvision needs it beside a CPU torch)
from tests.libraries.toys import LLAMA

pytestmark = pytest.mark.usefixtures("any_device")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**LLAMA)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def load(folder: Path, **options: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options)


def test_a_model_is_loaded_to_the_device_without_a_second_copy(saved: Path) -> None:
    pytest.importorskip("accelerate")  # transformers asks for it where a device is named
    before = torch.ocl.memory_allocated()
    torch.ocl.reset_peak_memory_stats()
    model = load(saved, device_map="ocl")
    size = sum(parameter.nbytes for parameter in model.parameters())
    assert model.device.type == "ocl"
    assert torch.ocl.max_memory_allocated() - before < 1.5 * size


def test_a_pipeline_runs_where_it_is_told_to(saved: Path) -> None:
    model = load(saved)
    prompt = torch.tensor([[1, 2, 3]])
    expected = model.generate(prompt, max_new_tokens=5, do_sample=False)

    class Numbers(transformers.Pipeline):
        def _sanitize_parameters(self, **kwargs: Any) -> tuple[dict, dict, dict]:
            return {}, {}, {}

        def preprocess(self, row: dict[str, list[int]]) -> dict[str, Any]:
            return {"input_ids": torch.tensor([row["numbers"]])}

        def _forward(self, inputs: dict[str, Any]) -> Any:
            assert inputs["input_ids"].device.type == "ocl"
            return self.model.generate(**inputs, max_new_tokens=5, do_sample=False)

        def postprocess(self, numbers: Any) -> list[int]:
            return numbers[0].tolist()

    pipeline = Numbers(model=model, tokenizer=None, device="ocl")
    assert pipeline({"numbers": [1, 2, 3]}) == expected[0].tolist()


def tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(64)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="w0")


def test_a_pipeline_chooses_the_device_after_one_import(saved: Path) -> None:
    import ocl_backend.libraries.transformers  # noqa: F401 (registers)

    def made(**options: Any) -> Any:
        return transformers.pipeline(
            "text-generation", model=load(saved, **places), tokenizer=tokenizer(), **options
        )

    def words(pipe: Any) -> Any:
        return pipe("w1 w2 w3", max_new_tokens=5, do_sample=False)

    places: dict[str, Any] = {}
    here = made(device="cpu")
    assert here.device.type == here.model.device.type == "cpu"
    assert isinstance(here, transformers.TextGenerationPipeline)
    for options in ({}, {"device": 0}, {"device": torch.device("ocl", 0)}):
        pipe = made(**options)
        assert pipe.device == pipe.model.device == torch.device("ocl", 0)
        assert words(pipe) == words(here)
    pytest.importorskip("accelerate")
    places = {"device_map": {"": 0}}
    pipe = made()
    assert pipe.device == pipe.model.device == torch.device("ocl", 0)
    assert words(pipe) == words(here)


NOTICES = """
import sys, warnings
import torch, ocl_backend
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    exec(sys.argv[1])
texts = [str(one.message).partition(" computes on the CPU") for one in met]
print([what for what, found, _ in texts if found])
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import transformers; transformers.LlamaForCausalLM", []),
        ("from transformers import Trainer", ["transformers' Trainer"]),
        ("from transformers import pipeline", ["a pipeline without a device, or with an index,"]),
        ("import ocl_backend.libraries.transformers; from transformers import pipeline", []),
        ("import ocl_backend.libraries.accelerate; from transformers import Trainer", []),
        ("import sentence_transformers", []),  # which imports the Trainer, but trains nothing
    ],
)
def test_the_cpu_is_not_taken_in_silence(program: str, expected: list[str]) -> None:
    pytest.importorskip("accelerate")
    if "sentence" in program:
        pytest.importorskip("sentence_transformers")
    plain = {name: value for name, value in os.environ.items() if "ACCELERATE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", NOTICES, program], stdout=subprocess.PIPE, text=True, env=plain
    )
    assert done.stdout.splitlines()[-1] == str(expected)


STEP = """
import accelerate
accelerator = accelerate.Accelerator({})
w = torch.ones(2, device=accelerator.device, requires_grad=True)
optimizer = accelerator.prepare(torch.optim.AdamW([w]))
(w * w).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "options", "expected"),
    [
        ("", "", ["accelerate"]),
        ("", "cpu=True", []),
        ("import ocl_backend.libraries.accelerate", "", []),
    ],
)
def test_an_accelerator_does_not_take_the_cpu_in_silence(
    before: str, options: str, expected: list[str]
) -> None:
    pytest.importorskip("accelerate")
    test_the_cpu_is_not_taken_in_silence(before + STEP.format(options), expected)


MAPPED = """
import transformers
model = transformers.AutoModelForCausalLM.from_pretrained({!r}, {})
assert model.device.type == {!r}, model.device
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("options", "place", "expected"),
    [
        ('device_map="auto"', "cpu", ['a model with device_map="auto"']),
        ('device_map="sequential"', "cpu", ['a model with device_map="auto"']),
        ('device_map="auto", max_memory={0: "1GB"}', "ocl", []),
        ('device_map="ocl"', "ocl", []),
        ('device_map="cpu"', "cpu", []),
        ("", "cpu", []),
    ],
)
def test_a_map_of_devices_does_not_take_the_cpu_in_silence(
    saved: Path, options: str, place: str, expected: list[str]
) -> None:
    pytest.importorskip("accelerate")
    program = MAPPED.format(str(saved), options, place)
    test_the_cpu_is_not_taken_in_silence(program, expected)


SENTENCES = """
import ocl_backend.libraries.accelerate  # for the Trainer, which the library imports, too
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(modules=[torch.nn.Linear(1, 1)], **{!r})
assert model.device.type == {!r}, model.device
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("options", "place", "expected"),
    [
        ({}, "cpu", ["sentence-transformers"]),
        ({"device": "cpu"}, "cpu", []),
        ({"device": "ocl"}, "ocl", []),
    ],
)
def test_sentences_do_not_take_the_cpu_in_silence(
    options: dict[str, str], place: str, expected: list[str]
) -> None:
    pytest.importorskip("sentence_transformers")
    test_the_cpu_is_not_taken_in_silence(SENTENCES.format(options, place), expected)


ULTRALYTICS = """
def select_device(device=""):
    if not device == "cpu" and torch.cuda.is_available():
        return "cuda:0"
    return "cpu"
asking = dict(torch=torch, __name__="ultralytics.utils.torch_utils")
exec({!r}, asking)
assert asking["select_device"]({}) == "cpu"
"""
"""The questions that ultralytics' function of this name asks, which is no library of the tests."""


@pytest.mark.parametrize(
    ("given", "expected"), [("", ["ultralytics"]), ("''", ["ultralytics"]), ("'cpu'", [])]
)
def test_what_asks_for_cuda_as_ultralytics_does(given: str, expected: list[str]) -> None:
    questions, _, rest = ULTRALYTICS.partition("asking = ")
    test_the_cpu_is_not_taken_in_silence("asking = " + rest.format(questions, given), expected)


def trained(saved: Path, folder: Path) -> tuple[Any, list[float]]:
    accelerate_state = pytest.importorskip("accelerate.state")
    accelerate_state.AcceleratorState._reset_state(True)
    draw = torch.Generator().manual_seed(1)
    rows = [
        {"input_ids": row, "labels": row} for row in torch.randint(0, 64, (8, 6), generator=draw)
    ]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=2, per_device_train_batch_size=2, logging_steps=1, report_to=[]
    )
    trainer = transformers.Trainer(load(saved), arguments, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return trainer, losses


def test_the_trainer_trains_on_the_device_after_one_import(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    _, expected = trained(saved, tmp_path / "cpu")
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE")
    import ocl_backend.libraries.accelerate as ours

    ours.prefer_device()
    assert os.environ["ACCELERATE_TORCH_DEVICE"] == "ocl"
    trainer, losses = trained(saved, tmp_path / "ocl")
    assert trainer.args.device.type == trainer.model.device.type == "ocl"
    assert losses == pytest.approx(expected, rel=1e-4)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    trainer, losses = trained(saved, tmp_path / "bf16")
    assert trainer.accelerator.mixed_precision == "bf16"
    assert losses == pytest.approx(expected, rel=2e-2)


def test_a_notebook_launches_training_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(True)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "ocl")
    layer, seen = torch.nn.Linear(3, 1), []

    def train() -> None:
        accelerator = accelerate.Accelerator()
        model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.1))
        accelerator.backward(model(torch.ones(2, 3, device=accelerator.device)).sum())
        optimizer.step()
        seen.append((accelerator.device.type, model.weight.device.type, model.bias.grad.item()))

    accelerate.notebook_launcher(train, num_processes=1)
    accelerate.state.AcceleratorState._reset_state(True)
    assert seen == [("ocl", "ocl", 2.0)]


def test_parts_of_a_model_stay_on_the_cpu_until_they_are_used(saved: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    with accelerate.init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.from_pretrained(saved)
        )
    places = {"model.embed_tokens": 0, "model.layers.0": "cpu", "model.layers.1": 0}
    places |= {"model.norm": 0, "model.rotary_emb": 0, "lm_head": 0}
    model = accelerate.load_checkpoint_and_dispatch(model, str(saved), device_map=places)
    prompt = torch.tensor([[1, 2, 3]])
    expected = load(saved)(prompt).logits
    torch.testing.assert_close(model(prompt.to("ocl")).logits.cpu(), expected.detach())
