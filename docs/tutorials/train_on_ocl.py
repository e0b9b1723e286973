import ocl_backend  # registers the device; needed once, later `import torch` alone knows it
import torch
from torch import nn

torch.manual_seed(0)
points = torch.rand(512, 2)
labels = ((points - 0.5).norm(dim=1) < 0.3).long()  # inside a circle, or outside
points, labels = points.to("ocl"), labels.to("ocl")

model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
model = model.to("ocl")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(points), labels)
    loss.backward()
    optimizer.step()
    if epoch % 20 == 19:
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

accuracy = (model(points).argmax(1) == labels).float().mean().item()
print(f"accuracy {accuracy:.3f}, fallbacks {torch.ocl.fallbacks()}")
torch.save(model.state_dict(), "circle.pt")  # loads on any device: torch.load(..., map_location)
