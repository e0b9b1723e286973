"""Networks on sizes that vary, on a GPU that is not here: which texts they ask for, what comes out.

    OCLGEN_DEVICE_PROFILE=tests/ocl_backend/wide_gpu.toml \
        python -m tests.ocl_backend.varying_on_gpu cnn channels_last texts,cp_async

`texts` prints how many texts there were after each size, trained and evaluated; kernels are empty,
so that a size takes milliseconds, and no result is one. Instructions may follow, which the profile
does not show: no kernel runs that asks for them. `results` prints how far results and
gradients are from the CPU's. For `norm` the sizes are those of `NORMS`.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ocl_backend  # noqa: F401  (registers the device)
from oclgen.opencl.device import Device, devices
from tests import sampled_builds

KERNEL = re.compile(r"\b(?:__)?kernel\b[^;{}]*?\bvoid\s+(\w+)\s*\(([^)]*)\)\s*\{")
ZEROED = re.compile(r"\bpointwise_(?:fill|zero)\w*_kernel\b")
"""Kernels that are not empty: what notes faults has to begin with zeros."""
COUNT = 22
"""Sizes: some more than those that may have programs of their own."""

NORMS = ((2, 16, 8, 8), (3, 32, 5, 7), (5, 48, 4, 9))
"""Images whose normalisation shares all texts."""

Size = tuple[int, ...]


class Words(nn.Module):
    """A small transformer that puts each of the words into a class."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.out = nn.Linear(32, 5)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [batch, classes, length] of words [batch, length]."""
        scores: Tensor = self.out(self.layer(self.embedding(words)))
        return scores.transpose(1, 2)


def cnn() -> nn.Module:
    """A convolution of each kind: many and few channels, depthwise, pointwise; pooled twice."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 24, 3, groups=24, padding=1), nn.Conv2d(24, 16, 3, stride=2), nn.ReLU(),
        nn.Conv2d(16, 12, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
    )  # fmt: skip


class Case(NamedTuple):
    """A network, how its sizes are drawn, each within one range of `varying`, and its batches."""

    network: Callable[[], Any]
    draw: Callable[[random.Random], Size]
    batch: Callable[[Size], Tensor]


class Norm(nn.Module):
    """A normalisation for each number of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleDict({str(size[1]): nn.BatchNorm2d(size[1]) for size in NORMS})

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [batch, classes, height, width] of images."""
        normal: Tensor = self.norms[str(x.shape[1])](x)
        return normal


CASES = {
    "mlp": Case(
        lambda: nn.Sequential(nn.Linear(19, 33), nn.ReLU(), nn.Linear(33, 5)),
        lambda draw: (draw.randint(17, 64),),
        lambda size: torch.randn(*size, 19),
    ),
    "cnn": Case(
        cnn, lambda draw: (draw.randint(17, 64),), lambda size: torch.randn(*size, 3, 14, 14)
    ),
    "transformer": Case(
        Words,
        lambda draw: (draw.randint(9, 16), draw.randint(32, 64)),
        lambda size: torch.randint(50, size),
    ),
    "norm": Case(Norm, lambda draw: draw.choice(NORMS), lambda size: torch.randn(*size)),
}


def empty(source: str) -> str:
    """Return a text with the same kernels and arguments that does nothing."""
    lines = re.findall(r"^typedef \w+ INDEX;$", source, re.MULTILINE)
    for name, arguments in KERNEL.findall(source):
        given = [
            re.sub(r"\b(const|restrict|volatile)\b|\w+_t\b(?=.*\*)", " ", one)
            for one in arguments.split(",")
        ]
        kinds = [
            "__global char *p" if "*" in one else " ".join(one.split()[:-1]) + " p" for one in given
        ]
        listed = ", ".join(f"{kind}{place}" for place, kind in enumerate(kinds))
        lines.append(f"__kernel void {name}({listed}) {{}}")
    return "\n".join(lines) + "\n"


def noted(device: Device) -> dict[str, None]:
    """Return the texts that a device is asked for from now on; it builds empty ones."""
    texts: dict[str, None] = {}

    def find(source: str) -> Any:
        texts[source] = None
        return device.programs.get(source if ZEROED.search(source) else empty(source))

    device.ahead.find = find  # type: ignore[method-assign]
    return texts


def sizes_of(case: Case) -> list[Size]:
    """Return the sizes of a case, all different."""
    draw, sizes = random.Random(0), dict[Size, None]()
    while len(sizes) < (len(NORMS) if case.network is Norm else COUNT):
        sizes[case.draw(draw)] = None
    return list(sizes)


def step(network: nn.Module, x: Tensor, where: str, layout: torch.memory_format) -> list[Tensor]:
    """Return the scores in evaluation, the loss and all gradients."""
    x = x.to(where, memory_format=layout) if x.dim() == 4 else x.to(where)
    network.zero_grad()
    scores = network(x)
    targets = torch.arange(scores[:, 0].numel()).reshape(scores[:, 0].shape) % 5
    loss = nn.functional.cross_entropy(scores, targets.to(where))
    loss.backward()
    grads = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    with torch.no_grad():
        evaluated = network.eval()(x)
    network.train()
    return [evaluated, loss, *grads]


def texts(case: Case, layout: torch.memory_format, instructions: frozenset[str]) -> list[int]:
    """Return how many texts there were after each size."""
    device = devices()[0]
    device.limits = replace(device.limits, instructions=instructions)
    met, counts = noted(device), list[int]()
    network = case.network().to("ocl", memory_format=layout)
    for size in sizes_of(case):
        step(network, case.batch(size), "ocl", layout)
        torch.get_device_module("ocl").synchronize()
        counts.append(sum("batch_norm" in text or case.network is not Norm for text in met))
    return counts


def results(case: Case, layout: torch.memory_format) -> list[float]:
    """Return the largest difference from the CPU's results after each size, over their size."""
    torch.manual_seed(0)
    here = case.network()
    there = case.network().to("ocl", memory_format=layout)
    there.load_state_dict(here.state_dict())
    found = []
    for size in sizes_of(case)[:7]:
        x = case.batch(size)
        wanted = [tensor.detach() for tensor in step(here, x, "cpu", layout)]
        got = [tensor.detach().cpu() for tensor in step(there, x, "ocl", layout)]
        pairs = zip(got, wanted, strict=True)
        found.append(max(float((a - b).norm() / b.norm().clamp(1e-3)) for a, b in pairs))
    return found


if __name__ == "__main__":
    sampled_builds.begin()
    name, kind, asked = sys.argv[1:]
    what, *given = asked.split(",")
    arrangement = getattr(torch, kind)
    if what == "texts":
        print(json.dumps(texts(CASES[name], arrangement, frozenset(given))))
    else:
        print(json.dumps(results(CASES[name], arrangement)))
