"""Trains a network of timm on pictures of circles and squares that are drawn here."""

import ocl_backend  # noqa: F401 (first: registers the device, lets torchvision be imported)
import timm
import torch

STEPS, BATCH, SIDE = 15, 16, 32


def pictures(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images [count, 3, SIDE, SIDE] of a circle (0) or a square (1), and which it is."""
    labels = torch.arange(count) % 2
    place = torch.rand(count, 2, 1, 1) * SIDE / 3 + SIDE / 3
    axes = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij"))
    away = (axes - place).abs()
    circle, square = away.square().sum(1).sqrt() < SIDE / 5, away.amax(1) < SIDE / 6
    shape = torch.where(labels[:, None, None].bool(), square, circle).float()
    return shape[:, None].repeat(1, 3, 1, 1) + 0.1 * torch.randn(count, 3, SIDE, SIDE), labels


def main() -> list[float]:
    """Return the losses."""
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=2).to("ocl")  # or pretrained=True
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(STEPS):
        images, labels = (tensor.to("ocl") for tensor in pictures(BATCH))
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f}, at the end {losses[-1]:.3f}")
    print(f"operators on the CPU: {torch.ocl.fallbacks() or 'none'}")
    return losses


if __name__ == "__main__":
    main()
