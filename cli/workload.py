"""The problems that `oclgen tune` tunes: shapes, lists, recordings or a whole network.

It reads options and makes problems; it tunes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import click

from oclgen.keys import (
    ATTENTION_FORM,
    CONV_FORM,
    GEMM_FORM,
    PACKED_FORM,
    parse_attention,
    parse_conv,
    parse_gemm,
    parse_key,
    parse_packed,
)
from oclgen.limits import Limits
from oclgen.problem import Problem

from .options import MODEL_FORM

if TYPE_CHECKING:
    from .network import Network


_OPTIONS = (
    click.option(
        "--gemm", "gemms", multiple=True, metavar="SHAPE", help=f"{GEMM_FORM}. Repeatable."
    ),
    click.option(
        "--conv", "convs", multiple=True, metavar="SHAPE", help=f"{CONV_FORM}. Repeatable."
    ),
    click.option(
        "--attention",
        "attentions",
        multiple=True,
        metavar="SHAPE",
        help=f"{ATTENTION_FORM}. Repeatable.",
    ),
    click.option(
        "--packed", "packed", multiple=True, metavar="SHAPE", help=f"{PACKED_FORM}. Repeatable."
    ),
    click.option(
        "--problems",
        "listed",
        type=click.File(),
        help="File with a problem per line, as torch.ocl.explain prints them; - is stdin.",
    ),
    click.option(
        "--recorded",
        type=click.File(),
        help="File that torch.ocl.tunable wrote: problems with their calls; - is stdin.",
    ),
    click.option(
        "--model",
        metavar="MODEL",
        help=f"All problems of a network: {MODEL_FORM}; the function returns a model or "
        "(model, *inputs).",
    ),
    click.option("--batch", default=8, show_default=True, type=click.IntRange(1)),
    click.option(
        "--input",
        "shape",
        default="3x224x224",
        show_default=True,
        metavar="SIZES",
        help="Sizes of the model's input behind the batch.",
    ),
    click.option("--train", is_flag=True, help="Tune the model's gradients too."),
    click.option(
        "--dtype", default="fp32", show_default=True, type=click.Choice(["fp32", "fp16", "bf16"])
    ),
)


def workload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what is tuned; `gather` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Workload:
    """Problems, each once, with how often they are called where that is known."""

    problems: Sequence[Problem]
    calls: Counter[Problem] = field(default_factory=Counter)
    network: Network | None = None


def gather(
    limits: Limits,
    place: str,
    *,
    gemms: Sequence[str],
    convs: Sequence[str],
    attentions: Sequence[str],
    packed: Sequence[str],
    listed: TextIO | None,
    recorded: TextIO | None,
    model: str | None,
    batch: int,
    shape: str,
    train: bool,
    dtype: str,
) -> Workload:
    """Return what the options ask for, the default set where they ask for nothing.

    Args:
        limits: of the device.
        place: torch's name of the device, on which a model is run once to see what it calls.
        gemms: of `--gemm`.
        convs: of `--conv`.
        attentions: of `--attention`.
        packed: of `--packed`.
        listed: of `--problems`.
        recorded: of `--recorded`.
        model: of `--model`.
        batch: of the model's input.
        shape: of an item of it.
        train: whether the model is trained.
        dtype: of the model.

    Raises:
        ProblemError: a shape cannot be read or cannot exist.
        RecordingError: a line of the recording cannot be read.
        ModelError: there is no such model.
        click.UsageError: a model or a recording stands beside shapes.
    """
    from oclgen.recording import load
    from search_spaces.workloads import default_problems

    problems: list[Problem] = [*map(parse_gemm, gemms), *map(parse_conv, convs)]
    problems += [*map(parse_attention, attentions), *map(parse_packed, packed)]
    problems += [parse_key(line.strip()) for line in listed or () if line.strip()]
    if sum(map(bool, (problems, recorded, model))) > 1:
        raise click.UsageError("give shapes, --recorded or --model, not several of them")
    if recorded:
        calls = load(recorded)
        return Workload(list(calls), calls)
    if model:
        return _of_model(model, batch, _sizes(shape), dtype, train, place)
    return Workload(list(dict.fromkeys(problems)) or default_problems(limits))


def _sizes(text: str) -> list[int]:
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} must be sizes such as 3x224x224", param_hint="--input")
    return [int(part) for part in parts]


def _of_model(
    spec: str, batch: int, shape: Sequence[int], dtype: str, train: bool, place: str
) -> Workload:
    from .network import load

    network = load(spec, batch, shape, dtype, train).to(place)
    calls = network.calls()
    return Workload(list(calls), calls, network)
