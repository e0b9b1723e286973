"""Measures the convolution families against torch, side by side in one run, layer by layer.

It keeps nothing; `oclgen tune` is what fills the database. Every family that serves a layer takes
part, and the fastest and the peer take turns, so that a busy machine slows both.

    python benchmarks/conv.py --device 0 --quick
    python benchmarks/conv.py --trials 30 --only resnet50,mobilenet_v2 --direction fwd
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from gemm import Peer, compare, geometric_mean

from oclgen import peak
from oclgen.device import select
from oclgen.problem import DIRECTIONS, DTYPES, ConvProblem

BATCH = {"cpu": 8, "gpu": 64, "other": 8}
LARGE = {"vgg_3x3": 4}
"""Groups whose images are so large that a batch has this many times fewer of them."""


def layer(
    channels: int, size: int, out: int, kernel: int, stride: int = 1, groups: int = 1
) -> ConvProblem:
    """Return a layer on square images with the padding that halves or keeps their size."""
    pad = kernel // 2
    return ConvProblem(
        1, channels, size, size, out, kernel, kernel, stride, stride, pad, pad, groups=groups
    )


def depthwise(channels: int, size: int, stride: int) -> ConvProblem:
    """Return one of MobileNet's 3x3 depthwise layers."""
    return layer(channels, size, channels, 3, stride, groups=channels)


LAYERS: dict[str, list[ConvProblem]] = {
    "resnet_3x3": [layer(c, s, c, 3) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7))],
    "vgg_3x3": [layer(c, s, c, 3) for c, s in ((64, 224), (128, 112), (256, 56), (512, 28))],
    "pointwise": [layer(256, 56, 64, 1), layer(1024, 14, 256, 1), layer(512, 7, 2048, 1)],
    "odd": [layer(128, 28, 256, 3, 2), layer(64, 27, 192, 5)],
    "resnet50": [
        layer(3, 224, 64, 7, 2),
        layer(64, 56, 64, 1),
        layer(64, 56, 256, 1),
        layer(256, 56, 64, 1),
        layer(256, 56, 128, 1),
        layer(128, 56, 128, 3, 2),
        layer(256, 56, 512, 1, 2),
        layer(128, 28, 512, 1),
        layer(512, 28, 128, 1),
        layer(512, 28, 256, 1),
        layer(256, 28, 256, 3, 2),
        layer(512, 28, 1024, 1, 2),
        layer(256, 14, 1024, 1),
        layer(1024, 14, 256, 1),
        layer(1024, 14, 512, 1),
        layer(512, 14, 512, 3, 2),
        layer(1024, 14, 2048, 1, 2),
        layer(512, 7, 2048, 1),
        layer(2048, 7, 512, 1),
    ],
    "vgg16": [
        layer(3, 224, 64, 3),
        layer(64, 224, 64, 3),
        layer(64, 112, 128, 3),
        layer(128, 112, 128, 3),
        layer(128, 56, 256, 3),
        layer(256, 56, 256, 3),
        layer(256, 28, 512, 3),
        layer(512, 28, 512, 3),
        layer(512, 14, 512, 3),
    ],
    "alexnet": [
        replace(layer(3, 224, 64, 11, 4), pad_h=2, pad_w=2),
        layer(64, 27, 192, 5),
        layer(192, 13, 384, 3),
        layer(384, 13, 256, 3),
        layer(256, 13, 256, 3),
    ],
    "mobilenet_v2": [
        layer(3, 224, 32, 3, 2),
        depthwise(32, 112, 1),
        layer(32, 112, 16, 1),
        layer(16, 112, 96, 1),
        depthwise(96, 112, 2),
        layer(96, 56, 24, 1),
        layer(24, 56, 144, 1),
        depthwise(144, 56, 1),
        depthwise(144, 56, 2),
        layer(192, 28, 32, 1),
        depthwise(192, 28, 1),
        layer(384, 14, 96, 1),
        depthwise(384, 14, 1),
        depthwise(576, 14, 2),
        layer(160, 7, 960, 1),
        depthwise(960, 7, 1),
        layer(320, 7, 1280, 1),
    ],
}
"""Distinct layers of each network, at batch 1."""

QUICK = [
    LAYERS["resnet_3x3"][0],
    LAYERS["resnet_3x3"][3],
    LAYERS["resnet50"][0],
    LAYERS["resnet50"][4],
    LAYERS["resnet50"][5],
    LAYERS["resnet50"][17],
    LAYERS["mobilenet_v2"][1],
]


def main() -> None:
    """Run the groups and directions asked for; print a line per layer and means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="0", help="index or part of the name")
    parser.add_argument("--trials", type=int, default=24, help="variants per layer")
    parser.add_argument("--quick", action="store_true", help="a few layers of each kind")
    parser.add_argument("--only", default="", help="groups, with commas between them")
    parser.add_argument("--direction", choices=DIRECTIONS, help="one instead of all three")
    parser.add_argument("--batch", type=int, default=0, help="images; 8 on CPUs, 64 on GPUs")
    parser.add_argument("--family", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--dtype", default="fp32", choices=sorted(DTYPES))
    options = parser.parse_args()
    device, peer = select(options.device), Peer("torch_conv.py")
    batch = options.batch or BATCH[device.limits.kind]
    print(f"{device.name} ({device.info.runtime}) against {peer.name}, batch {batch}")
    print(f"measured fp32 peak: {peak.measure(device).gflops:.1f} GFLOP/s\n")
    groups = {"quick": QUICK} if options.quick else LAYERS
    for group in options.only.split(",") if options.only else groups:
        images = options.batch or batch // LARGE.get(group, 1)
        for direction in [options.direction] if options.direction else DIRECTIONS:
            ratios = [
                compare(
                    device,
                    peer,
                    replace(p, batch=images, direction=direction, dtype=options.dtype),
                    options.trials,
                    options.family,
                )
                for p in groups[group]
            ]
            mean = geometric_mean(ratios)
            print(f"{group} {direction}: {mean:.2f} times the peer\n", flush=True)


if __name__ == "__main__":
    main()
