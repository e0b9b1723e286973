"""A program of two processes that torchrun starts: everything on the device agrees with the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed._functional_collectives import all_reduce as functional_all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

Made = Callable[..., Tensor]
"""Makes a tensor of some numbers on the device that is tried."""


def reduced(made: Made, rank: int) -> list[Tensor]:
    tensors = [made(rank + 1, 2), made(rank, 7), made(5, rank), made(rank - 1, 2)]
    dist.all_reduce(tensors[0])
    dist.all_reduce(tensors[1], dist.ReduceOp.MAX)
    dist.broadcast(tensors[2], 1)
    dist.reduce(tensors[3], 0)
    return tensors if rank == 0 else tensors[:3]


def gathered(made: Made, rank: int) -> list[Tensor]:
    parts = [made(0, 0), made(0, 0)]
    works = [dist.all_gather(parts, made(rank, 3), async_op=True)]
    flat = made(0, 0, 0, 0)
    works.append(dist.all_gather_into_tensor(flat, made(rank, 4), async_op=True))
    here = [made(0, 0), made(0, 0)] if rank == 0 else None
    works.append(dist.gather(made(rank, 5), here, 0, async_op=True))
    for work in works:
        work.wait()
    return [*parts, flat, *(here or [])]


def scattered(made: Made, rank: int) -> list[Tensor]:
    results = [made(0, 0) for _ in range(3)]
    parts = [made(1, 2), made(3, rank)]
    dist.scatter(results[0], parts if rank == 1 else None, 1)
    dist.reduce_scatter(results[1], parts)
    dist.reduce_scatter_tensor(results[2], torch.cat(parts))
    return results


def exchanged(made: Made, rank: int) -> list[Tensor]:
    flat, uneven = made(0, 0), made(0, 0, 0)
    dist.all_to_all_single(flat, made(rank, 10 + rank))
    counts = [1, 2] if rank == 0 else [2, 1]
    dist.all_to_all_single(uneven, made(rank, 7, 8), counts, counts)
    sent, received = made(rank, 6), made(0, 0)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    ):
        work.wait()
    whoever = made(0, 0)
    source = dist.recv(whoever) if rank else dist.send(sent, 1)
    assert source == (0 if rank else None)
    return [flat, uneven, received, whoever]


def futures(made: Made, rank: int) -> list[Tensor]:
    """What DDP's hooks and functional collectives stand on."""
    (first,) = dist.all_reduce(made(rank, 1), async_op=True).get_future().wait()
    return [first, functional_all_reduce(made(rank, 2), "sum", [0, 1]) * 1]


def compare_views_with_gradients(rank: int) -> None:
    """What a process receives is no write for autograd, which forbids some of views."""
    for device in ("cpu", "ocl"):
        leaf = torch.ones(4, device=device, requires_grad=True)
        first, _ = (leaf * (rank + 1)).split(2)
        dist.broadcast(first, 1)
        first.sum().backward()
        assert first.tolist() == [2, 2]
        assert leaf.grad is not None and leaf.grad.tolist() == [rank + 1, rank + 1, 0, 0]


def compare_scaled_sums(rank: int) -> None:
    """FSDP2 asks for them; gloo has none to compare with."""
    scaled = vars(dist)["_make_nccl_premul_sum"](0.5)
    whole = torch.tensor([rank + 1.0, 4.0], device="ocl")
    part = torch.zeros(1, device="ocl")
    dist.reduce_scatter_tensor(part, whole, scaled)
    assert part.item() == (4 if rank else 1.5)
    dist.all_reduce(whole, scaled)
    assert whole.tolist() == [1.5, 4]


def compare_collectives(rank: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for run in (reduced, gathered, scattered, exchanged, futures):

            def make(*numbers: float, device: str, dtype: torch.dtype = dtype) -> Tensor:
                return torch.tensor(numbers, dtype=dtype, device=device)

            ours = run(lambda *n: make(*n, device="ocl"), rank)
            theirs = run(lambda *n: make(*n, device="cpu"), rank)
            assert all(tensor.device.type == "ocl" for tensor in ours), run
            assert [t.tolist() for t in ours] == [t.tolist() for t in theirs], (run, dtype)
    results = [torch.zeros(1 + part, device="ocl") for part in range(2)]
    parts = [torch.full((1 + rank,), 10.0 * rank + part, device="ocl") for part in range(2)]
    dist.all_to_all(results, parts)
    assert [t.tolist() for t in results] == [[rank], [10 + rank] * 2]
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    group = dist.new_group([0, 1])
    dist.barrier(group)
    dist.barrier(device_ids=[torch.accelerator.device_count()])  # takes place on the host
    dist.all_reduce(parts[0][:1], group=group)
    assert parts[0][0] == 10


def trained(rank: int, wrap: Callable[[nn.Module], nn.Module], device: str) -> list[Tensor]:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model = wrap(layers.to(device))
    steps = torch.optim.SGD(model.parameters(), 0.1)
    draw = torch.Generator().manual_seed(rank)
    for _ in range(3):
        steps.zero_grad()
        model(torch.randn(6, 4, generator=draw).to(device)).square().mean().backward()
        steps.step()
    whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
    return [p.detach().cpu() for p in whole]


def sharded(model: Any) -> Any:
    mesh = init_device_mesh("ocl", (2,))
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def kept_on_the_host(model: Any) -> Any:
    """Shards lie on the host between steps."""
    mesh = init_device_mesh("ocl", (2,))
    return fully_shard(model.cpu(), mesh=mesh, offload_policy=CPUOffloadPolicy())


def sharded_as_before(model: Any) -> Any:
    """FSDP's first form, which moves the parameters itself."""
    device = torch.device("ocl", torch.accelerator.current_device_index())
    return FullyShardedDataParallel(model.cpu(), device_id=device, use_orig_params=True)


def compare_training(rank: int) -> None:
    expected = trained(rank, DistributedDataParallel, "cpu")
    for wrap in (DistributedDataParallel, sharded, kept_on_the_host):
        for ours, theirs in zip(trained(rank, wrap, "ocl"), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    mine = trained(rank, sharded_as_before, "ocl")  # a process has a part of some of them
    parts = [len(part) for part in mine]
    for ours, theirs in zip(mine, expected, strict=True):
        whole = theirs.flatten()
        torch.testing.assert_close(
            ours.flatten(), whole[-ours.numel() :] if rank else whole[: ours.numel()]
        )
    assert any(parts)


def normalised(rank: int, device: str) -> list[Tensor]:
    """Train over both processes' images, and return what each layer and image got."""
    torch.manual_seed(0)
    images = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(1))
    mine = slice(2) if rank == 0 else slice(2, None)
    whole = device == "cpu"
    layer: Any = nn.BatchNorm1d(3) if whole else nn.SyncBatchNorm(3).to(device)
    x = (images if whole else images[mine]).to(device).requires_grad_()
    (layer(x) * torch.arange(4, device=device)).sin().sum().backward()
    if not whole:
        dist.all_reduce(layer.weight.grad)
    (image_grads,) = torch.autograd.grad(layer(x).sin().sum(), x)
    image_grads = image_grads[mine] if whole else image_grads
    stats = [layer.running_mean, layer.running_var, layer.weight.grad, image_grads]
    return [tensor.cpu() for tensor in stats]


def compare_normalisation(rank: int) -> None:
    for ours, theirs in zip(normalised(rank, "ocl"), normalised(rank, "cpu"), strict=True):
        torch.testing.assert_close(ours, theirs)


def embedded(rank: int, device: str) -> Tensor:
    """Return the sparse gradient that two processes add."""
    torch.manual_seed(0)
    words = DistributedDataParallel(nn.Embedding(5, 2, sparse=True).to(device))
    words(torch.tensor([rank, 3, 3], device=device)).square().sum().backward()
    gradient = words.module.weight.grad
    assert gradient.is_sparse and gradient.device.type == device
    return gradient.to_dense().cpu()


def joined(rank: int, device: str, by_initial_size: bool) -> Tensor:
    """Return the gradient after processes with unequal numbers of batches; the first ends first."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 1, bias=False).to(device))
    with model.join(divide_by_initial_world_size=by_initial_size):
        for i in range(2 + 2 * rank):
            model(torch.full((2, 3), i + 1.0, device=device)).sum().backward()
    return model.module.weight.grad.cpu()


def compare_joins(rank: int) -> None:
    for by_initial_size in (True, False):
        ours, theirs = (joined(rank, device, by_initial_size) for device in ("ocl", "cpu"))
        torch.testing.assert_close(ours, theirs)


def compare_distributed_tensors() -> None:
    mesh = init_device_mesh("ocl", (2,))
    whole = torch.arange(8.0).reshape(4, 2)
    rows: Any = distribute_tensor(whole.to("ocl"), mesh, [Shard(0)])
    assert rows.to_local().shape == (2, 2)
    product = (rows @ rows.T).redistribute(mesh, [Replicate()]).to_local()
    assert product.device.type == "ocl"
    assert torch.equal(product.cpu(), whole @ whole.T)
    assert rows.sum().full_tensor().item() == 28


def attended(place: Any, stays: bool, kv_heads: int, bias_shape: tuple[int, ...]) -> None:
    """Compare attention that processes share out, and its gradients, with the whole on the CPU."""
    mesh = init_device_mesh("ocl", (2,))
    draw = torch.Generator().manual_seed(2)
    heads = (4, kv_heads, kv_heads, 4)
    *given, grad = (torch.randn(2, count, 5, 8, generator=draw) for count in heads)
    bias = torch.randn(bias_shape, generator=draw) if bias_shape else None
    how: dict[str, Any] = {"enable_gqa": kv_heads < 4, "is_causal": bias is None}
    results = []
    for device in ("cpu", "ocl"):

        def lay(tensor: Tensor, placement: Any = place, device: str = device) -> Any:
            tensor = tensor.detach().to(device)
            return tensor if device == "cpu" else distribute_tensor(tensor, mesh, [placement])

        leaves = [lay(tensor).requires_grad_() for tensor in given]
        mask = None if bias is None else lay(bias, Replicate())
        q, k, v = leaves
        out = nn.functional.scaled_dot_product_attention(q, k, v, mask, **how)
        out.backward(lay(grad))
        results.append([out, *(leaf.grad for leaf in leaves)])
    ours, theirs = results[1], results[0]
    if stays:
        assert all(one.placements == (place,) for one in ours), place
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.full_tensor().cpu(), other)


def compare_attention() -> None:
    attended(Shard(1), True, 4, ())  # heads
    attended(Shard(1), True, 2, ())
    attended(Shard(0), True, 4, ())  # batch
    attended(Replicate(), True, 1, ())
    attended(Shard(2), False, 4, ())  # no process has all rows of a head: they are gathered
    attended(Shard(1), True, 4, (5, 5))
    attended(Shard(0), True, 4, (2, 1, 5, 5))
    attended(Shard(1), True, 4, (1, 4, 1, 5))


def main() -> None:
    dist.init_process_group()  # no name: torch asks which backend serves the accelerator
    rank = dist.get_rank()
    compare_collectives(rank)
    compare_scaled_sums(rank)
    compare_views_with_gradients(rank)
    compare_training(rank)
    compare_normalisation(rank)
    torch.testing.assert_close(embedded(rank, "ocl"), embedded(rank, "cpu"))
    compare_joins(rank)
    compare_distributed_tensors()
    compare_attention()
    dist.destroy_process_group()
    print(f"process {rank} agrees\n", end="")  # one write, which the other process cannot cut


if __name__ == "__main__":
    import ocl_backend  # noqa: F401
    from tests import sampled_builds

    sampled_builds.begin()
    main()
