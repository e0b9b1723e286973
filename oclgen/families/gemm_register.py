"""Register-tiled GEMM without local memory, for CPUs and for GPUs where staging does not pay.

It is not the family for large products on GPUs; that is `gemm_staged`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.limits import Limits
from oclgen.plan import Arg, Launch, Plan, Scalar, buffer, ceil_div, round_up
from oclgen.problem import GemmProblem, Problem
from oclgen.render import VECTOR_WIDTHS, activation_preamble, dtype_preamble, render

NAME = "gemm_register"

MAX_ACCUMULATORS = 512
"""Private floats per work-item past which every compiler tried here spills to memory."""


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of the kernel; the legend stands at the head of its template."""

    item_m: int
    item_n: int
    vec_n: int
    local_m: int
    local_n: int
    unroll_k: int

    def why_not(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers why this config cannot serve `problem` on such a device, or None."""
        del problem  # any size is served
        if self.vec_n not in VECTOR_WIDTHS:
            return f"vec_n={self.vec_n} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.item_n % self.vec_n:
            return f"item_n={self.item_n} is no multiple of vec_n={self.vec_n}"
        if self.item_m * self.item_n > MAX_ACCUMULATORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {self.item_m * self.item_n} "
                f"accumulators per work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        return work_group_too_large(self.local_m, self.local_n, limits)


DEFAULT = Config(item_m=4, item_n=4, vec_n=4, local_m=4, local_n=16, unroll_k=1)


def work_group_too_large(local_m: int, local_n: int, limits: Limits) -> str | None:
    """Say with numbers why a group of local_m x local_n work-items does not fit, or None."""
    if local_m * local_n > limits.max_work_group:
        return (
            f"local_m={local_m} local_n={local_n} is a work-group of {local_m * local_n}; "
            f"the device allows {limits.max_work_group}"
        )
    if local_m > limits.max_work_items[0] or local_n > limits.max_work_items[1]:
        return f"local_m={local_m} local_n={local_n} exceeds {limits.max_work_items} work-items"
    return None


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem)


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the single launch that computes `problem` with `config`."""
    source = render(
        NAME,
        **asdict(config),
        preamble=dtype_preamble(problem.dtype),
        activation=activation_preamble(problem.activation),
        trans_a=problem.trans_a,
        trans_b=problem.trans_b,
        bias=problem.bias,
        edge_m=problem.m % config.item_m != 0,
        edge_n=problem.n % config.item_n != 0,
        edge_k=problem.k % config.unroll_k != 0,
    )
    launch = Launch(
        source=source,
        kernel=NAME,
        global_size=(
            round_up(ceil_div(problem.m, config.item_m), config.local_m),
            round_up(ceil_div(problem.n, config.item_n), config.local_n),
            problem.batch,
        ),
        local_size=(config.local_m, config.local_n, 1),
        args=(*matrix_args(problem), *size_args(problem)),
    )
    return Plan((launch,))


def matrix_args(problem: GemmProblem) -> tuple[Arg, ...]:
    """Return pointer and offset of a, b, c and, where there is one, bias."""
    roles = ("a", "b", "c") if problem.bias == "none" else ("a", "b", "c", "bias")
    return tuple(arg for role in roles for arg in buffer(role))


def size_args(problem: GemmProblem) -> tuple[Scalar, ...]:
    """Return sizes, row strides (elements) and batch strides (elements) of dense matrices.

    The named ones may be replaced at launch, for views whose rows or batches are apart.
    """
    a, b, c = (problem.buffers[role] for role in ("a", "b", "c"))
    return (
        Scalar(problem.m), Scalar(problem.n), Scalar(problem.k),
        Scalar(a[2], name="ld_a"), Scalar(b[2], name="ld_b"), Scalar(c[2], name="ld_c"),
        Scalar(0 if problem.shared_a else a[1] * a[2], "long", "batch_a"),
        Scalar(0 if problem.shared_b else b[1] * b[2], "long", "batch_b"),
        Scalar(c[1] * c[2], "long", "batch_c"),
    )  # fmt: skip
