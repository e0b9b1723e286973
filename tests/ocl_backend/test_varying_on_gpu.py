"""Sizes that vary on a GPU with many compute units, whose kernels are not those of processors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ocl_backend.dispatch.varying import MANY
from tests import torch_processes

PROFILE = Path(__file__).with_name("wide_gpu.toml")
NETWORKS = (
    ("mlp", "contiguous_format"), ("cnn", "contiguous_format"), ("cnn", "channels_last"),
    ("transformer", "contiguous_format"),
)  # fmt: skip
INSTRUCTIONS = ("", ",cp_async,mma,wgmma")


def asked(network: str, layout: str, what: str) -> list[float]:
    """Run `varying_on_gpu` in a process of its own; return what it prints."""
    module = f"{__package__}.varying_on_gpu"
    done = torch_processes.run_module(
        module, network, layout, what, OCLGEN_DEVICE_PROFILE=str(PROFILE)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[float] = json.loads(done.stdout)
    return found


@pytest.mark.sampled(8)
@pytest.mark.parametrize("instructions", INSTRUCTIONS, ids=["plain", "hopper"])
@pytest.mark.parametrize(("network", "layout"), NETWORKS)
def test_a_network_has_texts_for_few_sizes(
    any_device: None, network: str, layout: str, instructions: str
) -> None:
    """Trained and evaluated, by kernels for all sizes: from `MANY` on no size brings a text."""
    counts = asked(network, layout, f"texts{instructions}")
    assert counts[MANY] == counts[-1], counts


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
def test_normalisations_of_other_sizes_share_texts(any_device: None, layout: str) -> None:
    counts = asked("norm", layout, "texts")
    assert counts[0] == counts[-1] > 0, counts


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("network", "layout"), NETWORKS)
def test_results_agree_with_the_cpu(any_device: None, network: str, layout: str) -> None:
    assert max(asked(network, layout, "results")) < 1e-4
