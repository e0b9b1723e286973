"""Steps of networks with seeded weights, the same on either side, and what they compute.

Weights are made on the CPU and equal in every process, so that both sides' results can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks.timing import Call

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
BLOCK = 4194301
"""Random numbers that fill all weights, over and over; a prime, so that no two rows are equal."""
BIAS = 0.02
"""Standard deviation of biases."""
SAMPLED = 512
"""Numbers of each parameter's gradient that are compared."""
DRAWING = ("normal_", "uniform_", "trunc_normal_", "kaiming_", "xavier_", "orthogonal_")
"""How functions begin that fill a tensor at random."""


class Undrawn(TorchFunctionMode):
    """Zeros in place of random numbers, which a network of 10^9 weights would draw for a minute.

    They lie within the bounds of those functions that draw again what is beyond.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call `func`, unless it draws: then fill its tensor with zeros."""
        given = kwargs or {}
        if not getattr(func, "__name__", "").startswith(DRAWING):
            return func(*args, **given)
        with torch.no_grad():
            return (args[0] if args else given["tensor"]).zero_()


def seeded(make: Callable[[], nn.Module], dtype: torch.dtype) -> nn.Module:
    """Return the network that `make` makes, with the same weights in every process.

    Matrices and filters have the standard deviation that keeps the variance of what passes; a
    normalisation's weights stay as they are made.

    Args:
        make: makes it; tables that it keeps in fp32 stay so.
        dtype: of its weights.
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with Undrawn():
            network = make()
    finally:
        torch.set_default_dtype(usual)
    block = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0)).to(dtype)
    place = 0
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() > 1:
                scale = (parameter.shape[0] / parameter.numel()) ** 0.5
            elif name.endswith("bias"):
                scale = BIAS
            else:
                continue
            place = _fill(parameter.view(-1), block, place)
            parameter.mul_(scale)
    return network


def _fill(out: Tensor, block: Tensor, place: int) -> int:
    """Fill `out` with the numbers of `block` from `place` on, around its end; return the next."""
    ends = range(BLOCK - place, out.numel(), BLOCK)
    for begin, end in pairwise([0, *ends, out.numel()]):
        first = place if begin == 0 else 0
        out[begin:end] = block[first : first + end - begin]
    return (place + out.numel()) % BLOCK


@dataclass(frozen=True)
class Network:
    """A network on the CPU, what it is given by name, and the tensor of a call that is wanted.

    `wanted(module, **given)` returns scores in evaluation, and the loss in training. Weights and
    numbers have `dtype`, or are in fp32 where `autocast` computes in it.
    """

    module: nn.Module
    given: dict[str, Tensor]
    wanted: Callable[..., Tensor]
    dtype: str = "fp32"
    autocast: bool = False

    def on(self, device: str) -> Network:
        """Return it with the module on a device; what is given is moved by every step."""
        dtype = stored(self.dtype, self.autocast)
        given = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in self.given.items()
        }
        return replace(self, module=self.module.to(device), given=given)

    def __call__(self, device: str) -> Tensor:
        """Return what is wanted, computed on `device`, where the module is."""
        moved = {name: tensor.to(device) for name, tensor in self.given.items()}
        with self._precision(device):
            return self.wanted(self.module, **moved)

    def _precision(self, device: str) -> AbstractContextManager[None]:
        if not self.autocast:
            return nullcontext()
        return torch.autocast(torch.device(device).type, DTYPES[self.dtype])


def stored(dtype: str, autocast: bool) -> torch.dtype:
    """Return the dtype of weights: fp32 where autocast computes in `dtype`."""
    return torch.float32 if autocast else DTYPES[dtype]


class Step(NamedTuple):
    """What is timed, and what it computes, for the comparison of both sides."""

    run: Call
    outcome: Callable[[], list[Tensor]]


def evaluation(network: Network, device: str) -> Step:
    """Return the step that infers and brings the result home."""
    there = network.on(device)
    there.module.eval()

    @torch.no_grad()
    def run() -> Tensor:
        return there(device).cpu()

    return Step(run, lambda: [run()])


def training(network: Network, device: str) -> Step:
    """Return the step that trains with AdamW and brings the loss home.

    What is compared is the loss and gradients without dropout, which is random on each device.
    """
    there = network.on(device)
    module = there.module.train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def run() -> float:
        optimizer.zero_grad()
        loss = there(device)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    def outcome() -> list[Tensor]:
        module.eval()
        loss = there(device)
        loss.backward()  # type: ignore[no-untyped-call]
        found = torch.cat([_sampled(p.grad) for p in module.parameters() if p.grad is not None])
        optimizer.zero_grad()
        module.train()
        return [loss.detach().cpu(), found]

    return Step(run, outcome)


class Forced:
    """Lets `generate` take given tokens, so that sides whose scores differ by rounding stay equal.

    It is a processor of scores, which `generate` calls with all ids so far.
    """

    def __init__(self, prompt: int) -> None:
        self.prompt = prompt

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores that are lowest except for one token's."""
        token = (7919 * (ids.shape[1] - self.prompt + 1)) % scores.shape[-1]
        forced = scores.new_full(scores.shape, -1e4)
        forced[:, token] = 0.0
        return forced


def generation(network: Network, device: str, made: int, **also: Any) -> Step:
    """Return the step that generates greedy tokens; what is compared are scores of forced ones.

    Args:
        network: whose module has `generate`; its only input is a prompt of ids.
        device: torch's name of it.
        made: tokens.
        also: further arguments of `generate`, such as the kind of cache.
    """
    model: Any = network.on(device).module.eval()
    (ids,) = network.given.values()
    lengths = {"max_new_tokens": made, "min_new_tokens": made}
    given: dict[str, Any] = {"do_sample": False, **lengths, **also}

    @torch.no_grad()
    def run() -> object:
        return model.generate(ids.to(device), **given).cpu()

    @torch.no_grad()
    def outcome() -> list[Tensor]:
        scores = model.generate(
            ids.to(device), **given, output_logits=True, return_dict_in_generate=True,
            logits_processor=[Forced(ids.shape[1])],
        ).logits  # fmt: skip
        return [torch.stack(scores).cpu()]

    return Step(run, outcome)


def _sampled(gradient: Tensor) -> Tensor:
    numbers = gradient.flatten()
    return numbers[:: max(1, numbers.numel() // SAMPLED)].float().cpu()


def operations(network: Network) -> float:
    """Return the operations of products and convolutions in a call, by torch's own count.

    Args:
        network: made on the device "meta".
    """
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        network.on("meta")("meta")
    return float(counted.get_total_flops())


def weight_bytes(network: Network) -> float:
    """Return the bytes of all weights in the network's dtype."""
    size = DTYPES[network.dtype].itemsize
    return float(sum(parameter.numel() for parameter in network.module.parameters()) * size)
