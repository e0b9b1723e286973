"""What a process is put through, one chore after the other; each leaves the device right."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

THREADS, STEPS, WORDS, WIDTH = 8, 6, 40, 32
TOLERANCE = 2e-4
OCL: Any = torch.get_device_module("ocl")


class WrongError(AssertionError):
    """The device gave another result than before, or no error where there was a reason."""


class Reader(nn.Module):
    """Words, attention with a mask, normalisations, a convolution along the text."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [batch, length, WORDS] of what comes next."""
        x = self.embedding(text)
        causal = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        seen = self.attention(x, x, x, attn_mask=causal, need_weights=False)[0]
        x = self.norm(x + seen)
        x = x + functional.gelu(self.batch_norm(self.conv(x.mT))).mT
        scores: Tensor = self.out(x)
        return scores


def reader(device: str) -> Reader:
    """Return the network with the weights of one seed."""
    torch.manual_seed(1)
    return Reader().to(device)


def text(batch: int, length: int, seed: int) -> Tensor:
    """Return words [batch, length] on the CPU."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, WORDS, (batch, length), generator=draw)


def train(network: Reader, device: str, sizes: list[tuple[int, int]]) -> list[float]:
    """Return the losses of one step for each batch and length."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    losses = []
    for seed, (batch, length) in enumerate(sizes):
        words = text(batch, length, seed).to(device)
        scores = network.train()(words)[:, :-1]
        loss = functional.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return torch.stack(losses).tolist()


def fingerprint(device: str) -> list[float]:
    """Return losses and scores that any process gets, to rounding: it is what chores must leave."""
    network = reader(device)
    losses = train(network, device, [(4, 9), (3, 9), (4, 7)])
    with torch.no_grad():
        scores = network.eval()(text(2, 9, 5).to(device))
    return [*losses, *scores.flatten()[::7].tolist()]


def agree(ours: list[float], theirs: list[float], what: str) -> None:
    """Compare numbers.

    Raises:
        WrongError: they differ.
    """
    worst = (torch.tensor(ours) - torch.tensor(theirs)).abs().max().item()
    if not worst <= TOLERANCE:
        raise WrongError(f"{what}: off by {worst:.2g}")


def varying_shapes(rng: Random, device: str) -> None:
    """Train with batches and lengths that vary; the CPU's losses are the measure."""
    sizes = [(rng.randint(2, 24), rng.randint(3, 16)) for _ in range(STEPS)]
    agree(train(reader(device), device, sizes), train(reader("cpu"), "cpu", sizes), str(sizes))


def threads(rng: Random, device: str) -> None:
    """Infer from eight threads that share a network."""
    network, here = reader(device).eval(), reader("cpu").eval()
    given = [text(rng.randint(1, 8), rng.randint(2, 12), n) for n in range(3 * THREADS)]

    def infer(words: Tensor) -> list[float]:
        with torch.no_grad():
            return network(words.to(device)).flatten().tolist()

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(infer, given))
    with torch.no_grad():
        for words, ours in zip(given, found, strict=True):
            agree(ours, here(words).flatten().tolist(), f"a thread, {list(words.shape)}")


def reload(rng: Random, device: str) -> None:
    """Save a network, drop it, and load what was saved."""
    network, words = reader(device).eval(), text(2, rng.randint(2, 9), 3).to(device)
    with torch.no_grad():
        before = network(words).flatten().tolist()
        file = io.BytesIO()
        torch.save(network.state_dict(), file)
        del network
        OCL.empty_cache()
        file.seek(0)
        again = Reader().to(device).eval()
        again.load_state_dict(torch.load(file, map_location=device))
        agree(again(words).flatten().tolist(), before, "reloaded")


class _Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise ValueError("in backward")


def errors(rng: Random, device: str) -> None:
    """Meet a wrong shape, a wrong index and an exception in a backward pass."""
    x = torch.ones(4, 6, device=device, requires_grad=True)
    index = torch.tensor([rng.randint(4, 99)], device=device)

    def late() -> None:
        x[index].sum().item()

    wrong: tuple[tuple[type[Exception], Callable[[], Any]], ...] = (
        (RuntimeError, lambda: x @ x),
        (torch.AcceleratorError, late),
        (ValueError, lambda: _Failing.apply(x * 2).sum().backward()),
    )
    for kind, call in wrong:
        _expect(kind, call)


def memory(rng: Random, device: str) -> None:
    """Run out of memory: by a bound that is set, in the middle of a step, and by far."""
    network, words = reader(device), text(16, 16, 2).to(device)
    OCL.empty_cache()
    _expect(torch.OutOfMemoryError, lambda: torch.empty(1 << 50, device=device))
    total = OCL.get_device_properties(device).total_memory
    OCL.set_per_process_memory_fraction((OCL.memory_allocated() + (1 << 18)) / total, device)
    try:
        _expect(torch.OutOfMemoryError, lambda: train(network, device, [(64, 64)]))
    finally:
        OCL.set_per_process_memory_fraction(1.0, device)
    network(words).sum().item()


def interrupt(rng: Random, device: str) -> None:
    """Press Ctrl-C at any moment of training."""
    sizes = [(rng.randint(2, 24), rng.randint(3, 16)) for _ in range(200)]
    timer = threading.Timer(rng.uniform(0.05, 0.6), os.kill, (os.getpid(), signal.SIGINT))

    def run() -> None:
        timer.start()
        while True:
            train(reader(device), device, sizes)

    _expect(KeyboardInterrupt, run)
    timer.join()


def _expect(kind: type[BaseException], call: Callable[[], Any]) -> None:
    try:
        call()
    except kind:
        return
    raise WrongError(f"no {kind.__name__}")


CHORES = (varying_shapes, threads, reload, errors, memory, interrupt)
