"""The commands of `benchmarks.costs`: what the host, memory, the service and the database cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarks.options import PATH, Names

EMPTY_DB = "An empty database; without it a SQLite file that is thrown away."
costs = click.Group()


@costs.command()
@click.option("--calls", default=10_000, show_default=True)
@click.option("--device", default="ocl:0", show_default=True)
def host_time(calls: int, device: str) -> None:
    """Time what the host spends per operator call on small tensors."""
    from benchmarks.costs.host_time import main as run

    run(calls, device)


@costs.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...",
                type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1))
def choosing(tables: tuple[Path, ...], rounds: int) -> None:
    """Time what a choice without a record costs the host, for the problems of tables."""
    from benchmarks.costs.choosing import main as run

    run(tables, rounds)


@costs.command()
@click.option("--dtype", type=click.Choice(["fp32", "bf16", "fp16"]), default="fp32")
@click.option("--hidden", type=int, help="Of a larger model: intermediate size is 2.75 times it.")
@click.option("--seed", default=0, show_default=True, help="Draws further shapes.")
@click.option("--draws", default=2, show_default=True, help="How many.")
@click.option("--device", default="ocl:0", show_default=True)
def token_launches(dtype: str, hidden: int | None, seed: int, draws: int, device: str) -> None:
    """Count launches per layer and token of a Llama-shaped model in transformers' generate."""
    from benchmarks.costs.token_launches import CHOSEN, Shape
    from benchmarks.costs.token_launches import main as run
    from ocl_backend.dtypes import STORAGE

    shape = Shape.of(hidden) if hidden is not None else CHOSEN
    run({name: of for of, name in STORAGE.items()}[dtype], device, seed, draws, shape)


@costs.command()
@click.option("--layers", default=22, show_default=True, type=click.IntRange(1))
@click.option("--runs", default=12, show_default=True, type=click.IntRange(1))
@click.option("--device", default="ocl:0", show_default=True)
def token_host(layers: int, runs: int, device: str) -> None:
    """Time and count what the host does for a token of a Llama-shaped model in bf16."""
    from benchmarks.costs.token_host import main as run

    run(layers, runs, device)


@costs.command()
@click.argument("steps", nargs=-1, required=True, metavar="NETWORK,BATCH[,DTYPE]...")
@click.option("--device", default="ocl:0", show_default=True)
def training_memory(steps: tuple[str, ...], device: str) -> None:
    """Compare the peak memory of training with what has to be kept: resnet18,64 or vgg16,8,bf16."""
    from benchmarks.costs.training_memory import main as run

    run(steps, device)


@costs.command()
@click.argument("networks", nargs=-1, required=True)
@click.option("--batch", default=8, show_default=True, help="Images.")
@click.option("--device", default=0, show_default=True, help="Index.")
def first_use(networks: tuple[str, ...], batch: int, device: int) -> None:
    """Time a network's first steps in a new process with empty caches, and in the one after."""
    from benchmarks.costs.first_use import main as run

    run(networks, batch, device)


@costs.command()
@click.option("--steps", type=click.IntRange(51), default=2000, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Draws sizes, weights and batches.")
@click.option("--only", type=Names(("mlp", "cnn", "transformer")),
              default="mlp,cnn,transformer", show_default=True)  # fmt: skip
@click.option("--device", default="ocl:0", show_default=True)
@click.option("--json", type=PATH, help="Keep the rows here.")
def varying(steps: int, seed: int, only: tuple[str, ...], device: str, json: Path | None) -> None:
    """Train on batches and sequences of varying sizes: programs built, memory, time of a step."""
    from benchmarks.costs.varying import main as run

    run(device, only, steps, seed, json)


@costs.command()
@click.option("--dtypes", type=Names(("fp32", "bf16", "fp16", "int64")),
              default="fp32,bf16,fp16,int64", show_default=True)  # fmt: skip
@click.option("--draws", default=6, show_default=True, help="Further sums, with sizes drawn.")
@click.option("--seed", type=int, help="Draws them; at random without it.")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1))
@click.option("--device", default="ocl:0", show_default=True)
def meeting(
    dtypes: tuple[str, ...], draws: int, seed: int | None, rounds: int, device: str
) -> None:
    """Time sums into places that may meet: owners, atomics and torch's CPU by turns."""
    from random import randrange

    from benchmarks.costs.meeting import main as run

    run(device, dtypes, draws, randrange(10**6) if seed is None else seed, rounds)


@costs.command()
@click.option("--clients", default=50, show_default=True)
@click.option("--rounds", default=20, show_default=True, help="Pushes per client, each with reads.")
@click.option("--batch", default=10, show_default=True, help="Records per push.")
@click.option("--kills", default=0, show_default=True, help="SIGKILLs of the service meanwhile.")
@click.option("--workers", default=1, help="Processes of the service.")
@click.option("--own-pages", is_flag=True, help="No two clients ask for the same page.")
@click.option("--db", help=EMPTY_DB)
def service_load(db: str | None, **asked: Any) -> None:
    """Let many clients read from and write to one service; exit code 1 where a floor is missed."""
    from benchmarks.costs import service_load

    raise SystemExit(not service_load.main(service_load.Load(**asked), db))


@costs.command()
@click.option("--measurements", type=Names(), default="10000,1000000", help="Sizes, growing.")
@click.option("--db", help=EMPTY_DB)
def database_size(measurements: tuple[str, ...], db: str | None) -> None:
    """Fill a database and time what must not slow down with its size."""
    from benchmarks.costs.database_size import main as run

    run([int(size) for size in measurements], db)


@costs.command()
@click.option("--seconds-per-trial", default=0.5, show_default=True)
@click.option("--trials", default=24, show_default=True, help="Of each of two problems a device.")
def many_devices(seconds_per_trial: float, trials: int) -> None:
    """Time a cluster's tuning over 1, 2, 4 and 8 simulated devices."""
    from benchmarks.costs.many_devices import main as run

    run(seconds_per_trial, trials)
