"""The one door to the benchmarks: a command imports its module and packages when it runs."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import IO, Any

import click

from benchmarks.costs.commands import costs
from benchmarks.options import KINDS, MEASURING, PATH, Names
from benchmarks.shapes.commands import shapes
from oclgen.problem import DTYPES

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
EXPLAINED = """

Each row has the median times of both sides, taken in turns, what bounds it by the rates that were
measured first, and how much of that is reached. Products and convolutions are timed on the device,
torch's by CUDA's events or the host's clock, all else through torch by the host's. Without
`--trials` ours is what a user gets: the variant that dispatch takes from the database and the
records shipped with the package. Beside the chosen shapes there are groups called "drawn": shapes
that `--seed` draws, which is today's date unless it is given. What fails is a row with a reason;
the file of `--json` is whole after every row, and a later run with the same file replaces the rows
that it measures.
"""
Command = Callable[..., None]


@click.group(context_settings=HELP)
def main() -> None:
    """Measure this project and its peers, check networks, replay searches."""


def measure(kind: str, asked: dict[str, Any]) -> None:
    """Measure a kind of tasks, or all of them, on both sides."""
    from benchmarks.comparison.run import KINDS, Options, seed_of_today
    from benchmarks.comparison.run import main as run
    from benchmarks.comparison.sides import SideError
    from benchmarks.report.rows import ResultError
    from benchmarks.tasks.task import TaskError

    given = {name: value for name, value in asked.items() if value is not None}
    seed = given.pop("seed", seed_of_today())
    try:
        run(Options(kinds=KINDS if kind == "all" else (kind,), seed=seed, **given))
    except (SideError, ResultError, TaskError) as error:
        raise click.ClickException(str(error)) from error


def _measuring(kind: str, title: str) -> click.Command:
    def command(**asked: Any) -> None:
        measure(kind, asked)

    for option in reversed(MEASURING):
        command = option(command)
    return click.command(kind, help=title + EXPLAINED, short_help=title)(command)


for _kind, _title in KINDS.items():
    main.add_command(_measuring(_kind, _title))
for _command in (*costs.commands.values(), *shapes.commands.values()):
    main.add_command(_command)


@main.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", type=PATH)
def report(source: Path, target: Path) -> None:
    """Write the report of a file of rows, and its chart beside it: NAME.md and NAME.svg."""
    from benchmarks.report.plot import draw
    from benchmarks.report.rows import load
    from benchmarks.report.text import markdown

    result, chart = load(source), target.with_suffix(".svg")
    draw(result, chart)
    target.write_text(markdown(result, chart if chart.exists() else None), encoding="utf-8")


@main.command()
@click.option("--all", "every", is_flag=True, help="All networks.")
@click.option("--only", type=Names(), default=(), help="These networks.")
@click.option("--device", default="ocl:0", show_default=True)
@click.option("--size", default=64, show_default=True, help="Of images, where a network allows it.")
def validate(every: bool, only: tuple[str, ...], device: str, size: int) -> None:
    """Check whole networks on the device `ocl` against the CPU; exits with 1 if one is wrong."""
    import torch

    from benchmarks.models.validate import CASES
    from benchmarks.models.validate import main as run

    if every == bool(only):
        raise click.UsageError(f"give --all or --only; there are {', '.join(CASES)}")
    names = Names(tuple(CASES)).convert(only or tuple(CASES), None, None)
    if run(names, torch.device(device), size):
        raise SystemExit(1)


@main.command()
@click.option("--device", default="0", help="Index or part of the name.")
@click.option("--rows", type=Names(), default="1,4,8", show_default=True, help="Of the input.")
@click.option("--formats", type=Names(), default="int8,int4_128z,q4_0,q8_0,q4_k,q6_k",
              show_default=True)  # fmt: skip
@click.option("--dtype", default="fp32", show_default=True, type=click.Choice(tuple(DTYPES)))
@click.option("--drawn", default=6, show_default=True, type=click.IntRange(0),
              help="Products that the seed draws.")  # fmt: skip
@click.option("--seed", type=int, help="Draws them; today's date unless it is given.")
@click.option("--cold", is_flag=True, help="Read other data before each launch.")
@click.option("--json", type=PATH, help="Keep the rows here.")
def packed(
    device: str, rows: tuple[str, ...], formats: tuple[str, ...], dtype: str, drawn: int,
    seed: int | None, cold: bool, json: Path | None,
) -> None:  # fmt: skip
    """Products with packed weights beside the rate at which the device reads."""
    from benchmarks.comparison.run import seed_of_today
    from benchmarks.costs.packed import Options
    from benchmarks.costs.packed import main as run

    seed = seed_of_today() if seed is None else seed
    run(Options(device, [int(count) for count in rows], formats, dtype, drawn, seed, cold, json))


@main.command()
@click.option("--device", default="0", show_default=True, help="Index of the torch device.")
@click.option("--tokens", default=256, show_default=True, type=click.IntRange(1))
def smollm(device: str, tokens: int) -> None:
    """Compare a real model of packed weights with the CPU's; exits with 1 if one differs."""
    import ocl_backend.libraries  # noqa: F401 (registers the device, readies torchvision)
    from benchmarks.models.smollm import main as run

    run(device, tokens)


@main.command()
@click.argument("tables", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--methods", type=Names(), default="ours,random", show_default=True,
              help="Also ours-ahead, tpe, or a strategy of Kernel Tuner.")  # fmt: skip
@click.option("--seeds", default=20, show_default=True)
@click.option("--warm", is_flag=True, help="Begin with the best of the other tables.")
@click.option("--jobs", type=click.IntRange(1), help="Processes; as many as cores without it.")
def replay(
    tables: tuple[Path, ...], methods: tuple[str, ...], seeds: int, warm: bool, jobs: int | None
) -> None:
    """Replay searches on exhaustively measured tables, the one kept here without any."""
    from benchmarks.replays.replay import main as run

    run(tables, methods, seeds, warm, jobs)


@main.command()
@click.argument("problem")
@click.argument("family")
@click.argument("path", type=PATH)
@click.option("--device", default="0", help="Index or part of the name.")
@click.option("--only", multiple=True, metavar="NAME=VALUE", help="Only configs with this value.")
def table(problem: str, family: str, path: Path, device: str, only: tuple[str, ...]) -> None:
    """Measure every config of a family for a product: 256x256x256 gemm_register NAME.csv.gz."""
    from benchmarks.replays.tables import measure_table

    if wrong := [each for each in only if each.count("=") != 1]:
        raise click.UsageError(f"--only {wrong[0]} is not NAME=VALUE")
    measure_table(problem, family, device, dict(each.split("=") for each in only), path)


@main.command()
@click.argument("path", type=PATH)
@click.option("--device", default="0", help="Index or part of the name.")
@click.option("--seed", default=1, show_default=True)
@click.option("--problems", default=100, show_default=True)
@click.option("--listed", type=click.File(), help="Keys of problems, one a line, instead.")
@click.option("--time-budget", default=inf, metavar="S", help="Begin nothing after S seconds.")
@click.option("--turns", default=0, show_default=True, help="Times variants again, in turns.")
@click.option("--again", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              multiple=True, help="Measures the problems of this table anew.")  # fmt: skip
def collect(path: Path, listed: IO[str] | None, **options: Any) -> None:
    """Measure many variants of drawn problems, losers included, and append them to a table."""
    from benchmarks.choice.collect import main as run

    run(path, listed=listed.read().split() if listed else (), **options)


@main.command()
@click.argument("kind", type=click.Choice(("cpu", "gpu")))
@click.argument("tables", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def fit(kind: str, tables: tuple[Path, ...]) -> None:
    """Make the shipped model of a kind of device from tables, those kept here without any."""
    from benchmarks.choice.evaluate import TABLES
    from benchmarks.choice.fit import main as run

    run(kind, tables or TABLES)


@main.command()
@click.argument("tables", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def choice(tables: tuple[Path, ...]) -> None:
    """Print how near the model's choices are to the best known variants, on unseen problems."""
    from benchmarks.choice.evaluate import TABLES
    from benchmarks.choice.evaluate import main as run

    run(tables or TABLES)


@main.command()
@click.argument("tables", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", default="0", help="Index or part of the name.")
@click.option("--below", default=0.6, show_default=True, help="Quality of a choice.")
def worst(tables: tuple[Path, ...], device: str, below: float) -> None:
    """Time the worst choices of tables and what the tables claim to be the best, by turns."""
    from benchmarks.choice.duels import worst as run

    run(tables, device, below)


@main.command()
@click.argument("before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--device", default="0", help="Index or part of the name.")
@click.option("--seed", default=1, show_default=True, help="Draws the problems.")
@click.option("--problems", default=60, show_default=True)
@click.option("--dtype", default="", help="Of all problems; any, if it is not given.")
@click.option("--convolutions", is_flag=True, help="Draw no products.")
def versus(
    before: Path, device: str, seed: int, problems: int, dtype: str, convolutions: bool
) -> None:
    """Time what another checkout of this project chooses against the choices of this one."""
    from benchmarks.choice.duels import versus as run

    run(before, device, seed, problems, dtype, convolutions)


@main.command()
@click.option("--device", default=0, show_default=True, help="Index.")
@click.option("--seed", default=1, show_default=True, help="Draws the problems.")
@click.option("--problems", default=30, show_default=True)
@click.option("--unknown", is_flag=True, help="Without the package's records.")
def race(device: int, seed: int, problems: int, unknown: bool) -> None:
    """Time drawn problems without a record before and after a race, as programs run them."""
    from benchmarks.choice.race import main as run

    run(device, seed, problems, unknown)


@main.command()
@click.argument("steps", nargs=-1, required=True, metavar="NETWORK,MODE,BATCH[,DTYPE]...")
@click.option("--device", default=0, show_default=True, help="Index.")
@click.option("--known", is_flag=True, help="With records and instructions.")
@click.option("--background", default=0.0, metavar="S", help="Seconds of tuning beside each.")
def unknown(steps: tuple[str, ...], device: int, known: bool, background: float) -> None:
    """Time networks on a device as if it were unknown: resnet18,train,64 or vgg16,eval,8,bf16."""
    from benchmarks.choice.unknown import main as run

    run(steps, device, known, background)


@main.command()
@click.argument("steps", nargs=-1, required=True, metavar="NETWORK,MODE,BATCH[,DTYPE]...")
@click.option("--device", default=0, show_default=True, help="Index.")
@click.option("--tune", default=0.0, metavar="S", help="Seconds of tuning beside the pull.")
def pulled(steps: tuple[str, ...], device: int, tune: float) -> None:
    """Time networks on a device that pulls what the owner of a related one has measured."""
    from benchmarks.costs.pulled import main as run

    run(steps, device, tune)


@main.command()
@click.option("--device", default="0", help="Index or part of the name.")
@click.option("--operators", is_flag=True, help="Operators besides convolutions and products.")
@click.option("--seed", type=int, help="Draws the cases; the date, if it is not given.")
@click.option("--cases", default=300, show_default=True)
@click.option(
    "--again",
    type=float,
    metavar="RATIO",
    help="Only the cases of --json below this, once more: each side's least time counts.",
)
@click.option("--case-seconds", default=20.0, show_default=True, metavar="S",
              help="An answer that takes longer ends the case, with a reason.")  # fmt: skip
@click.option("--time-budget", default=inf, metavar="S", help="Begin nothing after S seconds.")
@click.option("--most-mib", default=256, show_default=True, help="MiB of a case's tensors.")
@click.option("--builders", default=0, help="Processes that make every call once before.")
@click.option("--peer", type=click.Choice(("auto", "cpu", "cuda")), default="auto")
@click.option("--json", type=PATH, help="Keep the rows here.")
@click.option("--note", default="", help="Said in the report: what else ran, for instance.")
def sweep(**asked: Any) -> None:
    """Measure operators drawn over all classes of shapes, and print the slowest.

    A class is a direction, a dtype and a kind of convolution or product, or of operator. Each case
    runs through torch's operator on both sides, calls in bursts. Means are given by class, and by
    what classes have in common; then the 20 cases that are slowest against the peer, with what
    served them.
    """
    from benchmarks.comparison.run import seed_of_today
    from benchmarks.comparison.sides import SideError
    from benchmarks.comparison.sweep import Options
    from benchmarks.comparison.sweep import main as run
    from benchmarks.report.rows import ResultError

    if asked["seed"] is None:
        asked["seed"] = seed_of_today()
    try:
        run(Options(**asked))
    except (SideError, ResultError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--device", default="0", help="Index or part of the name.")
@click.option("--seed", type=int, help="Draws them; the date, if it is not given.")
@click.option("--networks", default=8, show_default=True, help="Types that torch can run.")
@click.option("--only", type=Names(), default=(), help="These types of the draw.")
@click.option("--dtype", type=Names(("fp32", "bf16")), default="fp32,bf16", show_default=True)
@click.option("--size", type=click.Choice(("gpu", "cpu", "small")), default=None,
              help="Of what is drawn; the device's, if it is not given.")  # fmt: skip
@click.option("--case-seconds", default=60.0, show_default=True, metavar="S",
              help="An answer that takes longer ends the case, with a reason.")  # fmt: skip
@click.option("--time-budget", default=inf, metavar="S", help="Begin nothing after S seconds.")
@click.option("--builders", default=0, help="Processes that make every step once before.")
@click.option("--peer", type=click.Choice(("auto", "cpu", "cuda")), default="auto")
@click.option("--json", type=PATH, help="Keep the rows here.")
@click.option("--note", default="", help="Said in the report: what else ran, for instance.")
def architectures(**asked: Any) -> None:
    """Measure model types of transformers, drawn with their sizes, and print the slowest.

    Each is evaluated and trained; causal language models generate tokens, too. Both sides' results
    are compared before they are timed. A type that torch itself cannot run at the drawn sizes is
    skipped, and the next one is drawn; what fails or falls back on our side is a row that says so.
    """
    from benchmarks.comparison.architectures import Options
    from benchmarks.comparison.architectures import main as run
    from benchmarks.comparison.run import seed_of_today
    from benchmarks.comparison.sides import SideError
    from benchmarks.report.rows import ResultError

    if asked["seed"] is None:
        asked["seed"] = seed_of_today()
    try:
        run(Options(**asked))
    except (SideError, ResultError) as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("names", nargs=-1, metavar="[TARGET]...")
@click.option("--family", multiple=True, help="Only this one; repeatable.")
@click.option("--seed", default=1, show_default=True, help="Draws the samples.")
@click.option("--samples", default=1, show_default=True, help="Drawn for each problem and family.")
@click.option("--jobs", default=2, show_default=True, help="Compilers that run at once.")
@click.option("--json", type=PATH, help="Keep the rows here.")
@click.option("--markdown", type=PATH, help="Write the tables.")
def targets(
    names: tuple[str, ...],
    family: tuple[str, ...],
    seed: int,
    samples: int,
    jobs: int,
    json: Path | None,
    markdown: Path | None,
) -> None:
    """Compile for GPUs that are not there: gfx1100 dg2; without names for all that are known.

    Of every family the default, the first guess and a sample of its space. Needs no device:
    `ocloc` compiles for Intel's GPUs, clang for AMD's. Exits with 1 if a variant does not
    compile, or if a default or a guess needs more than registers. The file of `--json` is whole
    after every target; a later run with the same file replaces what it compiles, and keeps other
    targets and families.
    """
    from benchmarks.targets.run import main as run
    from benchmarks.targets.target import TARGETS
    from oclgen.families import FAMILIES

    chosen = Names(tuple(TARGETS)).convert(names, None, None)
    families = Names(tuple(FAMILIES)).convert(family, None, None)
    raise SystemExit(not run(chosen, families, seed, samples, jobs, json, markdown))


@main.command()
@click.argument("numbers", nargs=-1)
def commons(numbers: tuple[str, ...]) -> None:
    """Try what strangers' records and requests could do to a database; exits with 1 on harm."""
    from benchmarks.commons.run import main as run

    raise SystemExit(run(numbers) > 0)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
