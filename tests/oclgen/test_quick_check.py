"""A quick check says why a variant is not to serve, in processes that may die."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from oclgen.families import FAMILIES
from oclgen.limits import KIB
from oclgen.measuring import worker
from oclgen.measuring.quick_check import Checker
from oclgen.problem import GemmProblem
from oclgen.variant import Variant

PRODUCT = GemmProblem(512, 512, 512)
"""More than the check's reference computes whole."""


def test_a_variant_is_right_far_slower_or_does_not_build(device: Any) -> None:
    checker = Checker(device.index, device.info)
    right = Variant("gemm_register", FAMILIES["gemm_register"].DEFAULT)
    try:
        assert checker.check(PRODUCT, right, None) == ("", True)
        reason, holds = checker.check(PRODUCT, right, 1e-6)
        assert (reason.startswith("claimed 1e-06 ms, takes "), holds) == (True, True)
        foreign = Variant("gemm_tma", FAMILIES["gemm_tma"].DEFAULT)
        if foreign.why_not(GemmProblem(512, 512, 512, "bf16"), device.limits):
            reason, holds = checker.check(GemmProblem(512, 512, 512, "bf16"), foreign, None)
            assert reason.partition(":")[0] in ("compile", "runtime")
    finally:
        checker.close()


def test_a_process_that_takes_too_much_memory_ends() -> None:
    code = (
        "import time, sys; from oclgen.measuring import worker\n"
        "worker._end_beyond(int(sys.argv[1])); time.sleep(60)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(KIB)], timeout=60, check=False)
    assert run.returncode == worker.TOO_LARGE
