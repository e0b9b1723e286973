"""What happens to sums before they are stored: the text of bias, residual and activation.

`oclgen.problem` says which of these a problem has; a kernel's template says where it applies them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from oclgen.plan import Arg, buffer
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.render import activation_preamble, render


def epilogue(
    problem: GemmProblem | ConvProblem, results: str = "", split: bool = False
) -> dict[str, Any]:
    """Return a template's `bias`, `residual`, `term_parameters` and `activation`, the text of ACT.

    `term_parameters` is the text of the kernel's parameters of both, whose arguments are `terms`.

    A residual may lie in the results' own memory: the work-item that stores a result is the only
    one that reads what is added to it.

    Args:
        problem: says which terms there are.
        results: a pointer in the kernel, or "". With it the text also has RESIDUAL(p): its distance
            from the kernel's `residual` is that of p, the place of a result, from `results`.
        split: whether the reduction is. Then the text has no bias, no residual and no activation:
            the launch that adds the planes applies them.
    """
    if split:
        no_bias = "none" if isinstance(problem, GemmProblem) else False
        none = {"bias": no_bias, "residual": False, "term_parameters": ""}
        return {**none, "activation": activation_preamble("none")}
    text = activation_preamble(problem.activation)
    if problem.residual and results:
        text += f"\n#define RESIDUAL(p) (residual + ((p) - {results}))"
    parameters = "".join(
        f"    __global const elem_t *restrict {role}, const long offset_{role},\n"
        for role in _roles(problem)
    )
    added = {"bias": problem.bias, "residual": problem.residual, "term_parameters": parameters}
    return {**added, "activation": text}


def store_channels(problem: ConvProblem, vec: int) -> str:
    """Return the text of `store_channels`, which adds bias and residual, applies ACT and stores.

    It is for images in channels_last: the lanes of a vector are neighbours.

    Args:
        problem: says which terms there are.
        vec: lanes of a vector.
    """
    channels = problem.out_channels if problem.direction == "fwd" else problem.in_channels
    return render(
        "store_channels",
        vec=vec,
        rest=channels // problem.groups % vec,
        bias=problem.bias,
        residual=problem.residual,
    )


def plus_residual(residual: bool, width: int, place: str, load: str = "LOAD") -> str:
    """Return the text that adds `width` items of the residual to the results of that place.

    Args:
        residual: whether there is one; else the text is empty.
        width: neighbouring results.
        place: pointer to the results.
        load: macro, without its width, that reads them.
    """
    return f" + {load}{width}(RESIDUAL({place}))" if residual else ""


def plus_matrix_terms(bias: str, residual: bool) -> str:
    """Return the text that adds bias and residual to the result of C at `row` and `column`."""
    added = {"none": "", "m": " + LOAD1(bias + row)", "n": " + LOAD1(bias + column)"}[bias]
    return added + plus_residual(residual, 1, "c + row * (long)ld_c + column")


@lru_cache(maxsize=64)
def terms(problem: Problem, split: bool = False) -> tuple[Arg, ...]:
    """Return pointer and offset of the bias, then of the residual, if the problem has them."""
    return () if split else tuple(arg for role in _roles(problem) for arg in buffer(role))


def _roles(problem: Problem) -> list[str]:
    return [role for role in ("bias", "residual") if role in problem.buffers]
