"""Products over the Winograd domain that are worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from oclgen.families.winograd.winograd_products import product_guesses
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from search_spaces.gemm import gemm_async, gemm_staged
from search_spaces.values import Values

VARIED_GEMMS = 2
"""Products of each family whose neighbours are tried as well."""


def products(product: GemmProblem, limits: Limits, slices: int = 1) -> list[str]:
    """Return the guesses, and on GPUs whatever differs from the first ones in one parameter.

    Args:
        product: of all points.
        limits: of the device.
        slices: the fewest into which the reduction is split.
    """
    texts = list(product_guesses(product, limits, slices))
    if limits.kind == "cpu":
        return texts
    varied = {"gemm_staged": gemm_staged.values, "gemm_async": gemm_async.values}
    for family, values_of in varied.items():
        values = {**values_of(product, limits), "split_k": (slices,)}
        own = (text for text in texts if text.startswith(f"{family}:"))
        for text in [*islice(own, VARIED_GEMMS)]:
            guess = Variant.from_text(text)
            texts += [one.to_text() for one in _neighbours(guess, values)]
    return texts


def _neighbours(guess: Variant, values: Values) -> Iterator[Variant]:
    for name, choices in values.items():
        for value in choices:
            change: dict[str, Any] = {name: value}
            yield Variant(guess.family, replace(guess.config, **change))
