"""Products over the Winograd domain that are worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from oclgen.families.gemm.gemm_staged import Config as StagedGemm
from oclgen.families.winograd.winograd_products import product_guesses, staged_guesses
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from search_spaces.gemm import gemm_staged
from search_spaces.values import Values

VARIED_GEMMS = 2
"""Products whose neighbours are tried as well."""


def products(product: GemmProblem, limits: Limits) -> list[str]:
    """Return the guesses, and on GPUs whatever differs from the first ones in one parameter."""
    texts = list(product_guesses(product, limits))
    if limits.kind == "cpu":
        return texts
    values = {**gemm_staged.values(product, limits), "split_k": (1,)}
    for guess in islice(staged_guesses(product, limits), VARIED_GEMMS):
        texts += [Variant("gemm_staged", near).to_text() for near in _neighbours(guess, values)]
    return texts


def _neighbours(config: StagedGemm, values: Values) -> Iterator[StagedGemm]:
    for name, choices in values.items():
        for value in choices:
            change: dict[str, Any] = {name: value}
            yield replace(config, **change)
