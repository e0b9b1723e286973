"""A training run that is interrupted, saved, loaded and continued, against one that is not."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

import ocl_backend  # noqa: F401 (lets torchvision be imported)
from tests import installed
from tests.ocl_backend.cpu_twin import place

installed.require("sklearn", "torchvision")

BATCH, STEPS, STOP = 4, 4, 2


def batches() -> list[tuple[Tensor, Tensor]]:
    """Handwritten digits, enlarged to 32 x 32, in three channels."""
    from sklearn.datasets import load_digits  # 2 s, in the process that trains alone

    digits = load_digits()
    count = BATCH * STEPS
    images = torch.tensor(digits.images[:count] / 16, dtype=torch.float32).unsqueeze(1)
    images = nn.functional.interpolate(images, size=32, mode="bilinear").expand(-1, 3, -1, -1)
    labels = torch.tensor(digits.target[:count], dtype=torch.int64)
    return list(zip(images.split(BATCH), labels.split(BATCH), strict=True))


class Run:
    """A resnet18 with dropout before its last layer, Adam and a schedule."""

    def __init__(self, device: Any) -> None:
        torch.manual_seed(0)
        network = import_module("torchvision.models").resnet18(weights=None, num_classes=10)
        network.fc = nn.Sequential(nn.Dropout(0.2), network.fc)
        self.device = device
        self.network = network.to(device).train()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.schedule = StepLR(self.optimizer, 2, 0.5)

    def train(self, given: list[tuple[Tensor, Tensor]]) -> list[float]:
        losses = []
        for images, labels in given:
            self.optimizer.zero_grad()
            scores = self.network(images.to(self.device))
            loss = nn.functional.cross_entropy(scores, labels.to(self.device))
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
        return losses

    def parts(self) -> dict[str, Any]:
        return {"network": self.network, "optimizer": self.optimizer, "schedule": self.schedule}

    def save(self, path: Path) -> None:
        state = {name: part.state_dict() for name, part in self.parts().items()}
        torch.save(state | {"random": torch.ocl.get_rng_state(self.device)}, path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        torch.ocl.set_rng_state(state["random"], self.device)


def test_continued_training_loses_nothing(device: Any, tmp_path: Path) -> None:
    if device.index:
        pytest.skip("what is saved does not depend on the device")
    data = batches()
    whole = Run(place(device)).train(data)
    first = Run(place(device))
    begun = first.train(data[:STOP])
    first.save(tmp_path / "training.pt")
    torch.ocl.manual_seed(99)
    second = Run(place(device))
    second.load(tmp_path / "training.pt")
    assert begun + second.train(data[STOP:]) == whole
    assert len(set(whole)) == STEPS
