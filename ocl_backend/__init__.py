"""The PyTorch device `ocl`: import it and `torch.device("ocl")` works. It exports nothing else."""

import torch

from ocl_backend.runtime import compiling

compiling.check_version(torch.__version__)

from ocl_backend import registration  # noqa: E402 (an older torch lacks what it imports)

registration.register()
