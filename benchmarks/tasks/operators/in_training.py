"""Kinds of operators of training: losses, recurrent layers, random numbers and optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.tasks.operators.case import Kind, Made
from benchmarks.tasks.operators.drawing import classes, one_of, plain, sequences

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse_loss": functional.mse_loss,
    "l1_loss": functional.l1_loss,
    "smooth_l1_loss": functional.smooth_l1_loss,
    "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits,
    "kl_div": lambda x, y: functional.kl_div(x, y, reduction="sum"),
    "huber_loss": functional.huber_loss,
}
RANDOM: dict[str, Callable[[Tensor], Tensor]] = {
    "randn": torch.randn_like,
    "rand": torch.rand_like,
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "randint": lambda x: torch.randint(1000, x.shape, device=x.device),
    "randperm": lambda x: torch.randperm(min(x.numel(), 2**20), device=x.device),
    "exponential": lambda x: torch.empty_like(x).exponential_(),
}
OPTIMIZERS: dict[str, Callable[[list[torch.nn.Parameter]], Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, 1e-4),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 1e-4, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, 1e-4),
    "AdamW, amsgrad": lambda p: torch.optim.AdamW(p, 1e-4, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-4),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 1e-4),
    "NAdam": lambda p: torch.optim.NAdam(p, 1e-4),
}


def _loss(x: Tensor, op: str) -> Made:
    target = torch.rand_like(x.detach())
    return Made(lambda: LOSSES[op](x, target))


def _cross_entropy(x: Tensor) -> Made:
    target = torch.randint(x.shape[1], x.shape[:1], device=x.device)
    return Made(lambda: functional.cross_entropy(x, target))


def _smoothed(x: Tensor) -> Made:
    target = torch.randint(x.shape[1], x.shape[:1], device=x.device)
    return Made(lambda: functional.cross_entropy(x, target, label_smoothing=0.1))


def _ctc(x: Tensor, hidden: int) -> Made:
    steps, batch, width = x.shape
    long = max(1, steps // 3)
    targets = torch.randint(1, max(2, width), (batch, long), device=x.device)
    lengths = torch.full((batch,), steps), torch.full((batch,), long)
    return Made(lambda: functional.ctc_loss(x.log_softmax(-1), targets, *lengths))


def _recurrent(make: Any) -> Callable[..., Made]:
    def made(x: Tensor, hidden: int) -> Made:
        layer = make(x.shape[2], hidden, device=x.device, dtype=x.dtype)
        return Made(lambda: layer(x)[0], tuple(layer.parameters()))

    return made


def _dropout(x: Tensor) -> Made:
    return Made(lambda: functional.dropout(x, 0.3))


def _optimizer(x: Tensor, op: str) -> Made:
    """Make a step over parameters of as many sizes as a network has."""
    flat, left = x.detach().reshape(-1), x.numel()
    parts: list[Tensor] = []
    while left > 0 and len(parts) < 100:
        size = max(1, left // 3)
        parts.append(flat[left - size : left].clone())
        left -= size
    parameters = [torch.nn.Parameter(part) for part in parts]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    return Made(OPTIMIZERS[op](parameters).step)


def _clip(x: Tensor) -> Made:
    parameters = [torch.nn.Parameter(part.clone()) for part in x.detach().reshape(-1).chunk(50)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return Made(lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))


KINDS = {
    "loss": Kind("losses", one_of(LOSSES, plain), _loss, True),
    "cross_entropy": Kind("losses", classes, _cross_entropy, True),
    "smoothed cross_entropy": Kind("losses", classes, _smoothed, True),
    "ctc_loss": Kind("losses", sequences, _ctc, True, dtypes=("fp32",), part=0.03),
    "lstm": Kind("recurrent", sequences, _recurrent(torch.nn.LSTM), True, part=0.03),
    "gru": Kind("recurrent", sequences, _recurrent(torch.nn.GRU), True, part=0.03),
    "rnn": Kind("recurrent", sequences, _recurrent(torch.nn.RNN), True, part=0.03),
    "dropout": Kind("random", plain, _dropout, True),
    "random": Kind(
        "random", one_of(RANDOM, plain), lambda x, op: Made(lambda: RANDOM[op](x)), dtypes=("fp32",)
    ),
    "multinomial": Kind(
        "random",
        classes,
        lambda x: Made(lambda: torch.multinomial(x.softmax(-1).float(), 1)),
        dtypes=("fp32",),
        part=0.5,
    ),
    "optimizer": Kind("optimizers", one_of(OPTIMIZERS, plain), _optimizer, part=0.25),
    "clip_grad_norm": Kind("optimizers", plain, _clip, part=0.25),
}
