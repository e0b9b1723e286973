"""Tunes a small CNN's kernels on device 0, keeps the winners, and trains it on real digits.

The digits are the 1,797 of the UCI set that scikit-learn brings: nothing is downloaded. Run again,
it finds its shapes tuned and goes straight to training. It ends with an error where the network
did not learn: then the device computes wrong results.
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

import ocl_backend  # noqa: F401 (registers the device `ocl`)
import oclgen

BATCH, EPOCHS, HELD_OUT = 64, 15, 360
TRIALS, SECONDS = 12, 120
LEARNT = 0.9
"""The part of the held-out digits that two epochs are enough for."""


def network() -> nn.Module:
    """Return a CNN for 1 x 8 x 8 images and 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 2 * 2, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def step(model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor) -> None:
    """Make one step of training."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def tune_for(
    model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor, trials: int
) -> None:
    """Tune every product and convolution that a step of training calls, and use the winners."""
    seen = torch.ocl.explain(step, model, optimizer, images, labels)
    problems = [row.problem for row in seen.rows]
    for result in oclgen.tune(problems, device=0, trials=trials, seconds=SECONDS):
        print(result)
    torch.ocl.reload_tuned()


def train(
    model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor, epochs: int
) -> None:
    """Train for all epochs, in an order drawn anew for each."""
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH):
            if len(chosen) == BATCH:
                step(model, optimizer, images[chosen.to("ocl")], labels[chosen.to("ocl")])
    torch.ocl.synchronize()


def main() -> None:
    """Tune, train, and print the accuracy and the variants that ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="variants tried per problem")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    given = parser.parse_args()
    torch.manual_seed(0)
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    images = (torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16).to("ocl")
    labels = torch.tensor(digits.target)[order].to("ocl")
    model = network().to("ocl")
    optimizer = Adam(model.parameters(), lr=2e-3)
    first = images[HELD_OUT : HELD_OUT + BATCH], labels[HELD_OUT : HELD_OUT + BATCH]

    tune_for(model, optimizer, *first, given.trials)
    begin = time.perf_counter()
    train(model, optimizer, images[HELD_OUT:], labels[HELD_OUT:], given.epochs)
    seconds = time.perf_counter() - begin

    print("\nWhat a step of training runs:")
    print(torch.ocl.explain(step, model, optimizer, *first))
    model.eval()
    with torch.no_grad():
        right = (model(images[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]).sum().item()
    print(f"\nfallbacks to the CPU: {torch.ocl.fallbacks() or 'none'}")
    print(f"{given.epochs} epochs in {seconds:.1f} s on {torch.ocl.get_device_name(0)}")
    print(f"accuracy on {HELD_OUT} digits not trained on: {right / HELD_OUT:.1%}")
    if right < LEARNT * HELD_OUT:
        raise SystemExit("The network did not learn: `oclgen doctor` may say what is wrong here.")


if __name__ == "__main__":
    main()
