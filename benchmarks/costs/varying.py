"""Trains networks on batches and sequences whose sizes vary, and says what that costs.

    python -m benchmarks varying --steps 2000 --seed 0

All columns are of the steps after the first `SETTLING`, which meet most sizes of a network:
`built` is the number of programs that were built; `grown` how much the host memory in use grew at
most; `median` and `p95` are wall times of a step, `ratio` is p95 / median. `known` is that where
all sizes are known: the last steps run three times more, and only the third time counts.

Work grows with its size, so part of `ratio` are the sizes themselves. `spread` leaves them out:
steps are put in the order of their items (the product of a size), each step's time is divided by
the median of the `NEAR` steps before and the `NEAR` behind it and its own, and `spread` is the 95 %
quantile of these quotients. 1 says that steps of nearly one size take one time.

torch's own CPU makes the same steps, by turns of `TURN` steps: `torch` is its median, `torch_ratio`
its p95 / median and `torch_spread` its `spread`. `of_median`, `of_p95` and `of_worst` are our times
over its, of the median, of p95 and of the slowest step. `first` and `later` are the mean of our
time over its at the sizes of steps that meet a size for the first time, and at those of all others.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from math import nan, prod
from pathlib import Path
from statistics import fmean, median, quantiles
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn

import ocl_backend  # noqa: F401  (registers the device)
from oclgen.opencl.device import devices

SETTLING = 50
"""Steps at the beginning whose programs and memory are not counted."""
TURN = 100
"""Steps of a turn: threads of torch's wait a little for more work, in the first step of ours."""
AGAIN = 100
"""Steps that are made again, to tell what sizes cost that are known."""
NEAR = 20
"""Steps on each side of one in the order of sizes, whose median says what its size takes."""
MIB = 2**20
ocl = torch.get_device_module("ocl")

Size = tuple[int, ...]
Draw = Callable[[random.Random], Size]
Batch = Callable[[Size], tuple[Tensor, Tensor]]


class Case(NamedTuple):
    """A network, the sizes that are drawn for a step, and the batch of such a size."""

    network: Callable[[], nn.Module]
    draw: Draw
    batch: Batch


class Row(NamedTuple):
    """What a case's steps cost; times in milliseconds, memory in MiB."""

    case: str
    steps: int
    seed: int
    sizes: int
    built_first: int
    built: int
    grown: float
    median: float
    p95: float
    ratio: float
    spread: float
    known: float
    torch: float
    torch_ratio: float
    torch_spread: float
    of_median: float
    of_p95: float
    of_worst: float
    first: float
    later: float


class Words(nn.Module):
    """A small transformer that says for each of a text's words which of `CLASSES` it is."""

    def __init__(self, words: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [batch, classes, length] of words [batch, length]."""
        scores: Tensor = self.head(self.layers(self.embedding(words)))
        return scores.transpose(1, 2)


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 64, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


CASES: dict[str, Case] = {
    "mlp": Case(
        _mlp,
        lambda draw: (draw.randint(1, 400),),
        lambda size: (torch.randn(*size, 256), torch.randint(10, size)),
    ),
    "cnn": Case(
        _cnn,
        lambda draw: (draw.randint(1, 32),),
        lambda size: (torch.randn(*size, 3, 32, 32), torch.randint(10, size)),
    ),
    "transformer": Case(
        lambda: Words(1000, 128, 10),
        lambda draw: (draw.randint(1, 16), draw.randint(4, 64)),
        lambda size: (torch.randint(1000, size), torch.randint(10, size)),
    ),
}


def main(
    device: str, names: tuple[str, ...], steps: int, seed: int, kept: Path | None
) -> list[Row]:
    """Print and return a row per case.

    Args:
        device: an ocl device.
        names: of the cases.
        steps: of each case, more than `SETTLING`.
        seed: draws sizes, weights and batches.
        kept: a file of JSON that the rows are written to.
    """
    print(" ".join(f"{name:>11}" for name in Row._fields))
    rows = []
    for name in names:
        rows.append(row := measured(name, torch.device(device), steps, seed))
        print(" ".join(f"{_shown(value):>11}" for value in row), flush=True)
    if kept is not None:
        kept.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return rows


def measured(name: str, device: torch.device, steps: int, seed: int) -> Row:
    """Train one case's network.

    Args:
        name: of the case.
        device: an ocl device.
        steps: how many, more than `SETTLING`.
        seed: draws sizes, weights and batches.

    Raises:
        ValueError: there are too few steps.
    """
    if steps <= SETTLING:
        raise ValueError(f"{steps} steps are too few: the first {SETTLING} are not counted")
    torch.manual_seed(seed)
    case, draw = CASES[name], random.Random(seed)
    sizes = [case.draw(draw) for _ in range(steps)]
    step, theirs = _training(case, device), _training(case, torch.device("cpu"))
    built = _count_builds()
    for one in (step, theirs):
        list(_timed(one, sizes[:SETTLING]))
    first, before = built(), resident()
    most = before
    counted: list[float] = []
    torchs: list[float] = []
    for begin in range(SETTLING, steps, TURN):
        turn = sizes[begin : begin + TURN]
        torchs += _timed(theirs, turn)
        for at, time in enumerate(_timed(step, turn)):
            counted.append(time)
            if at % 10 == 0:
                most = max(most, resident())
    most = max(most, resident())
    again = [list(_timed(step, sizes[-AGAIN:])) for _ in range(3)][-1]
    return Row(
        name, steps, seed, len(set(sizes)), first, built() - first, (most - before) / MIB,
        median(counted), _p95(counted), _ratio(counted), spread(sizes[SETTLING:], counted),
        _ratio(again), median(torchs), _ratio(torchs), spread(sizes[SETTLING:], torchs),
        median(counted) / median(torchs), _p95(counted) / _p95(torchs), max(counted) / max(torchs),
        *_by_news(sizes, counted, torchs),
    )  # fmt: skip


def _by_news(
    sizes: Sequence[Size], ours: Sequence[float], torchs: Sequence[float]
) -> tuple[float, float]:
    """Return the mean of our time over torch's at first meetings of a size, and at all others.

    Args:
        sizes: of all steps, those of `SETTLING` among them.
        ours: milliseconds of the steps behind these.
        torchs: the same of torch's own.
    """
    met = set(sizes[:SETTLING])
    ratios: tuple[list[float], list[float]] = [], []
    for size, our, their in zip(sizes[SETTLING:], ours, torchs, strict=True):
        ratios[size in met].append(our / their)
        met.add(size)
    first, later = (fmean(found) if found else nan for found in ratios)
    return first, later


def spread(sizes: Sequence[Size], times: Sequence[float]) -> float:
    """Return p95 of each step's time over the median time of steps of nearly its size.

    Args:
        sizes: of two steps or more.
        times: of the same steps.
    """
    order = sorted(range(len(sizes)), key=lambda step: prod(sizes[step]))
    ordered = [times[step] for step in order]
    near = (ordered[max(0, at - NEAR) : at + NEAR + 1] for at in range(len(ordered)))
    return _p95([time / median(some) for time, some in zip(ordered, near, strict=True)])


def _training(case: Case, device: torch.device) -> Callable[[Size], None]:
    """Return a step of training on a batch of a size, which ends when the device has done it."""
    network = case.network().to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step(size: Size) -> None:
        inputs, targets = (tensor.to(device) for tensor in case.batch(size))
        optimizer.zero_grad()
        loss_of(network(inputs), targets).backward()
        optimizer.step()
        if device.type == "ocl":
            ocl.synchronize()

    return step


def _timed(step: Callable[[Size], None], sizes: list[Size]) -> Iterator[float]:
    """Yield the milliseconds of each step."""
    for size in sizes:
        begin = perf_counter()
        step(size)
        yield 1e3 * (perf_counter() - begin)


def _count_builds() -> Callable[[], int]:
    """Return what counts the programs that all devices have built from text since now."""
    tallies = [device.programs.tally for device in devices()]
    return lambda: sum(tally.built + tally.loaded for tally in tallies)


def resident() -> int:
    """Return the bytes of memory that this process has in use.

    Raises:
        OSError: the system has no /proc.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20)[-1]


def _ratio(times: Sequence[float]) -> float:
    return _p95(times) / median(times)


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
