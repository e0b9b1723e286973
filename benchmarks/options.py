"""What commands of the benchmarks share: kinds of tasks, names with commas, options."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import click

from oclgen.problem import DIRECTIONS, DTYPES


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them, as a tuple; of `known` ones only, if there are any."""

    name = "a,b"

    def __init__(self, known: tuple[str, ...] = ()) -> None:
        self.known = known

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names; an unknown one is an error of usage.

        Args:
            value: names with commas between them, or several.
            param: the option, for the error.
            ctx: the command, for the error.
        """
        names = tuple(value.split(",")) if isinstance(value, str) else tuple(value)
        if unknown := [name for name in names if self.known and name not in self.known]:
            self.fail(f"unknown: {', '.join(unknown)}; known: {', '.join(self.known)}", param, ctx)
        return names


KINDS = {
    "all": "Everything below, the most important first.",
    "gemm": "Matrix products.",
    "conv": "Convolutions.",
    "attention": "Attention, forward and with gradients.",
    "networks": "Whole networks of torchvision, and drawn ones of timm.",
    "language": "Language models: prompts, training, tokens behind one another.",
    "images": "Diffusion, its decoder, vision transformers.",
    "pointwise": "Operators that memory limits.",
}
PATH = click.Path(dir_okay=False, path_type=Path)
MEASURING = (
    click.option("--device", default="0", help="Index or part of the name."),
    click.option(
        "--only", type=Names(), default=(), help="Kinds, or groups such as squares,drawn."
    ),
    click.option("--seed", type=int, help="Draws shapes; the date, if it is not given."),
    click.option("--drawn", type=click.IntRange(0), help="Shapes of each kind that are drawn."),
    click.option("--trials", default=0, help="Search this many variants; 0: what dispatch knows."),
    click.option("--family", multiple=True, help="Search only this one; repeatable."),
    click.option("--dtype", type=Names(tuple(DTYPES)), default=(), help="Not of networks."),
    click.option("--direction", type=click.Choice(DIRECTIONS), multiple=True, help="Of conv."),
    click.option("--batch", default=0, help="Images; usually 8 on CPUs, 64 on GPUs."),
    click.option("--networks", type=Names(), help="Of torchvision, or `timm.NAME`."),
    click.option("--small", is_flag=True, help="Language and images: sizes that take seconds."),
    click.option("--check", is_flag=True, help="Verify large problems and networks, too."),
    click.option("--time-budget", default=inf, metavar="S", help="Begin nothing after S seconds."),
    click.option("--peer", type=click.Choice(("auto", "cpu", "cuda")), default="auto"),
    click.option("--clblast", default="", metavar="PATH", help="The library; else the system's."),
    click.option("--clblast-trials", default=0, help="Search its parameters first, at random."),
    click.option("--json", type=PATH, help="Keep the rows here."),
    click.option("--missing", is_flag=True, help="Measure only what the file has no times of."),
    click.option("--markdown", type=PATH, help="Write the report."),
    click.option("--plot", type=PATH, help="Draw the square products as SVG."),
    click.option("--note", default="", help="Said in the report: what else ran, for instance."),
)
