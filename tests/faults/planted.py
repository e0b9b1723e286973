"""A kernel family whose configs each have a fault planted, and a compiler that dies of one.

`child/sitecustomize.py` enters it in every process that has that folder on its path.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace

from oclgen import families
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.plan import COUNTERS, Frame, Launch, Needs, Plan, buffer
from oclgen.problem import GemmProblem, Problem

NAME = "planted"
DRIVER = "PLANTED_DRIVER_VERSION"
PROBLEM = GemmProblem(24, 16, 20)
FAULTS = {
    "none": "",
    "slow": "for (volatile int i = 0; i < 20000; ++i);",
    "wrong": "if (row == 3 && column == 5) sum += 1.0f;",
    "unwritten": "if (row == 23) return;",
    "before": "if (row == 0) c[-1 - column] = 1.0f;",
    "behind": "if (row == 0) c[24 * 16 + column] = 1.0f;",
    "workspace": "if (row == 0) spare[64 + column] = 1.0f;",
    "counters": "if (row == 0) counted[column] = 1;",
    "input": "if (row == 0) { __global float *wrong = (__global float *)a; wrong[column] = 0.0f; }",
    # of one work-item: one core is enough to wait for the time limit
    "endless": "if (row == 0 && column == 0) for (volatile int i = 0; i >= 0; i = 1);",
    "refused": "this is no OpenCL C;",
    "crash": "/* the compiler crashes */",
}
KERNEL = """
__kernel void planted(__global const float *a, long a_at, __global const float *b, long b_at,
                      __global float *c, long c_at, __global float *spare, long spare_at,
                      __global int *counted, long counted_at)
{
    int row = get_global_id(0), column = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < 20; ++k)
        sum += a[row * 20 + k] * b[k * 16 + column];
    %s
    c[row * 16 + column] = sum;
}
"""


@dataclass(frozen=True)
class Config(BaseConfig):
    fault: str

    def conflict(self, problem: Problem, limits: Limits) -> str | None:
        return None

    def needs(self, problem: Problem) -> Needs:
        return Needs((Frame(NAME, (1, 1)),), (("spare", 256),))


DEFAULT = Config("none")
TRAITS = Traits()


def serves(problem: Problem) -> bool:
    return problem == PROBLEM


def guesses(problem: Problem, limits: Limits) -> list[Config]:
    return []


def plan(problem: Problem, config: Config) -> Plan:
    args = tuple(arg for role in ("a", "b", "c", "spare", COUNTERS) for arg in buffer(role))
    source = KERNEL % FAULTS[config.fault]
    assert isinstance(problem, GemmProblem)
    launch = Launch(source, NAME, (problem.m, problem.n), (1, 1), args)
    return Plan((launch,), (("spare", 256),), counters=16)


def enter() -> None:
    """Let this module be a family in this process."""
    families.FAMILIES[NAME] = sys.modules[__name__]


def change_the_driver() -> None:
    """Let devices tell the driver version that the environment names, if it names one."""
    version = os.environ.get(DRIVER)
    if version is None:
        return
    from oclgen.opencl import device as module

    honest = module.select

    def select(which: int | str) -> module.Device:
        device = honest(which)
        device.info = replace(device.info, driver_version=version)
        return device

    module.select = select


def break_the_compiler() -> None:
    """Let the compiler die of the source that says so, as compilers of OpenCL runtimes do."""
    import oclgen.opencl.device  # noqa: F401 (it tells the loader where the runtimes lie)
    from oclgen.opencl.programs import Programs

    honest = Programs._compile

    def compiled(programs: Programs, source: str, options: tuple[str, ...]) -> object:
        if FAULTS["crash"] in source:
            os.abort()  # as LLVM does where it finds itself in an impossible state
        return honest(programs, source, options)

    Programs._compile = compiled  # type: ignore[method-assign, assignment]
