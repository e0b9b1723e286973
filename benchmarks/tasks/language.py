"""Language models, chosen and drawn, through transformers and torch on either side.

    python -m benchmarks language --device 0 --only gpt2
    python -m benchmarks language --device 0 --small

A row is one of: "prefill", the forward pass over a prompt; "train", a step with AdamW; "dynamic" or
"static", `generate` of greedy tokens behind a prompt with that cache; "replayed", the same with a
static cache, where ocl replays a graph of a token's step and the other side calls it. Weights are
random and the same on both sides, and what both compute is compared. bf16 means weights of that
dtype, and of a step of training autocast over weights in fp32. Times include the host's copies of
tokens and of the last token's scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from benchmarks.tasks.classifiers import models_beside
from benchmarks.tasks.draw import Draw, distinct, log_uniform
from benchmarks.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor, dtype

    from benchmarks.tasks.steps import Network, Step

Mode = Literal["prefill", "train", "dynamic", "static", "replayed"]
CACHES: tuple[Mode, ...] = ("dynamic", "static", "replayed")


class Decoder(NamedTuple):
    """Sizes of a language model; `kind` is "gpt2" or "llama"."""

    kind: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int


class Case(NamedTuple):
    """A decoder, what it does, with how many texts of how many tokens; `made` are new tokens."""

    decoder: Decoder
    mode: Mode
    batch: int
    tokens: int
    dtype: str = "fp32"
    made: int = 0

    @property
    def key(self) -> str:
        """Its name among rows."""
        kind, layers, hidden, heads, kv_heads, inner, vocabulary = self.decoder
        cache = "static cache, replayed" if self.mode == "replayed" else f"{self.mode} cache"
        does = f"{self.made} tokens, {cache}" if self.made else self.mode
        return (
            f"{kind} {layers}x{hidden}, heads {heads}/{kv_heads}, {inner}, {vocabulary}; "
            f"{self.batch}x{self.tokens} {does} {self.dtype}"
        )


def cases(decoder: Decoder, batch: int, tokens: int, prompt: int, made: int) -> list[Case]:
    """Return what is measured of a chosen decoder: a GPT-2 is trained, a Llama generates.

    Args:
        decoder: its sizes.
        batch: texts of a GPT-2; a Llama has one.
        tokens: of each.
        prompt: tokens before those that are generated.
        made: tokens that are generated.
    """
    if decoder.kind == "gpt2":
        one = Case(decoder, "prefill", batch, tokens)
        return [one, one._replace(mode="train"), one._replace(mode="train", dtype="bf16")]
    prefill = Case(decoder, "prefill", 1, tokens, "bf16")
    generated = Case(decoder, "dynamic", 1, prompt, "bf16", made)
    return [prefill, *(generated._replace(mode=cache) for cache in CACHES)]


GPT2 = Decoder("gpt2", 12, 768, 12, 12, 3072, 50257)
TINY_LLAMA = Decoder("llama", 22, 2048, 32, 4, 5632, 32000)
SMOLLM2 = Decoder("llama", 30, 576, 9, 3, 1536, 49152)
CHOSEN = {
    "gpu": (*cases(GPT2, 8, 512, 0, 0), *cases(TINY_LLAMA, 1, 1024, 32, 32)),
    "cpu": (*cases(GPT2, 1, 128, 0, 0), *cases(SMOLLM2, 1, 256, 32, 32)),
    "small": (
        *cases(Decoder("gpt2", 2, 256, 4, 4, 1024, 2048), 2, 64, 0, 0),
        *cases(Decoder("llama", 2, 256, 8, 2, 704, 2048), 1, 64, 8, 8),
    ),
}
POSITIONS = 1024
"""Tokens of the longest text."""
DIMS = (32, 64, 80, 96, 128)
SHARED = (1, 2, 4, 8)
"""Heads of the query for one of key and value."""
MOST_WEIGHTS = {"gpu": 3e8, "cpu": 3e7, "small": 3e6}
"""Weights of a drawn decoder, at most; half of that at least."""
MOST_TOKENS = {"gpu": 4096, "cpu": 128, "small": 64}
"""Tokens of all texts of a drawn case, at most."""
DRAWN = 1


def drawn(seed: int, count: int, size: str) -> list[tuple[Decoder, int, int]]:
    """Return different (decoder, texts, tokens of each).

    Args:
        seed: equal seeds give equal ones.
        count: how many.
        size: key of `CHOSEN`.
    """
    return distinct("language", seed, count, partial(_any, size))


def _any(size: str, random: Random) -> tuple[Decoder, int, int] | None:
    dim, kv_heads, shared = random.choice(DIMS), random.randint(1, 8), random.choice(SHARED)
    hidden = dim * kv_heads * shared
    inner = log_uniform(random, hidden, 4 * hidden)
    shape = (hidden, kv_heads * shared, kv_heads, inner, log_uniform(random, 512, 50_000))
    found = Decoder("llama", random.randint(1, 8), *shape)
    least = MOST_WEIGHTS[size] / 2
    batch = log_uniform(random, 1, 16)
    tokens = log_uniform(random, 8, min(POSITIONS, MOST_TOKENS[size] // batch))
    return (found, batch, tokens) if least <= weights(found) <= 2 * least else None


def weights(decoder: Decoder) -> int:
    """Return how many weights a Llama has, except those of its normalisations."""
    _, layers, hidden, heads, kv_heads, inner, vocabulary = decoder
    attention = 2 * hidden * hidden * (heads + kv_heads) // heads
    return layers * (attention + 3 * hidden * inner) + 2 * vocabulary * hidden


def tasks(size: str, draw: Draw) -> Iterator[Task]:
    """Yield what the models do.

    Args:
        size: key of `CHOSEN`.
        draw: how many decoders, and how many batches of the GPT-2, are drawn, and their seed.
    """
    for case in CHOSEN[size]:
        does = "generate" if case.made else case.mode
        yield _task(case, f"{case.decoder.kind} {does} {case.dtype}")
    gpt2 = CHOSEN[size][0].decoder
    for decoder, batch, tokens in drawn(draw.seed, draw.of(DRAWN), size):
        one = Case(decoder, "prefill", batch, tokens, "bf16")
        trained = one._replace(mode="train")
        generated = Case(decoder, "dynamic", 1, min(tokens, 32), "bf16", 16)
        other = Case(gpt2, "prefill", batch, tokens)
        for case in (one, trained, generated, other, other._replace(mode="train")):
            yield _task(case, "drawn language", draw.seed)


def _task(case: Case, group: str, seed: int | None = None) -> Task:
    return Task("language", case.key, (group,), 1, case.dtype, 0.0, 0.0, {"case": case}, seed)


def step(case: Case, device: str) -> Step:
    """Return a step of a case.

    Args:
        case: what is done.
        device: torch's name of it.
    """
    from benchmarks.tasks import steps

    network = _network(case, device)
    if case.mode == "train":
        return steps.training(network, device)
    if case.mode == "prefill":
        return steps.evaluation(network, device)
    return _generation(network, case, device)


def costs(case: Case) -> dict[str, float]:
    """Return the row's `flops`, `bytes` and `tokens` of a step.

    Training counts three times what a forward pass does. Bytes are those of the weights, which
    every token that is generated reads.
    """
    from benchmarks.tasks import steps

    trains, tokens = case.mode == "train", case.tokens + max(0, case.made - 1)
    dtype = "fp32" if trains else case.dtype
    network = _network(case._replace(mode="prefill", tokens=tokens, dtype=dtype), "meta")
    flops = steps.operations(network) * (3 if trains else 1)
    moved = steps.weight_bytes(network) * max(1, case.made)
    return {"flops": flops, "bytes": moved, "tokens": case.made or case.batch * case.tokens}


def _network(case: Case, device: str) -> Network:
    import torch

    from benchmarks.tasks import steps

    trains, decoder = case.mode == "train", case.decoder
    autocast = trains and case.dtype != "fp32"
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(decoder.vocabulary, (case.batch, case.tokens), generator=random)
    module = _model(decoder, steps.stored(case.dtype, autocast), device)
    if trains:
        _model.cache_clear()  # its weights change
    wanted = _loss if trains else _last_scores
    return steps.Network(module, {"ids": ids}, wanted, case.dtype, autocast)


@lru_cache(1)
def _model(decoder: Decoder, dtype: dtype, device: str) -> Any:
    """Return a model where it will run; the last one is kept, for the next row is often its own."""
    import torch

    from benchmarks.tasks import steps

    with torch.device("meta" if device == "meta" else "cpu"):
        return steps.seeded(partial(_made, decoder, device), dtype).to(device)


def _made(decoder: Decoder, device: str) -> Any:
    transformers = models_beside(device, "transformers")
    if decoder.kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=decoder.vocabulary, n_positions=POSITIONS,
            n_embd=decoder.hidden, n_layer=decoder.layers, n_head=decoder.heads,
            n_inner=decoder.inner, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        vocab_size=decoder.vocabulary, hidden_size=decoder.hidden,
        intermediate_size=decoder.inner, num_hidden_layers=decoder.layers,
        num_attention_heads=decoder.heads, num_key_value_heads=decoder.kv_heads,
        head_dim=decoder.hidden // decoder.heads, max_position_embeddings=POSITIONS,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def _last_scores(model: Any, ids: Tensor) -> Tensor:
    scores: Tensor = model(ids).logits[:, -1]
    return scores


def _loss(model: Any, ids: Tensor) -> Tensor:
    loss: Tensor = model(ids, labels=ids, use_cache=False).loss
    return loss


def _generation(network: Network, case: Case, device: str) -> Step:
    from benchmarks.tasks import steps

    replays = case.mode == "replayed" and device.startswith("ocl")
    if replays:
        from ocl_backend.libraries import transformers

        transformers.replay(network.on(device).module.eval())
    cache = "dynamic" if case.mode == "dynamic" else "static"
    also: dict[str, Any] = {"disable_compile": not replays, "cache_implementation": cache}
    return steps.generation(network, device, case.made, **also)
