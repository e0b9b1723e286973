"""What tests of a tuning without a device ask for."""

from __future__ import annotations

import pytest

from oclgen.families.gemm import gemm_register, gemm_staged
from search_spaces import space
from tests.search_spaces.lab import STAGED, Lab
from tests.search_spaces.synthetic import Memory


@pytest.fixture
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two families serve, whatever others there are by now, with some hundred configs."""
    serving = (gemm_register, gemm_staged)
    monkeypatch.setattr("search_spaces.tune.families_for", lambda problem: serving)
    tiles, flags = (16, 32, 64, 128), (False, True)
    few = {"tile_m": tiles, "tile_n": tiles, "tile_k": (8, 16, 32), "double_buffer": flags}
    few |= {"vec_m": (2, 4), "vec_n": (2, 4), "local_m": (8, 16), "local_n": (8, 16)}
    monkeypatch.setitem(space.SPACES, STAGED, lambda p, li: few)


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
def memory() -> Memory:
    return Memory()
