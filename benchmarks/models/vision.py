"""Vision models: torchvision's with random weights, a detector's parts, and a small U-Net."""

from __future__ import annotations

import itertools
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

import ocl_backend  # noqa: F401 (lets torchvision be imported)
from benchmarks.models.case import Case, flat

CONVOLUTIONAL = (
    *("alexnet", "resnet18", "resnet50", "convnext_small", "vgg16", "squeezenet1_0", "googlenet"),
    *("densenet161", "inception_v3", "shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_large"),
    *("mobilenet_v3_small", "resnext50_32x4d", "wide_resnet50_2", "mnasnet1_0"),
    *("efficientnet_b0", "efficientnet_b4", "regnet_y_400mf"),
)
"""The networks whose results OpenCL backends of PyTorch publish."""
SMALLEST = {"inception_v3": 299}  # its second head takes 17 x 17 items apart
DETECTOR = "fasterrcnn_mobilenet_v3_large_320_fpn"


def models() -> Any:
    """Return the module `torchvision.models`."""
    return import_module("torchvision.models")


def images(size: int) -> tuple[Tensor]:
    """Return a batch of two."""
    return (torch.randn(2, 3, size, size),)


def classifier(name: str, size: int) -> nn.Module:
    """Return torchvision's network; a transformer's head is drawn, for torchvision leaves zeros."""
    if not name.startswith("vit"):
        network: nn.Module = getattr(models(), name)(weights=None)
        return network
    transformer: Any = getattr(models(), name)(weights=None, image_size=size)
    nn.init.normal_(transformer.heads.head.weight, std=0.02)
    made: nn.Module = transformer
    return made


class Steps(nn.Sequential):
    """Two 3x3 convolutions, each normalised and cut at zero."""

    def __init__(self, channels: int, out: int) -> None:
        layers: list[nn.Module] = []
        for given in (channels, out):
            layers += [nn.Conv2d(given, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """Three scales down and up again, beside what was seen on the way (Ronneberger 2015)."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(Steps, (3, *widths), widths))
        pairs = list(itertools.pairwise(widths))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, few, 2, 2) for few, wide in pairs)
        self.join = nn.ModuleList(Steps(2 * few, few) for few, _ in pairs)
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return two scores per pixel."""
        seen: list[Tensor] = []
        for step in self.down:
            x = step(x if not seen else nn.functional.max_pool2d(x, 2))
            seen.append(x)
        for up, join, before in zip(self.up, self.join, seen[-2::-1], strict=True):
            x = join(torch.cat([up(x), before], 1))
        scores: Tensor = self.last(x)
        return scores


def detector(size: int) -> nn.Module:
    """Return Faster R-CNN on MobileNet v3 with random weights, which leaves images at this size."""
    network: nn.Module = getattr(models().detection, DETECTOR)(
        weights=None, weights_backbone=None, min_size=size, max_size=size
    )
    return network


def detect(network: Any, x: Tensor) -> Tensor:
    """Return what the heads say of images and fixed boxes: proposals by rounded scores jump."""
    features = network.backbone(x)
    scores, boxes = network.rpn.head(list(features.values()))
    corners = x.new_tensor([[3.0, 5.0, 40.0, 30.0], [10.0, 2.0, 60.0, 61.0]])
    pooled = network.roi_heads.box_roi_pool(features, [corners] * len(x), [x.shape[-2:]] * len(x))
    found = network.roi_heads.box_predictor(network.roi_heads.box_head(pooled))
    return flat([*scores, *boxes, *found])


def detects(network: nn.Module, twin: Any, device: torch.device) -> str:
    """Check that losses and detections of whole images are finite on the device.

    Args:
        network: on the CPU; not run.
        twin: the same on `device`.
        device: what is checked.

    Returns:
        A note for the table.

    Raises:
        AssertionError: a loss or a detection is not finite.
    """
    size = twin.transform.max_size
    given = [torch.rand(3, size, size, device=device) for _ in range(2)]
    boxes = torch.tensor([[8.0, 8.0, 40.0, 50.0]], device=device)
    target = {"boxes": boxes, "labels": torch.ones(1, dtype=torch.int64, device=device)}
    losses = sum(twin.train()(given, [target, target]).values())
    losses.backward()
    with torch.no_grad():
        found = twin.eval()(given)[0]
    assert all(bool(value.isfinite().all()) for value in (losses, *found.values()))
    return f"{len(found['boxes'])} boxes found"


CASES = (
    *(
        Case(name, partial(classifier, name), images, smallest=SMALLEST.get(name, 0))
        for name in CONVOLUTIONAL
    ),
    Case("vit_b_16", partial(classifier, "vit_b_16"), images),
    Case("swin_t", partial(classifier, "swin_t"), images),
    Case("fasterrcnn", detector, images, detect, detects),
    Case("unet", lambda _: UNet(), images),
)
