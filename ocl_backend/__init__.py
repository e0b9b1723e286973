"""The PyTorch device `ocl`: import it and `torch.device("ocl")` works. It exports nothing else.

Its modules:

- how torch finds the device: `registration`, `opened`, `module` (`torch.ocl`), `backends`
- a call's path: `dispatch`, `fusion`, `runtime`, and `csrc` in C++
- what operators compute: `ops`, the kernels under them in `kernels`, `dtypes`
- tuning from a program: `tunable`, `tuning`, `background`
- steps that are captured and replayed: `graphed`, `recorded`
- other libraries: `libraries`, `vision`, `notices`
- parts of torch that need more than operators: `amp`, `compilation`, `data_parallel`,
  `distributed`, `exchange`, `printing`, `sharing`
- the self-test: `selftest`
"""

import torch

from ocl_backend.runtime import compiling

compiling.check_version(torch.__version__)

from ocl_backend import registration  # noqa: E402 (an older torch lacks what it imports)

registration.register()
