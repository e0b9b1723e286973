"""Architectures of `transformers` that a seed draws out of all its model types.

    python -m benchmarks architectures --networks 12 --seed N --json FILE

A row is one of: "eval", a forward pass; "train", a step with AdamW; "generate", greedy tokens
behind a prompt with the cache that the model takes of itself, of causal language models. Sizes are
drawn, too: no checkpoint has them. Weights are random and the same on both sides, and what both
compute is compared. bf16 means weights of that dtype, and of a step of training autocast over
weights in fp32. Times include the host's copies of inputs; of the results one number of each
feature comes home, the mean over a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from benchmarks.tasks.classifiers import models_beside
from benchmarks.tasks.draw import log_uniform
from benchmarks.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor, dtype, nn

    from benchmarks.tasks.model_types import Sizes
    from benchmarks.tasks.steps import Network, Step

Mode = Literal["eval", "train", "generate"]
KIND = "architectures"
DTYPES = ("fp32", "bf16")
MADE = 32
"""Tokens that are generated."""
HEAD_DIMS = (32, 64, 128)


class Range(NamedTuple):
    """What sizes are drawn from; `tokens` are the least and most of a text, `most` of all texts."""

    widths: tuple[int, ...]
    layers: tuple[int, int]
    words: tuple[int, int]
    tokens: tuple[int, int]
    batch: int
    most: int
    side: int
    blocks: int
    share: int


RANGES = {
    "gpu": Range((256, 384, 512, 640, 768), (4, 8), (2048, 16384), (64, 512), 8, 2048, 224, 3, 1),
    "cpu": Range((256, 384, 512), (4, 6), (2048, 8192), (64, 256), 4, 256, 224, 2, 2),
    "small": Range((64, 96), (1, 2), (128, 256), (8, 16), 2, 32, 64, 1, 4),
}


class Drawn(NamedTuple):
    """A model type of `transformers` with the sizes of its config and of its inputs."""

    name: str
    sizes: Sizes

    @property
    def key(self) -> str:
        """Its name among rows."""
        s = self.sizes
        shape = f"{s.layers}x{s.width}, heads {s.heads}/{s.kv_heads}, {s.inner}, {s.words}"
        return f"{self.name} {shape}; {s.batch}x{s.tokens}"


class Case(NamedTuple):
    """What an architecture does, and in which dtype."""

    drawn: Drawn
    mode: Mode
    dtype: str

    @property
    def key(self) -> str:
        """Its name among rows."""
        return f"{self.drawn.key} {self.mode} {self.dtype}"


def drawn(seed: int, size: str) -> Iterator[Drawn]:
    """Yield every model type of the installed `transformers` once, in the order of a seed.

    Args:
        seed: equal seeds give equal ones with equal versions of `transformers`.
        size: key of `RANGES`.
    """
    from benchmarks.tasks import model_types

    random = Random(f"architectures {seed}")
    names = model_types.names()
    random.shuffle(names)
    for name in names:
        yield Drawn(name, _sizes(random, RANGES[size]))


def _sizes(random: Random, of: Range) -> Sizes:
    from benchmarks.tasks.model_types import Sizes

    width = random.choice(of.widths)
    head_dim = random.choice([dim for dim in HEAD_DIMS if 2 * dim <= width])
    heads = width // head_dim
    kv_heads = heads // random.choice([by for by in (1, 2, 3, 4) if heads % by == 0])
    batch = log_uniform(random, 1, of.batch)
    low, high = of.tokens
    tokens = log_uniform(random, low, max(low, min(high, of.most // batch)))
    return Sizes(
        width=width, heads=heads, kv_heads=kv_heads, inner=width * random.randint(2, 4),
        layers=random.randint(*of.layers), words=log_uniform(random, *of.words), tokens=tokens,
        batch=batch, experts=random.choice((4, 8)), side=of.side, blocks=of.blocks, share=of.share,
    )  # fmt: skip


def tasks(one: Drawn, dtypes: tuple[str, ...], seed: int) -> list[Task]:
    """Return what is measured of an architecture.

    Args:
        one: the architecture.
        dtypes: "fp32", "bf16".
        seed: that drew it.
    """
    from benchmarks.tasks import model_types

    speaks = model_types.head_of(one.name) == "CAUSAL_LM"
    modes: tuple[Mode, ...] = ("eval", "train", "generate") if speaks else ("eval", "train")
    cases = [Case(one, mode, dtype) for dtype in dtypes for mode in modes]
    return [
        Task(
            KIND, case.key, (f"{case.mode} {case.dtype}", case.mode, "all"), 0, case.dtype, 0.0,
            0.0, {"case": case}, seed,
        )
        for case in cases
    ]  # fmt: skip


def step(case: Case, device: str) -> Step:
    """Return a step of a case.

    Args:
        case: what is done.
        device: torch's name of it.

    Raises:
        Exception: whatever the type raises, if its model cannot be made or called.
    """
    from benchmarks.tasks import steps

    network = _network(case, device)
    if case.mode == "train":
        return steps.training(network, device)
    if case.mode == "eval":
        return steps.evaluation(network, device)
    return steps.generation(network, device, MADE, use_cache=True, disable_compile=True)


def costs(case: Case) -> dict[str, float]:
    """Return the row's `tokens` of a step, 0 for what reads none of a known number."""
    from benchmarks.tasks import model_types

    sizes = case.drawn.sizes
    if case.mode == "generate":
        return {"tokens": MADE * sizes.batch}
    reads = model_types.head_of(case.drawn.name) in model_types.TEXT_HEADS
    return {"tokens": sizes.batch * sizes.tokens if reads else 0}


def _network(case: Case, device: str) -> Network:
    import torch

    from benchmarks.tasks import model_types, steps

    trains = case.mode == "train"
    autocast = trains and case.dtype != "fp32"
    module: Any = _model(case.drawn, steps.stored(case.dtype, autocast), device)
    if trains:
        _model.cache_clear()  # its weights change
    torch.manual_seed(1)
    given = model_types.inputs(module, case.drawn.sizes)
    if case.mode == "generate":
        given = {"input_ids": given["input_ids"]}
    elif trains and model_types.head_of(case.drawn.name) in model_types.TEXT_HEADS:
        given["labels"] = given.get("decoder_input_ids", given["input_ids"])
    return steps.Network(module, given, _loss if trains else _result, case.dtype, autocast)


@lru_cache(1)
def _model(one: Drawn, dtype: dtype, device: str) -> nn.Module:
    """Return a model for a device; the last one is kept, for the next row is often its own."""
    models_beside(device, "transformers").logging.set_verbosity_error()
    import torch

    from benchmarks.tasks import model_types, steps

    torch.manual_seed(0)  # of tables that a model draws for itself
    return steps.seeded(partial(model_types.model, one.name, one.sizes), dtype)


def _first(output: Any) -> Tensor:
    """Return the first tensor of floating numbers in a nested output."""
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    parts = output.to_tuple() if hasattr(output, "to_tuple") else output
    for leaf in tree_leaves(parts):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf
    raise ValueError(f"{type(output).__name__} has no floating numbers")


def _result(model: Any, **given: Tensor) -> Tensor:
    found = _first(model(**given))
    return found.mean(1) if found.dim() == 3 else found


def _loss(model: Any, **given: Tensor) -> Tensor:
    found = _first(model(**given))
    return found if "labels" in given else found.float().square().mean()
