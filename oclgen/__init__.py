"""Generated GEMM, convolution and attention kernels for any OpenCL device.

This package generates kernels and is the one door to OpenCL. `search_spaces` searches, `tuned_db`
stores, and `ocl_backend` is the PyTorch device. `oclgen.tune` and `oclgen.Session` come from
`search_spaces.session`, which is imported when they are used. Nothing else here knows the search.
Its modules:

- problems: `problem`, `gemm_problem`, `attention_problem`, `packed_problem`, `problem_parts`,
  `keys`, `recording`
- kernels: `families`, `family`, `parameters`, `registers`, `variant`, `plan`, `activations`; their
  text: `render`, `templates`
- devices: `limits`, `opencl`, `profiles`, `roofline`
- times: `measuring`, `measurement`, `predictor`, `sample`
- help for all of them: `files`, `remembered`, `lazy`, `system`, `texts`
"""

import time
from typing import TYPE_CHECKING

from oclgen.lazy import lazily

if TYPE_CHECKING:
    from search_spaces.session import Session, tune

GENERATOR_VERSION = "3"
"""Says where a record comes from. Its times belong to a digest (`oclgen.plan.Plan.digest`)."""

BEGUN = time.time()
"""When this process began to load the package: `oclgen.remembered` trusts no file that is newer."""

__all__ = ["GENERATOR_VERSION", "Session", "tune"]


__getattr__ = lazily(__name__, dict.fromkeys(("Session", "tune"), "search_spaces.session"))
