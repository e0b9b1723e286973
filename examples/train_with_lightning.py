"""Trains a small network with Lightning: two names in its Trainer choose the device."""

import ocl_backend.libraries.lightning  # noqa: F401 (first: registers the names "ocl")
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Circle(LightningModule):
    """Tells whether a point lies inside of a circle."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(),
            torch.nn.Linear(32, 2),
        )  # fmt: skip
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Return the loss of points [batch, 2] and labels [batch]."""
        points, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(points), labels)
        self.losses.append(float(loss))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> list[float]:
    """Return the losses."""
    torch.manual_seed(0)
    points = torch.rand(512, 2)
    labels = ((points - 0.5).norm(dim=1) < 0.3).long()
    trainer = Trainer(
        accelerator="ocl", strategy="ocl", max_epochs=8, logger=False, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    module = Circle()
    trainer.fit(module, DataLoader(TensorDataset(points, labels), batch_size=64, shuffle=True))
    print(f"loss {module.losses[0]:.3f}, at the end {module.losses[-1]:.3f}")
    return module.losses


if __name__ == "__main__":
    main()
