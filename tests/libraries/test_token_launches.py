"""Launches of a token of a Llama-shaped model in unmodified `generate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "tests" / "ocl_backend" / "wide_gpu.toml"
COUNTED = """
import json, torch
from tests import sampled_builds
sampled_builds.begin()
from benchmarks.costs.token_host import asked
from benchmarks.costs.token_launches import CACHES, Shape, counted, generate, model
shape = Shape(96, 136, 4, 2, 64)
network, found = model(shape, 2, torch.bfloat16), {}
expected = {cache: generate(network, cache, 6).tolist() for cache in CACHES}
network.to("ocl")
same = {cache: generate(network, cache, 6).tolist() for cache in CACHES} == expected
asks = [asked(network, cache) for cache in CACHES]
layers = [counted(shape, torch.bfloat16, cache, "ocl").layer for cache in CACHES]
print(json.dumps([same, asks, layers, torch.ocl.fallbacks()]))
"""


@pytest.mark.parametrize(
    ("profile", "launches"), [({"OCLGEN_DEVICE_PROFILE": str(PROFILE)}, [7, 6]), ({}, [6, 6])]
)
def test_a_layer_of_a_token_takes_few_launches(
    any_device: None, profile: dict[str, str], launches: list[int]
) -> None:
    """Seven with a dynamic cache on a GPU, one of which joins the slices of its keys.

    A static one of 17 keys has nothing to join, nor has a processor. The mask of numbers that torch
    makes of its mask of bools is part of another launch.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNTED],
        env=os.environ | profile | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    same, asks, layers, fallbacks = json.loads(done.stdout.splitlines()[-1])
    assert same
    assert asks == [0, 0]  # the shim repeats every call of a token
    assert layers == launches
    assert fallbacks == {}
