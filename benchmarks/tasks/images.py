"""Networks that make images or look at them, through diffusers and torchvision on both sides.

    python -m benchmarks images --device 0 --only unet,vae,dit
    python -m benchmarks images --device 0 --small

A row is a step of a diffusion network, the decoder behind it, or a step of a vision transformer or
of a network like one. Weights are random and the same on both sides, and what both compute is
compared. fp16 means weights of that dtype, bf16 autocast over weights in fp32 and images in
channels_last. Times include the host's copies of inputs and results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from benchmarks.tasks.classifiers import CLASSES, SIZE, models_beside
from benchmarks.tasks.draw import Draw, distinct
from benchmarks.tasks.task import Task
from oclgen.limits import Limits

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.tasks.steps import Network, Step

Mode = Literal["eval", "train"]


class Case(NamedTuple):
    """A network, what it does, and with how many images.

    `name` is "unet", "vae", "dit" or torchvision's name of a classifier. `side` is the height and
    width of latents, or of a classifier's images; `widths` are the channels of a UNet's or of the
    decoder's blocks, and of a DiT the heads, their dimension and the layers.
    """

    name: str
    batch: int
    side: int
    widths: tuple[int, ...] = ()
    dtype: str = "fp32"
    mode: Mode = "eval"

    @property
    def key(self) -> str:
        """Its name among rows."""
        sizes = " ".join(map(str, self.widths))
        inner = f" ({sizes})" if sizes else ""
        return f"{self.name}{inner} {self.mode}, {self.batch}x{self.side}² {self.dtype}"


STABLE_DIFFUSION = (320, 640, 1280, 1280)
DECODER = (128, 256, 512, 512)
TEXT = (77, 768)
"""Tokens and width of the encoded text."""
XL2 = (16, 72, 4)
"""Heads and their dimension of DiT-XL/2, and four of its layers."""
VISION: dict[str, tuple[Case, ...]] = {
    "gpu": (
        Case("vit_b_16", 32, SIZE),
        Case("vit_b_16", 64, SIZE, dtype="bf16"),
        Case("swin_t", 64, SIZE, dtype="bf16"),
        Case("convnext_tiny", 64, SIZE, dtype="bf16"),
    ),
    "cpu": (Case("vit_b_16", 4, SIZE), Case("swin_t", 4, SIZE), Case("convnext_tiny", 4, SIZE)),
    "small": (Case("swin_t", 1, SIZE),),
}
DIFFUSION: dict[str, tuple[Case, ...]] = {
    "gpu": (
        Case("unet", 2, 64, STABLE_DIFFUSION, "fp16"),
        Case("vae", 1, 64, DECODER, "fp16"),
        Case("dit", 2, 32, XL2, "fp16"),
    ),
    "cpu": (
        Case("unet", 1, 32, STABLE_DIFFUSION),
        Case("vae", 1, 32, DECODER),
        Case("dit", 2, 32, XL2),
    ),
    "small": (
        Case("unet", 1, 16, (32, 64, 64, 64)),
        Case("vae", 1, 16, (32, 32, 64, 64)),
        Case("dit", 1, 16, (4, 32, 2)),
    ),
}
LARGEST = {"gpu": (320, 4, 96), "cpu": (96, 2, 32), "small": (32, 2, 16)}
"""Of a drawn UNet: channels of the first block, images, and side of the latents."""
DRAWN = 1


def drawn(seed: int, count: int, size: str) -> list[Case]:
    """Return different UNets.

    Args:
        seed: equal seeds give equal ones.
        count: how many.
        size: key of `LARGEST`.
    """
    return distinct("images", seed, count, partial(_any, size))


def _any(size: str, random: Random) -> Case:
    most, images, side = LARGEST[size]
    first = random.randrange(32, most + 1, 32)
    second = first * random.choice((1, 2))
    widths = (first, second, second * random.choice((1, 2)), second * 2)
    dtype = "fp16" if size == "gpu" else "fp32"
    return Case("unet", random.randint(1, images), random.randrange(8, side + 1, 8), widths, dtype)


def tasks(size: str, draw: Draw, limits: Limits) -> Iterator[Task]:
    """Yield what the networks do; in 16 bits where the device has matrix units.

    Args:
        size: "gpu", "cpu" or "small".
        draw: how many UNets are drawn, and their seed.
        limits: of the device.
    """
    has_units = "mma" in limits.instructions

    def served(case: Case) -> Case:
        return case if has_units else case._replace(dtype="fp32")

    for case in map(served, DIFFUSION[size]):
        yield _task(case, f"{case.name} {case.dtype}")
    for case in map(served, VISION[size]):
        for mode in ("eval", "train"):
            yield _task(case._replace(mode=mode), f"{case.name} {mode} {case.dtype}")
    for case in map(served, drawn(draw.seed, draw.of(DRAWN), size)):
        yield _task(case, "drawn images", draw.seed)


def _task(case: Case, group: str, seed: int | None = None) -> Task:
    return Task("images", case.key, (group,), 1, case.dtype, 0.0, 0.0, {"case": case}, seed)


def step(case: Case, device: str) -> Step:
    """Return a step of a case.

    Args:
        case: what is done.
        device: torch's name of it.
    """
    from benchmarks.tasks import steps

    made = steps.training if case.mode == "train" else steps.evaluation
    return made(_network(case, device), device)


def costs(case: Case) -> dict[str, float]:
    """Return the row's `flops` and `bytes` of a step: three times the forward pass in training."""
    from benchmarks.tasks import steps

    dtype = case.dtype if case.name in NETWORKS else "fp32"
    network = _network(case._replace(mode="eval", dtype=dtype), "meta")
    flops = steps.operations(network) * (3 if case.mode == "train" else 1)
    return {"flops": flops, "bytes": steps.weight_bytes(network)}


def _network(case: Case, device: str) -> Network:
    import torch

    from benchmarks.tasks import steps

    make, given, wanted = NETWORKS.get(case.name, _classifier)(case, device)
    autocast = case.dtype != "fp32" and case.name not in NETWORKS
    with torch.device("meta" if device == "meta" else "cpu"):
        module: Any = steps.seeded(make, steps.stored(case.dtype, autocast))
    if autocast:
        module = module.to(memory_format=torch.channels_last)
    return steps.Network(module, given, wanted, case.dtype, autocast)


Parts = tuple[Callable[[], Any], dict[str, "Tensor"], Callable[..., "Tensor"]]
"""What makes a network, what it is given, and what is wanted of a call."""


def _unet(case: Case, device: str) -> Parts:
    unet = models_beside(device, "diffusers").UNet2DConditionModel
    sizes = {"sample_size": case.side, "block_out_channels": case.widths}
    make = partial(unet, cross_attention_dim=TEXT[1], **sizes)
    given = {
        "sample": _normal(case.batch, 4, case.side, case.side),
        "timestep": _numbers(case.batch, 1000),
        "encoder_hidden_states": _normal(case.batch, *TEXT),
    }
    return make, given, _sample


def _vae(case: Case, device: str) -> Parts:
    import torch

    coder = models_beside(device, "diffusers").AutoencoderKL
    blocks = len(case.widths)

    def make() -> Any:
        whole = coder(
            latent_channels=4, block_out_channels=case.widths, layers_per_block=2,
            down_block_types=("DownEncoderBlock2D",) * blocks,
            up_block_types=("UpDecoderBlock2D",) * blocks,
        )  # fmt: skip
        return torch.nn.Sequential(whole.post_quant_conv, whole.decoder)

    latents = _normal(case.batch, 4, case.side, case.side)
    return make, {"latents": latents}, lambda module, latents: module(latents)


def _dit(case: Case, device: str) -> Parts:
    heads, dim, layers = case.widths
    make = partial(
        models_beside(device, "diffusers").DiTTransformer2DModel,
        num_attention_heads=heads, attention_head_dim=dim, num_layers=layers, in_channels=4,
        out_channels=8, sample_size=case.side, patch_size=2, num_embeds_ada_norm=1000,
    )  # fmt: skip
    given = {
        "hidden_states": _normal(case.batch, 4, case.side, case.side),
        "timestep": _numbers(case.batch, 1000),
        "class_labels": _numbers(case.batch, CLASSES),
    }
    return make, given, _sample


def _classifier(case: Case, device: str) -> Parts:
    import torch

    make = partial(getattr(models_beside(device), case.name), weights=None)
    images = _normal(case.batch, 3, case.side, case.side)
    if case.dtype != "fp32":
        images = images.to(memory_format=torch.channels_last)
    given = {"images": images}
    if case.mode == "eval":
        return make, given, lambda module, images: module(images)
    return make, {**given, "labels": _numbers(case.batch, CLASSES)}, _entropy


NETWORKS: dict[str, Callable[[Case, str], Parts]] = {"unet": _unet, "vae": _vae, "dit": _dit}


def _entropy(module: Any, images: Tensor, labels: Tensor) -> Tensor:
    import torch

    return torch.nn.functional.cross_entropy(module(images), labels)


def _sample(module: Any, **given: Tensor) -> Tensor:
    image: Tensor = module(**given).sample
    return image


def _normal(*shape: int) -> Tensor:
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def _numbers(count: int, below: int) -> Tensor:
    import torch

    return torch.randint(below, (count,), generator=torch.Generator().manual_seed(3))
