"""The families by name: each imports what it needs, and a walk has all in their order."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oclgen.families import FAMILIES, Families, is_transforming


def test_a_name_imports_its_own_family() -> None:
    program = (
        "import sys\n"
        "from oclgen.families import FAMILIES\n"
        "FAMILIES['conv_as_gemm_register']\n"
        "names = ('gemm_register', 'gemm_mma', 'winograd_staged', 'attention_rows')\n"
        "print(*(name for name in names if any(full.endswith(name) for full in sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "gemm_register\n", done.stderr


def test_a_name_has_one_family() -> None:
    found = Families()
    assert found["gemm_dot"] is FAMILIES["gemm_dot"]
    face = found["conv_as_gemm_register"]
    assert face is found["conv_as_gemm_register"]
    assert dict(found)["conv_as_gemm_register"] is face


@pytest.mark.parametrize("name", ["gemm", "gemm_tiles", "conv_as_gemm", "conv_as_conv_mma", "os"])
def test_what_is_no_family_has_no_name(name: str) -> None:
    """Modules that families share lie beside them."""
    for found in (Families(), FAMILIES):
        assert name not in found
        with pytest.raises(KeyError, match=name):
            found[name]


def test_a_walk_meets_all_in_their_order() -> None:
    found = Families()
    found["gemm_dot"]
    ranks = [family.TRAITS.rank for family in found.values()]
    assert ranks == sorted(ranks)
    assert [*found] == [*FAMILIES]
    assert all(name == family.NAME for name, family in found.items())


def test_a_family_that_there_is_no_more_is_not_transforming() -> None:
    assert is_transforming("winograd_staged")
    assert not is_transforming("gemm_dot")
    assert not is_transforming("winograd_of_old")
