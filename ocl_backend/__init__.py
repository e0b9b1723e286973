"""The PyTorch device `ocl`: import it and `torch.device("ocl")` works. It exports nothing else."""

from ocl_backend import registration

registration.register()
