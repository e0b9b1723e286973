"""Counts the launches of a token of a Llama-shaped model, per layer, and times the token.

    python -m benchmarks token-launches --dtype bf16

It runs transformers' `generate`, unchanged, on random weights. Launches per layer and token are
those that two more layers add to a later token; all others are counted per token. `seed` draws
further shapes. Milliseconds are of a token: fused, with every call its own kernel, and of torch on
the CPU; minimum of several runs in turns.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

import torch
from click import UsageError

import ocl_backend  # noqa: F401  (registers the device)

ocl = torch.get_device_module("ocl")
LAYERS = 2, 4
TOKENS = 8, 12
PROMPT = 5
RUNS = 3
CACHES = "dynamic", "static"


class Shape(NamedTuple):
    """Sizes of a model."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int = 512

    @staticmethod
    def of(hidden: int) -> Shape:
        """Return a larger model's sizes.

        Raises:
            UsageError: four heads for each of the keys, all of an even size, do not make it up.
        """
        kv_heads = max(1, hidden // 256)
        if hidden < 1 or hidden % (8 * kv_heads):
            raise UsageError(f"--hidden {hidden} is no multiple of {8 * kv_heads}")
        return Shape(hidden, hidden * 11 // 4, 4 * kv_heads, kv_heads)


CHOSEN = Shape(256, 688, 8, 2)


class Counted(NamedTuple):
    """Launches of a token: of each layer, and of all else."""

    layer: float
    rest: float


def drawn(seed: int, count: int) -> Iterator[Shape]:
    """Yield shapes that a seed draws."""
    draw = random.Random(seed)
    for _ in range(count):
        kv_heads, dim = draw.choice((1, 2, 3)), draw.choice((16, 32, 48))
        heads = kv_heads * draw.choice((1, 2, 4))
        yield Shape(heads * dim, draw.randrange(40, 400), heads, kv_heads)


def model(shape: Shape, layers: int, dtype: torch.dtype) -> Any:
    """Return a model with random weights on the CPU.

    Args:
        shape: its sizes.
        layers: how many.
        dtype: of its weights.
    """
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, num_hidden_layers=layers,
        intermediate_size=shape.intermediate, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, max_position_embeddings=256, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    network: Any = transformers.LlamaForCausalLM(config)
    return network.to(dtype).eval()


def generate(network: Any, cache: str, tokens: int) -> torch.Tensor:
    """Return the greedy tokens after a prompt.

    Args:
        network: a model.
        cache: one of `CACHES`.
        tokens: how many.
    """
    prompt = torch.arange(1, 1 + PROMPT).reshape(1, -1).to(network.device)
    options = {} if cache == "dynamic" else {"cache_implementation": cache}
    found: torch.Tensor = network.generate(
        prompt, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, **options
    )
    return found


def launches(network: Any, cache: str) -> float:
    """Return the commands of a token that follows others."""
    counts = []
    for tokens in TOKENS:
        for _ in range(2):  # what is prepared and learnt is not of a token
            generate(network, cache, tokens)
        with ocl.profile(file=None) as seen:
            generate(network, cache, tokens)
        counts.append(len(seen.commands))
    return (counts[1] - counts[0]) / (TOKENS[1] - TOKENS[0])


def counted(shape: Shape, dtype: torch.dtype, cache: str, device: str) -> Counted:
    """Return the launches of a token.

    Args:
        shape: of the model.
        dtype: of its weights.
        cache: one of `CACHES`.
        device: torch's name of it.
    """
    few, many = (launches(model(shape, n, dtype).to(device), cache) for n in LAYERS)
    layer = (many - few) / (LAYERS[1] - LAYERS[0])
    return Counted(layer, few - LAYERS[0] * layer)


def milliseconds(network: Any, cache: str) -> float:
    """Return the time of a token that follows others."""
    times = []
    for tokens in TOKENS:
        generate(network, cache, tokens)
        begin = perf_counter()
        generate(network, cache, tokens).cpu()
        times.append(perf_counter() - begin)
    return 1e3 * (times[1] - times[0]) / (TOKENS[1] - TOKENS[0])


def main(dtype: torch.dtype, device: str, seed: int, draws: int, shape: Shape = CHOSEN) -> None:
    """Print a line for each shape and cache.

    Args:
        dtype: of weights.
        device: torch's name of it.
        seed: draws further shapes.
        draws: how many.
        shape: the first one.
    """
    print(f"{'hidden':>7}{'inner':>7}{'heads':>7}  cache    a layer   rest   ms: fused  each  cpu")
    for one in (shape, *drawn(seed, draws)):
        theirs = model(one, LAYERS[1], dtype)
        ours = model(one, LAYERS[1], dtype).to(device)
        for cache in CACHES:
            count = counted(one, dtype, cache, device)
            sides: list[list[float]] = [[], [], []]
            for _ in range(RUNS):
                sides[0].append(milliseconds(ours, cache))
                with ocl.fusion(False):
                    sides[1].append(milliseconds(ours, cache))
                sides[2].append(milliseconds(theirs, cache))
            fused, each, cpu = map(min, sides)
            heads = f"{one.heads}/{one.kv_heads}"
            print(
                f"{one.hidden:7}{one.intermediate:7}{heads:>7}  {cache:8}{count.layer:8.1f}"
                f"{count.rest:7.1f}{fused:12.2f}{each:6.2f}{cpu:6.2f}"
            )
