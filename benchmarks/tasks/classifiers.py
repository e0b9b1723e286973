"""The classifiers of images that seeds draw: torchvision's by their names, timm's as `timm.NAME`.

timm's images and multiply-adds are of its own table
(huggingface/pytorch-image-models, results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv).
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

SIZE, CLASSES = 224, 1000
"""Height and width of most networks' images, and scores per image."""
TABLE = Path(__file__).parents[1] / "data/classifiers.csv"
"""What may be drawn. Left out are those of torchvision that return more than scores in training
(GoogLeNet, Inception) or want larger images (Swin v2), and the forty networks whose problems are
tuned (`benchmarks.shapes.networks`)."""
TIMM = "timm."
"""What names of timm's networks begin with."""


class Classifier(NamedTuple):
    """Height and width of its images, and 1e9 multiply-adds per image."""

    side: int
    gmacs: float


@cache
def classifiers() -> dict[str, Classifier]:
    """Return all of them by name."""
    with TABLE.open(newline="") as file:
        rows = csv.DictReader(file)
        return {row["network"]: Classifier(int(row["side"]), float(row["gmacs"])) for row in rows}


def made(name: str, device: str) -> nn.Module:
    """Return the network with random weights, in torch's default device.

    Args:
        name: of `classifiers`, or any other name of torchvision.
        device: torch's name of what computes.

    Raises:
        ImportError: its library is not installed.
    """
    models = models_beside(device)
    network: nn.Module
    if name.startswith(TIMM):
        timm = import_module("timm")
        network = timm.create_model(name.removeprefix(TIMM), num_classes=CLASSES)
    else:
        network = getattr(models, name)(weights=None)
    return network


def models_beside(device: str, library: str = "torchvision.models") -> Any:
    """Return a library of models; beside CUDA `ocl` stays out, for torch has one accelerator.

    Args:
        device: torch's name of what computes.
        library: module; all of them import torchvision.
    """
    if device != "cuda":
        import ocl_backend  # noqa: F401 (lets torchvision be imported beside any build of torch)
    return import_module(library)
