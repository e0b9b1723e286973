"""What `nn.DataParallel` scatters and gathers, where torch was built without CUDA.

Such a torch has the module, but not the functions below it that copy. So functions in
`torch.nn.parallel.comm` are replaced by others that use copies which any device knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import comm


def register() -> None:
    """Put `scatter`, `gather` and `broadcast_coalesced` in place of those that torch lacks."""
    if not hasattr(torch._C, "_scatter"):
        functions: Any = comm
        functions.scatter = scatter
        functions.gather = gather
        functions.broadcast_coalesced = broadcast_coalesced


def scatter(
    tensor: Tensor,
    devices: Sequence[Any],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
) -> tuple[Tensor, ...]:
    """Return a part of `tensor` on each of `devices`, on fewer if it is too short.

    Args:
        tensor: of any shape and device; a complex one is scattered as pairs of real numbers.
        devices: where the parts go.
        chunk_sizes: their lengths; None: equal ones.
        dim: the dimension that is cut.
        streams: unused; a copy waits for none.
    """
    del streams
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    sizes = None if chunk_sizes is None else list(chunk_sizes)
    parts = tensor.chunk(len(devices), dim) if sizes is None else torch.split(tensor, sizes, dim)
    return tuple(part.to(_place(at)) for part, at in zip(parts, devices, strict=False))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None) -> Tensor:
    """Return `tensors` of several devices joined along `dim` on one, complex ones as pairs.

    Args:
        tensors: equal in shape except for `dim`.
        dim: the dimension that grows.
        destination: the device of the result; None: the current one, -1: the CPU.
    """
    at = _place(torch.accelerator.current_device_index() if destination is None else destination)
    parts = [tensor.to(at) for tensor in tensors]
    return torch.cat([torch.view_as_real(p) if p.is_complex() else p for p in parts], dim)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 0
) -> list[list[Tensor]]:
    """Return copies of `tensors` for each of `devices`; where they lie they are not copied.

    Args:
        tensors: of any shapes, on one device.
        devices: where the copies go.
        buffer_size: unused; tensors are copied one by one.
    """
    del buffer_size
    return [[tensor.to(_place(at)) for tensor in tensors] for at in devices]


def _place(device: Any) -> torch.device:
    if isinstance(device, int):
        return torch.device("cpu") if device < 0 else torch.device("ocl", device)
    return torch.device(device)
