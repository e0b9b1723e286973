"""A claim serves in torch after it was checked, and one that is far slower than it says never."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ocl_backend.dispatch import tuned
from oclgen.families import FAMILIES
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tests.tuned_db.tuned_samples import record
from tuned_db import Record, open_store
from tuned_db.records.digests import digest_of

PRODUCT = GemmProblem(47, 31, 29)
VARIANT = Variant("gemm_register", FAMILIES["gemm_register"].DEFAULT)


@pytest.fixture
def claimed(device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports a claim of this many milliseconds."""
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "claims.sqlite"))

    def claim(ms: float) -> None:
        made: Record = record(
            PRODUCT, config=VARIANT.to_json(), family=VARIANT.family, samples=(ms,),
            device=device.info, digest=digest_of(PRODUCT, VARIANT),
        )  # fmt: skip
        open_store().merge([replace(made, problem=PRODUCT.key())])
        tuned.reload_tuned()

    yield claim
    monkeypatch.undo()
    tuned.reload_tuned()


def multiply(device: Any) -> None:
    a, b = torch.randn(PRODUCT.m, PRODUCT.k), torch.randn(PRODUCT.k, PRODUCT.n)
    ours = a.to(f"ocl:{device.index}") @ b.to(f"ocl:{device.index}")
    torch.testing.assert_close(ours.cpu(), a @ b, rtol=1e-4, atol=1e-4)


def test_a_claim_serves_once_it_was_checked(device: Any, claimed: Any) -> None:
    claimed(1e6)
    multiply(device)
    assert tuned.chooser(device.index).choose(PRODUCT).source == "exact, checked"
    assert list(open_store().checks(device.info).values()) == [""]


def test_a_false_claim_never_serves(device: Any, claimed: Any) -> None:
    claimed(1e-6)
    with pytest.warns(UserWarning, match="gemm_register of rung .* does not serve. claimed 1e-06"):
        multiply(device)
    choice = tuned.chooser(device.index).choose(PRODUCT)
    assert (choice.verified, choice.origin) == (True, "")
    tuned.reload_tuned()  # as a later process would
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        multiply(device)
    assert tuned.chooser(device.index).choose(PRODUCT).verified
