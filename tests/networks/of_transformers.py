"""transformers: every model type that a toy config of its own class and plain inputs can make."""

from __future__ import annotations

from benchmarks.tasks import model_types
from benchmarks.tasks.model_types import Sizes
from tests.networks.made import Made

TOY = Sizes(
    width=32, heads=4, kv_heads=2, inner=64, layers=2, words=128, tokens=12, batch=2, experts=4,
    side=64, blocks=1, share=4,
)  # fmt: skip

names = model_types.names


def make(name: str) -> Made:
    """Return the model of a type with random weights, and its inputs."""
    network = model_types.model(name, TOY)
    return Made(network, named=model_types.inputs(network, TOY))
