"""Sends tensors to other processes as copies through the host; OpenCL cannot share its memory.

`torch.multiprocessing` shares a tensor's memory, and reports tensors of every accelerator as
shared. Here a copy is sent, and a call that asks for shared memory raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions


def register() -> None:
    """Register how tensors are sent to other processes, and what says whether memory is shared."""
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce)
    storage: Any = torch.UntypedStorage
    storage.share_memory_ = _refusing(storage.share_memory_)
    storage.is_shared = _denying(storage.is_shared)


def reduce(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    """Return how to rebuild `tensor` in another process: for one of this device from a host copy.

    Raises:
        RuntimeError: the tensor is a result that autograd recorded.
    """
    if tensor.device.type != "ocl" or tensor.layout is not torch.strided or tensor.is_nested:
        rebuild, arguments = reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        return rebuild, arguments
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "a tensor that autograd recorded cannot go to another process, which has no part of "
            "its graph: send tensor.detach()"
        )
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return _rebuild, (tensor.detach().cpu(), tensor.device, is_parameter, tensor.requires_grad)


def _rebuild(
    host: torch.Tensor, device: torch.device, is_parameter: bool, requires_grad: bool
) -> torch.Tensor:
    tensor = host.to(device)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _refusing(share: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(share)
    def share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "ocl":
            raise RuntimeError(
                f"memory of {self.device} cannot be shared between processes: a tensor that is "
                "sent to one is copied; to share one, share_memory_() it on the CPU"
            )
        return share(self, *args, **kwargs)

    return share_memory_


def _denying(ask: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(ask)
    def is_shared(self: torch.UntypedStorage) -> bool:
        return self.device.type != "ocl" and ask(self)

    return is_shared
