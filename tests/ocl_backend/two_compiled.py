"""A program of two processes that torchrun starts: FSDP2 under `torch.compile`, and checkpoints."""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def sharded() -> tuple[nn.Sequential, Any]:
    """Return the same layers whole on the CPU and in shards on the device."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    parts = copy.deepcopy(whole).to("ocl")
    mesh = init_device_mesh("ocl", (2,))
    for layer in (parts[0], parts[2], parts):
        fully_shard(layer, mesh=mesh)
    return whole, parts


def compare_gradients(whole: nn.Module, parts: Any) -> None:
    """Twice: the second call meets parameters that the first one has put back into shards."""
    images = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    whole(images).square().sum().backward()
    compiled = torch.compile(parts, backend="aot_eager")
    for _ in range(2):
        parts.zero_grad()
        compiled(images.to("ocl")).square().sum().backward()
        for ours, theirs in zip(parts.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.full_tensor().cpu(), theirs.grad)


def gathered(shards: dict[str, Any]) -> dict[str, Tensor]:
    return {name: shard.full_tensor().cpu() for name, shard in shards.items()}


def compare_checkpoint(parts: nn.Module, folder: str) -> None:
    """What a thread saves while the program goes on is what `load` fills other shards with."""
    before = gathered(get_model_state_dict(parts))
    saving: Any = async_save(get_model_state_dict(parts), checkpoint_id=folder)
    with torch.no_grad():
        for parameter in parts.parameters():
            parameter.zero_()
    saving.result()
    shards = get_model_state_dict(parts)
    assert not any(tensor.any() for tensor in gathered(shards).values())
    load(shards, checkpoint_id=folder)
    for name, tensor in gathered(shards).items():
        assert torch.equal(tensor, before[name]), name


def main() -> None:
    dist.init_process_group()
    rank = dist.get_rank()
    whole, parts = sharded()
    compare_gradients(whole, parts)
    with tempfile.TemporaryDirectory() as own:
        folders = [own]
        dist.broadcast_object_list(folders, 0)
        compare_checkpoint(parts, folders[0])
        dist.barrier()  # a process that still reads needs the other one's folder
    dist.destroy_process_group()
    print(f"process {rank} agrees\n", end="")  # one write, which the other process cannot cut


if __name__ == "__main__":
    import ocl_backend  # noqa: F401
    from tests import sampled_builds

    sampled_builds.begin()
    main()
