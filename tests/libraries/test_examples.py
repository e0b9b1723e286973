"""The examples with other libraries, as they are: each learns or repeats something."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (lets torchvision be imported)

pytestmark = pytest.mark.usefixtures("any_device")
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *libraries: str) -> Any:
    """Run an example; return what its `main` returns. Nothing of it may run on the CPU."""
    for library in libraries:
        pytest.importorskip(library)
    torch.ocl.reset_fallbacks()
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()
    assert torch.ocl.fallbacks() == {}
    return found


def test_classification_with_timm() -> None:
    losses = run("classify_with_timm", "timm")
    assert losses[-1] < 0.7 * losses[0]


def test_lora_with_peft() -> None:
    losses = run("lora_with_peft", "peft", "transformers")
    assert losses[-1] < 0.9 * losses[0]


def test_generation() -> None:
    found = run("generate_text", "transformers")
    assert {len(words) for texts in found.values() for words in texts} == {12}
    assert found["greedy"] != found["sampled"]


def test_sampling_of_images() -> None:
    pytest.importorskip("diffusers")
    example = runpy.run_path(str(EXAMPLES / "sample_images.py"))
    images = run("sample_images", "diffusers", "transformers")
    torch.testing.assert_close(images, example["main"]("cpu"), rtol=1e-3, atol=1e-3)


def test_a_gguf_model() -> None:
    assert len(run("run_a_gguf_model", "gguf", "transformers", "accelerate")) == 8


def test_lightning() -> None:
    losses = run("train_with_lightning", "lightning")
    assert losses[-1] < 0.8 * losses[0]
