"""Times torchvision networks on the device `ocl` against torch on the CPU or CUDA, in one run.

    python benchmarks/networks.py --networks resnet18,alexnet --batch 8

Each side runs in a process of its own (two accelerators do not share one), the sides alternate,
and times include the host's copies of inputs and results. fp32 is strict: the peer's TF32, which
torch allows convolutions unless told otherwise, is off. Errors are against the CPU in fp32, with
dropout off: of scores the largest difference over the largest score, of gradients the relative L2
distance of all of them (single tensors may be nothing but rounding). It tunes nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

NETWORKS = ("alexnet", "resnet18", "resnet50", "vgg16", "mobilenet_v2")


def main() -> None:
    """Run both sides of every network and print a table."""
    options = parse()
    if options.side:
        print(json.dumps(measure(options)), flush=True)
        return
    peer = "cuda" if options.peer == "auto" and torch.cuda.is_available() else options.peer
    peer = "cpu" if peer == "auto" else peer
    print(f"batch {options.batch}, {options.size} x {options.size}, fp32, peer torch {peer}; ms")
    print(f"{'network':14}{'mode':7}{'ocl':>10}{'peer':>10}{'peer/ocl':>10}   errors, fallbacks")
    for name in options.networks.split(","):
        ours, theirs = run_side("ocl", name), run_side(peer, name)
        for mode in ("eval", "train"):
            ratio = theirs[mode] / ours[mode]
            note = ours["notes"][mode]
            print(f"{name:14}{mode:7}{ours[mode]:10.1f}{theirs[mode]:10.1f}{ratio:10.2f}   {note}")


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--device", default="ocl:0", help="the torch device of our side")
    parser.add_argument("--no-check", action="store_true", help="skip the comparison with the CPU")
    parser.add_argument("--side", choices=("ocl", "cpu", "cuda"), help=argparse.SUPPRESS)
    return parser.parse_args()


def run_side(side: str, name: str) -> dict[str, Any]:
    """Return what `measure` found in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:]]
    command += ["--side", side, "--networks", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return median milliseconds by mode and, on our side, notes on errors and fallbacks."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    network = getattr(models_for(options.side), options.networks)(weights=None)
    images = torch.randn(options.batch, 3, options.size, options.size)
    labels = torch.randint(0, 1000, (options.batch,))
    ours = options.side == "ocl"
    device = torch.device(options.device if ours else options.side)
    notes = {"eval": "", "train": ""}
    if ours and not options.no_check:
        notes = errors(network, images[:2], labels[:2], device)
    model = deepcopy(network).to(device)
    found: dict[str, Any] = {
        "eval": timed(evaluation(model, images, device), options.repeats),
        "train": timed(training(model, images, labels, device), options.repeats),
    }
    if ours:
        notes["train"] += f"fallbacks {torch.ocl.fallbacks()}"
    return {**found, "notes": notes}


def models_for(side: str) -> Any:
    """Return torchvision's models; beside CUDA `ocl` stays out, for torch has one accelerator."""
    if side == "cuda":
        return import_module("torchvision.models")
    from ocl_backend.interop import torchvision_models

    return torchvision_models()


def evaluation(model: nn.Module, images: Tensor, device: torch.device) -> Callable[[], object]:
    """Return the step that infers and brings the result home."""

    def step() -> object:
        model.eval()
        with torch.no_grad():
            return model(images.to(device)).cpu()

    return step


def training(
    model: nn.Module, images: Tensor, labels: Tensor, device: torch.device
) -> Callable[[], object]:
    """Return the step that trains with Adam and brings the loss home."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> object:
        model.train()
        optimizer.zero_grad()
        scores = model(images.to(device))
        loss = nn.functional.cross_entropy(scores, labels.to(device))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def timed(step: Callable[[], object], repeats: int) -> float:
    """Return the median milliseconds of a step after two that warm up, everything waited for."""
    samples = []
    for _ in range(2 + repeats):
        start = perf_counter()
        step()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        samples.append(1e3 * (perf_counter() - start))
    return median(samples[2:])


def errors(
    network: nn.Module, images: Tensor, labels: Tensor, device: torch.device
) -> dict[str, str]:
    """Return the relative errors of scores and gradients against the CPU, as text."""
    results = [scores_and_gradients(network, images, labels, torch.device("cpu"))]
    results.append(scores_and_gradients(network, images, labels, device))
    (scores, gradients), (our_scores, our_gradients) = results
    difference = float((our_gradients - gradients).norm() / gradients.norm())
    return {
        "eval": f"error {relative(our_scores, scores):.1e}",
        "train": f"gradients {difference:.1e}, ",
    }


def scores_and_gradients(
    network: nn.Module, images: Tensor, labels: Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return scores in evaluation and all gradients in training, one vector, on the CPU."""
    model = deepcopy(network).to(device)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.eval()
    with torch.no_grad():
        scores = model(images.to(device)).cpu()
    model.train()
    nn.functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
    gradients = [p.grad.cpu().flatten() for p in model.parameters() if p.grad is not None]
    return scores, torch.cat(gradients)


def relative(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference over the largest value of `theirs`."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))


if __name__ == "__main__":
    main()
