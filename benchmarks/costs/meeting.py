"""Sums into places that may meet: owners, atomics and torch's CPU by turns, typical and drawn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

import ocl_backend  # noqa: F401  (registers the device)
from ocl_backend.kernels import scatter
from ocl_backend.ops.image import grid_sample
from ocl_backend.ops.vision import deformable, regions

DTYPES = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int64": torch.int64,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A sum: `rows` values of `columns` items each are added to `places` rows.

    `operator` is `index_add`, `scatter_add`, `index_put` with `accumulate`, or `embedding`, whose
    backward it is.
    """

    operator: str
    rows: int
    places: int
    columns: int = 1

    def __str__(self) -> str:
        width = f" x {self.columns}" if self.columns > 1 else ""
        return f"{self.operator}, {self.rows}{width} to {self.places}"

    def tensors(self, dtype: torch.dtype, generator: torch.Generator) -> list[Tensor]:
        """Return target, index and values."""
        shape = (self.rows, self.columns) if self.columns > 1 else (self.rows,)
        value = torch.randint(-9, 9, shape, generator=generator).to(dtype)
        index = torch.randint(0, self.places, (self.rows,), generator=generator)
        target = torch.zeros((self.places, *shape[1:]), dtype=dtype)
        return [target, index, value]

    def run(self, target: Tensor, index: Tensor, value: Tensor) -> None:
        """Call the operator.

        Args:
            target: rows that are added to, [places, columns]; an embedding makes its own.
            index: of rows, [rows] int64.
            value: rows that are added, [rows, columns].
        """
        if self.operator == "index_put":
            target.index_put_((index,), value, accumulate=True)
        elif self.operator == "index_add":
            target.index_add_(0, index, value)
        elif self.operator == "scatter_add":
            rows = index.view(-1, *(1 for _ in value.shape[1:])).expand_as(value)
            target.scatter_add_(0, rows, value)
        else:
            torch.ops.aten.embedding_dense_backward(value, index, self.places, -1, False)


@dataclass(frozen=True)
class Sampled:
    """The gradient of images [n, c, h, w] (or volumes) from samples: `operator` names the case.

    Without compiled operators of torchvision the CPU's are compositions of torch's operators.
    """

    operator: str
    size: tuple[int, ...]

    def __str__(self) -> str:
        return f"gradient of `{self.operator}`, {' x '.join(map(str, self.size))}"

    def tensors(self, dtype: torch.dtype, generator: torch.Generator) -> list[Tensor]:
        """Return images, and what says where they are sampled."""
        x = torch.randn(self.size, generator=generator).to(dtype)
        n, c, *sides = self.size
        if self.operator == "grid_sample":
            turned = torch.eye(len(sides), len(sides) + 1) + 0.1 * torch.randn(
                (n, len(sides), len(sides) + 1), generator=generator
            )
            return [
                x,
                functional.affine_grid(turned, [n, 1, *sides], align_corners=False).to(dtype),
            ]
        if self.operator == "deform_conv2d":
            moves = torch.randn((n, 18, *sides), generator=generator).to(dtype)
            return [x, moves, torch.randn((c, c, 3, 3), generator=generator).to(dtype)]
        low = torch.rand((256, 2), generator=generator) * sides[0] * 0.7
        image = torch.randint(0, n, (256, 1), generator=generator)
        wide = 4 + torch.rand((256, 2), generator=generator) * sides[0] * 0.3
        return [x, torch.cat([image, low, low + wide], 1).to(dtype)]

    def prepared(self, tensors: list[Tensor]) -> Callable[[], None]:
        """Return the backward pass alone, of tensors on a device."""
        x, where, *weight = (tensor.detach().requires_grad_() for tensor in tensors)
        ops = import_module("torchvision.ops")
        if self.operator == "grid_sample":
            y = functional.grid_sample(x, where, align_corners=False)
        elif self.operator == "deform_conv2d":
            y = ops.deform_conv2d(x, where, *weight, padding=1)
        else:
            y = getattr(ops, self.operator)(x, where.detach(), (7, 7))
        grad = torch.ones_like(y)

        def backward() -> None:
            torch.autograd.grad(y, [x], grad, retain_graph=True)

        return backward


SAMPLED = (
    Sampled("grid_sample", (4, 16, 64, 64)),
    Sampled("grid_sample", (1, 3, 256, 256)),
    Sampled("grid_sample", (2, 8, 16, 32, 32)),
    Sampled("roi_align", (2, 64, 50, 50)),
    Sampled("ps_roi_align", (2, 490, 50, 50)),
    Sampled("roi_pool", (2, 64, 50, 50)),
    Sampled("deform_conv2d", (2, 32, 32, 32)),
)

TYPICAL = (
    Case("embedding", 4096, 50_000, 768),
    Case("scatter_add", 1_000_000, 100_000, 16),
    Case("index_put", 1_000_000, 1000),
    Case("scatter_add", 1_000_000, 1_000_000),
    Case("index_add", 4096, 1000, 64),
)


def drawn(generator: torch.Generator) -> Iterator[Case]:
    """Return cases without end, sizes and all."""
    while True:
        pick = torch.rand(4, generator=generator).tolist()
        columns = max(1, int(2 ** (10 * pick[0]) - 1))
        rows = int(2 ** (8 + 14 * pick[1]) / columns) + 16
        operator = ("index_add", "scatter_add", "index_put")[int(3 * pick[3])]
        yield Case(operator, rows, int(2 ** (4 + 13 * pick[2])), columns)


def _least(calls: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the least wall and processor time of each, ms, by turns."""
    least = {name: (float("inf"), float("inf")) for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            wall, own = time.perf_counter(), time.process_time()
            call()
            wall, own = time.perf_counter() - wall, time.process_time() - own
            least[name] = (min(least[name][0], wall * 1e3), min(least[name][1], own * 1e3))
    return least


def main(device: str, dtypes: tuple[str, ...], draws: int, seed: int, rounds: int) -> None:
    """Print a table: the least times of all three, and how many times as fast owners are.

    Args:
        device: of torch.
        dtypes: of values, by short names.
        draws: how many cases are drawn beside the typical ones.
        seed: draws them, and all values.
        rounds: turns of each.
    """
    generator = torch.Generator().manual_seed(seed)
    source = drawn(generator)
    cases = [*TYPICAL, *(next(source) for _ in range(draws))]
    print(f"seed {seed}, {torch.get_num_threads()} threads; least of {rounds} by turns, ms of wall "
          "(processor) time")  # fmt: skip
    print("| | dtype | owners | atomics | torch's CPU | times atomics | times torch |")
    print("|---|---|---|---|---|---|---|")
    for case in cases:
        for dtype in dtypes:
            if case.operator == "embedding" and not DTYPES[dtype].is_floating_point:
                continue
            host = case.tensors(DTYPES[dtype], generator)
            there = [tensor.to(device) for tensor in host]
            calls = {
                "owners": partial(_on_device, case, there),
                "atomics": partial(_by_atomics, case, there),
                "torch": partial(case.run, *host),
            }
            _print_row(str(case), dtype, calls, rounds)
    for sampled in SAMPLED:
        images = sampled.tensors(torch.float32, generator)
        backward = sampled.prepared([tensor.to(device) for tensor in images])
        turns: dict[str, Callable[[], None]] = {
            "owners": partial(_waited, backward, device),
            "atomics": partial(_sampled_by_atomics, backward, device),
            "torch": sampled.prepared(images),
        }
        _print_row(str(sampled), "fp32", turns, rounds)


def _print_row(name: str, dtype: str, calls: Mapping[str, Callable[[], None]], rounds: int) -> None:
    _least(calls, 2)
    row = _least(calls, rounds)
    mine, theirs, torchs = (row[name] for name in ("owners", "atomics", "torch"))
    cells = " | ".join(f"{wall:.2f} ({own:.2f})" for wall, own in row.values())
    print(f"| {name} | {dtype} | {cells} | {theirs[0] / mine[0]:.1f} | "
          f"{torchs[0] / mine[0]:.1f} |", flush=True)  # fmt: skip


def _waited(call: Callable[[], None], device: str) -> None:
    call()
    torch.accelerator.synchronize(torch.device(device))


def _sampled_by_atomics(call: Callable[[], None], device: str) -> None:
    with ExitStack() as patched:
        for module in (grid_sample, regions, deformable):
            patched.enter_context(patch.object(module, "owned_parts", lambda *_: 0))
        patched.enter_context(patch.object(scatter, "combine_owned", lambda *_: False))
        _waited(call, device)


def _on_device(case: Case, tensors: list[Tensor]) -> None:
    case.run(*tensors)
    torch.accelerator.synchronize(tensors[0].device)


def _by_atomics(case: Case, tensors: list[Tensor]) -> None:
    with patch.object(scatter, "combine_owned", lambda *_: False):
        _on_device(case, tensors)
