"""Batch normalisation in evaluation, folded into the weights and bias of a convolution's plan.

Jacob et al., arXiv:1712.05877. `fused_convolution` decides which normalisation is folded
into which convolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ocl_backend.dtypes import DType
from oclgen.plan import Arg, Buffer, Launch, Offset, Plan, Scalar, buffer
from oclgen.problem import DTYPES, ConvProblem
from oclgen.render import rendered

FOLDED = {"w": "folded_w", "bias": "folded_bias"}
"""The buffers that a plan reads in place of its own."""
GIVEN_BIAS = "given_bias"
STATISTICS = ("gamma", "beta", "mean", "variance")


@dataclass(frozen=True, slots=True)
class Folding:
    """The launch before a convolution's plan, which folds a normalisation into weights and bias.

    `bias` says whether there is one to normalise, `affine` whether there are gamma and beta, whose
    dtype, and the statistics', is `param`. A work-group has `local` work-items.
    """

    dtype: DType
    param: DType
    bias: bool
    affine: bool
    eps: float
    local: int

    def roles(self, problem: ConvProblem) -> dict[str, int]:
        """Return the buffers of the whole and the bytes of their items, in order."""
        size = DTYPES[problem.dtype]
        roles = {GIVEN_BIAS if role == "bias" else role: size for role in problem.buffers}
        return roles | dict.fromkeys(STATISTICS, self.param.item_bytes)

    def before(self, plan: Plan, problem: ConvProblem) -> Plan:
        """Return `plan` on folded weights and bias, after the launch that makes them."""
        size = DTYPES[problem.dtype]
        spaces = tuple((FOLDED[r], prod(problem.buffers[r]) * size) for r in ("w", "bias"))
        launches = (self._launch(problem), *map(_on_folded, plan.launches))
        return replace(plan, launches=launches, workspaces=(*plan.workspaces, *spaces))

    def _launch(self, problem: ConvProblem) -> Launch:
        filters, *rest = problem.buffers["w"]
        source = rendered(
            "fold_batch_norm", package="ocl_backend", dtype=self.dtype, param=self.param,
            bias=self.bias, affine=self.affine, local_items=self.local,
        )  # fmt: skip
        roles = ("w", GIVEN_BIAS, *STATISTICS, *FOLDED.values())
        buffers = (arg for role in roles for arg in buffer(role))
        args = (*buffers, Scalar(self.eps, "float"), Scalar(prod(rest)))
        sizes = (filters * self.local,)
        return Launch(source, "fold_batch_norm", sizes, (self.local,), args, of_weights=True)


def _on_folded(launch: Launch) -> Launch:
    return replace(launch, args=tuple(map(_folded, launch.args)))


def _folded(arg: Arg) -> Arg:
    if isinstance(arg, Buffer | Offset) and arg.role in FOLDED:
        return type(arg)(FOLDED[arg.role])
    return arg
