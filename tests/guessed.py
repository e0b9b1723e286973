"""Every family's variants for an untuned problem, in the order of preference."""

from __future__ import annotations

from collections.abc import Iterator

from oclgen.families import preferred, valid_configs
from oclgen.families.conv import conv_pixels_weights, conv_register
from oclgen.families.conv.conv_amx import shares_tiles
from oclgen.families.conv.conv_as_gemm import lowered
from oclgen.families.gemm import gemm_dot_pairs, gemm_pairs, gemm_register, gemm_stream
from oclgen.families.gemm.gemm_amx_blocks import are_fastest
from oclgen.limits import Limits
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant


def valid_guesses(problem: Problem, limits: Limits) -> Iterator[Variant]:
    """Yield variants that can serve an untuned problem, best guess first.

    They are the `valid_configs` of the `preferred` families, one family after the other.
    """
    for family in preferred(problem, limits):
        for config in valid_configs(family, problem, limits):
            yield Variant(family.NAME, config)


def is_left_to_another(name: str, problem: Problem, limits: Limits) -> bool:
    """Say whether a family guesses nothing on a processor where another one is always faster."""
    if name == "conv_pairs":
        return limits.kind == "cpu" and isinstance(problem, ConvProblem) and shares_tiles(problem)
    if name == "conv_register":
        return isinstance(problem, ConvProblem) and conv_register.is_long_product(problem)
    if name == "conv_pixels_weights":
        assert isinstance(problem, ConvProblem)
        return conv_pixels_weights.is_left_to_another(problem, limits)
    if name in ("conv_lines_weights", "winograd_blocked_weights"):
        return conv_pixels_weights.is_multiplied(problem.dtype, limits)
    if name == "gemm_stream":
        return not gemm_stream.is_streamed(problem, limits)
    if not name.endswith(("gemm_register", "gemm_pairs", "gemm_dot", "gemm_dot_pairs")):
        return False
    product = lowered(problem) if isinstance(problem, ConvProblem) else problem
    assert isinstance(product, GemmProblem)
    many = product.m >= gemm_register.ROWS_FOR_PAIRS and name.endswith("gemm_register")
    for_pairs = problem.dtype == "bf16" and gemm_pairs.INSTRUCTION in limits.instructions
    is_short = product.k < gemm_dot_pairs.SHORT
    most = gemm_dot_pairs.SHORT_ROWS if is_short else gemm_dot_pairs.MOST_ROWS
    wide = name.endswith("gemm_dot_pairs") and product.m > most
    dots = name.endswith("gemm_pairs") and gemm_pairs.is_left_to_dots(product)
    if name.endswith("gemm_register") and gemm_stream.is_streamed(product, limits):
        return True
    return wide or dots or (many and for_pairs) or are_fastest(product, limits)
