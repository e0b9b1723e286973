"""Every family's configs survive the two ways they travel: as JSON and to another process."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from oclgen.families import FAMILIES, ConfigError
from oclgen.measuring.worker import Worker
from oclgen.problem import ConvProblem
from oclgen.variant import Variant


@pytest.mark.parametrize("name", FAMILIES)
def test_a_config_is_read_back_from_its_json(name: str) -> None:
    default = FAMILIES[name].DEFAULT
    assert Variant.from_values(name, json.loads(Variant(name, default).to_json())).config == default
    assert Variant.from_values(name, asdict(default)).config == default


def test_a_record_from_before_a_parameter_came_means_its_default() -> None:
    config = FAMILIES["gemm_async"].DEFAULT
    later = ("local_k", "order", "groups")
    older = {key: value for key, value in asdict(config).items() if key not in later}
    assert Variant.from_values("gemm_async", older).config == config
    with pytest.raises(ConfigError, match="missing \\['tile_m'\\]"):
        Variant.from_values("gemm_async", {k: v for k, v in older.items() if k != "tile_m"})


def test_every_family_that_serves_is_measured_in_the_child(device: Any) -> None:
    problem = ConvProblem(1, 4, 5, 5, 4, 1, 1)
    served = [
        family
        for family in FAMILIES.values()
        if family.serves(problem) and family.DEFAULT.why_not(problem, device.limits) is None
    ]
    assert {"conv_gemm", "conv_as_gemm_register"} <= {family.NAME for family in served}
    with Worker(device.index, device.info) as worker:
        for family in served:
            assert worker.measure(problem, Variant(family.NAME, family.DEFAULT)).ok, family.NAME
