"""Fused steps of SGD, Adam and AdamW: many parameters in one launch.

The formulas are torch.optim's. `prefer_fused` makes the optimisers take them without being told.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import log
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.memory_formats import arranged, in_pixels
from ocl_backend.runtime.launch import Argument, KernelLaunch, Pointer, Varying, prepare
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import render

NUMBER_BYTES = 96
"""Room in a launch's arguments for its numbers and the pointers of a scaler."""
MOST_TENSORS = 64
"""Of a launch: a kernel's text grows with them."""
BLOCK = {"cpu": 16384, "gpu": 4096}
"""Items per work-group: a CPU's walks them alone, a GPU's shares them."""


@dataclass(frozen=True, slots=True)
class Method:
    """Which formula; the template begins with the legend."""

    method: Literal["sgd", "adam", "adamw"]
    roles: tuple[str, ...]
    weight_decay: bool = False
    momentum: bool = False
    nesterov: bool = False
    first: bool = False
    maximize: bool = False
    unscales: bool = False
    skips: bool = False


@dataclass(frozen=True, slots=True)
class Numbers:
    """The launch arguments; `beta1` is also SGD's momentum and `rest1` one less its dampening."""

    lr: float
    decay: float = 0.0
    eps: float = 0.0
    beta1: float = 0.0
    rest1: float = 0.0
    beta2: float = 0.0

    def values(self) -> tuple[float, ...]:
        """Return them in the kernel's order, with complements and logarithms made in double."""
        return (
            self.lr, self.decay, self.eps,
            self.beta1, self.rest1, _log(self.beta1),
            self.beta2, 1 - self.beta2, _log(self.beta2),
        )  # fmt: skip

    def words(self, dtype: torch.dtype) -> tuple[float, ...]:
        """Return them as they travel to tensors of `dtype`: a double as the bits of a long."""
        values = self.values()
        if dtype is not torch.float64:
            return values
        count = len(values)
        return struct.unpack(f"{count}q", struct.pack(f"{count}d", *values))


def _log(beta: float) -> float:
    return log(beta) if beta > 0 else -1e30


def fused_adam(*args: Any, **kwargs: Any) -> None:
    """Advance parameters in place by one step of Adam; arguments are `aten::_fused_adam_`'s."""
    _adam("adam", *args, **kwargs)


def fused_adamw(*args: Any, **kwargs: Any) -> None:
    """Advance parameters in place by one step of AdamW; arguments are `aten::_fused_adamw_`'s."""
    _adam("adamw", *args, **kwargs)


def _adam(
    method: Literal["adam", "adamw"],
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: float | Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    lists: dict[str, Sequence[Tensor]] = {
        "p": params, "grad": grads, "m": exp_avgs, "v": exp_avg_sqs,
    }  # fmt: skip
    if amsgrad:
        lists["v_max"] = max_exp_avg_sqs
    device = params[0].get_device()
    lists["step"] = [
        step if step.get_device() == device and step.dtype is torch.float32
        else step.to(params[0].device, torch.float32)
        for step in steps
    ]  # fmt: skip
    kind = Method(
        method, tuple(lists), weight_decay != 0, maximize=maximize,
        unscales=grad_scale is not None, skips=found_inf is not None,
    )  # fmt: skip
    numbers = Numbers(float(lr), weight_decay, eps, beta1, 1 - beta1, beta2)
    _advance(kind, lists, numbers, grad_scale, found_inf)


def fused_sgd(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffers: Sequence[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Advance parameters in place by one step of SGD; arguments are `aten::_fused_sgd_`'s."""
    lists: dict[str, Sequence[Tensor]] = {"p": params, "grad": grads}
    if momentum != 0:
        lists["m"] = momentum_buffers
        if is_first_step and found_inf is not None:
            for buffer in momentum_buffers:
                buffer.zero_()  # they are new memory, and a skipped step does not fill it
    kind = Method(
        "sgd", tuple(lists), weight_decay != 0, momentum != 0, nesterov, is_first_step, maximize,
        grad_scale is not None, found_inf is not None,
    )  # fmt: skip
    numbers = Numbers(float(lr), weight_decay, beta1=momentum, rest1=1 - dampening)
    _advance(kind, lists, numbers, grad_scale, found_inf)


def _advance(
    kind: Method,
    lists: dict[str, Sequence[Tensor]],
    numbers: Numbers,
    *scale: Tensor | None,
) -> None:
    """Launch over as many tensors at a time as a launch has arguments for."""
    rows = [row for row in zip(*lists.values(), strict=True) if row[0].numel()]
    if not rows:
        return
    at_once = _at_once(len(lists), rows[0][0].get_device())
    shared = [tensor.data_ptr() for tensor in scale if tensor is not None]
    last = numbers.words(rows[0][0].dtype)
    for start in range(0, len(rows), at_once):
        batch = [_alike(row) for row in rows[start : start + at_once]]
        lead = batch[0][0]
        sizes = tuple(row[0].numel() for row in batch)
        launch = _prepared(kind, lead.get_device(), lead.dtype, sizes)
        pointers = [tensor.data_ptr() for row in batch for tensor in row]
        launch(*pointers, *shared, *last)
        _write_back(kind, rows[start : start + at_once], batch)


@cache
def _at_once(roles: int, device: int) -> int:
    """Return how many tensors a launch takes, each in `roles` roles."""
    room = devices()[device].limits.max_argument_bytes - NUMBER_BYTES
    return min(room // (16 * roles), MOST_TENSORS)


def _alike(row: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return tensors whose items lie densely and in one order: these, or copies."""
    pixels = in_pixels(row[0])
    return [arranged(tensor, pixels and tensor.dim() > 0) for tensor in row]


def _write_back(
    kind: Method, rows: Sequence[Sequence[Tensor]], dense: Sequence[Sequence[Tensor]]
) -> None:
    """Copy the results of tensors that had to be copied to be dense."""
    for row, copies in zip(rows, dense, strict=True):
        for role, tensor, copy in zip(kind.roles, row, copies, strict=True):
            if copy is not tensor and (role != "grad" or kind.unscales):
                tensor.copy_(copy)


@lru_cache(maxsize=1024)
def _prepared(
    kind: Method, device: int, dtype: torch.dtype, sizes: tuple[int, ...]
) -> KernelLaunch:
    on_cpu = devices()[device].limits.kind == "cpu"
    block = BLOCK["cpu" if on_cpu else "gpu"]
    blocks = [ceil_div(size, block) for size in sizes]
    local_items = 1 if on_cpu else min(256, devices()[device].limits.max_work_group)
    stored = dtype_of(dtype)
    source = render(
        "fused_step", package="ocl_backend", blocks=blocks, sizes=sizes, dtype=stored,
        block=block, local_items=local_items, width=16 if on_cpu else 4,
        method=kind.method, roles=kind.roles, weight_decay=kind.weight_decay,
        momentum=kind.momentum, nesterov=kind.nesterov, first=kind.first,
        maximize=kind.maximize, unscales=kind.unscales, skips=kind.skips,
    )  # fmt: skip
    row = [Pointer(4 if role == "step" else stored.item_bytes) for role in kind.roles]
    scale = [Pointer(4)] * (kind.unscales + kind.skips)
    number = Varying("long" if dtype is torch.float64 else "float")
    arguments: list[Argument] = [*row * len(sizes), *scale, *[number] * 9]
    groups = sum(blocks)
    return prepare(device, source, "fused_step", (groups * local_items,), arguments, (local_items,))


def prefer_fused() -> None:
    """Let SGD, Adam and AdamW on ocl parameters use the fused step unless told otherwise."""
    register_optimizer_step_pre_hook(_prefer_fused)


def _prefer_fused(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    del args, kwargs
    if type(optimizer) not in (SGD, Adam, AdamW):
        return
    for group in optimizer.param_groups:
        undecided = group["fused"] is None and group["foreach"] is None
        if undecided and not group["differentiable"] and all(map(_is_ours, group["params"])):
            group["fused"] = True
        if type(optimizer) is SGD and group["fused"] and group["momentum"] != 0:
            _begin_late(optimizer, group)


def _begin_late(optimizer: SGD, group: dict[str, Any]) -> None:
    """Prepare parameters that have their first gradient after others, as layers that were frozen.

    Torch's fused step asks for the momentum of all parameters, or none. A first momentum is the
    gradient, which 0 becomes by a step without dampening; with it the step is not fused any more.
    """
    if len(optimizer.state) == sum(len(group["params"]) for group in optimizer.param_groups):
        return
    learns = [param for param in group["params"] if param.grad is not None]
    states = [optimizer.state.get(param, {}) for param in learns]
    late = [state.get("momentum_buffer") is None for state in states]
    if all(late) or not any(late):
        return
    if group["dampening"] != 0:
        group.update(fused=False, foreach=True)
        return
    for param, begins in zip(learns, late, strict=True):
        if begins:
            optimizer.state[param]["momentum_buffer"] = torch.zeros_like(param)


def _is_ours(param: Tensor) -> bool:
    if type(param) not in (Tensor, torch.nn.Parameter):
        return False  # torch's tensors of several devices have no rule for every fused step
    if param.grad is not None and param.grad.layout is not torch.strided:
        return False
    return param.device.type == "ocl" and param.is_floating_point()


OPERATORS: dict[str, Callable[..., Any]] = {
    "_fused_adam_": fused_adam,
    "_fused_adam_.tensor_lr": fused_adam,
    "_fused_adamw_": fused_adamw,
    "_fused_adamw_.tensor_lr": fused_adamw,
    "_fused_sgd_": fused_sgd,
    "_fused_sgd_.tensor_lr": fused_sgd,
}
"""Implementations by aten name."""
