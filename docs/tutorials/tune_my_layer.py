import ocl_backend  # registers the device; needed once, later `import torch` alone knows it
import torch

layer = torch.nn.Conv2d(32, 48, 3, padding=1).to("ocl").eval()
images = torch.randn(4, 32, 28, 28, device="ocl")
with torch.no_grad():
    print("before", torch.ocl.explain(layer, images), sep="\n")
    torch.ocl.tunable.set_max_tuning_iterations(12)  # variants to try, for each problem
    torch.ocl.tunable.enable()
    layer(images)  # meets an untuned problem and searches for it
    torch.ocl.tunable.enable(False)
    print("after", torch.ocl.explain(layer, images), sep="\n")
