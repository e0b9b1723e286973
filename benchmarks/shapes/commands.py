"""The commands of `benchmarks.shapes`: record the problems of networks, and rank them."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.options import PATH, Names

shapes = click.Group()


@shapes.command()
@click.argument("path", type=PATH)
@click.option("--only", type=Names(), default=(), help="These networks; all without it.")
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True,
              help="Items of an input, repeatable; 1 and 32 without it.")  # fmt: skip
@click.option("--most", default=2000, show_default=True, help="Problems, the heaviest.")
@click.option("--device", default=0, show_default=True, help="Index; nothing runs on it.")
def record_networks(
    path: Path, only: tuple[str, ...], batches: tuple[int, ...], most: int, device: int
) -> None:
    """Record the problems of forty networks, without computing them; exits with 1 if one fails.

    It needs torchvision, timm and transformers. With the limits of a GPU that is not here:
    OCLGEN_DEVICE_PROFILE=tests/ocl_backend/wide_gpu.toml.
    """
    from benchmarks.shapes.networks import NETWORKS
    from benchmarks.shapes.record import BATCHES
    from benchmarks.shapes.record import main as run

    names = Names(tuple(one.name for one in NETWORKS)).convert(only, None, None) if only else ()
    if run(path, names, batches or BATCHES, device, most):
        raise SystemExit(1)


@shapes.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--count", default=40, show_default=True, help="Lines.")
@click.option("--device", default="0", show_default=True, help="Index or part of the name.")
def rank_shapes(path: Path, count: int, device: str) -> None:
    """List the problems of a recording that lose most time without records of their own."""
    from benchmarks.shapes.rank import main as run

    run(path, count, device)
