"""`oclgen devices` and `oclgen ray-resources`: what there is to run on."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.table import Table

from .console import console
from .options import json_option

GIB = 2**30


@click.command()
@json_option
def devices(as_json: bool) -> None:
    """List the OpenCL devices that work, GPUs first, with the index that --device takes."""
    from oclgen.opencl.device import devices as found
    from oclgen.opencl.device import select

    if not found():
        select(0)  # raises the error that says what to install
    if as_json:
        rows = [
            {"index": d.index}
            | asdict(d.info)
            | {"memory_bytes": d.limits.global_bytes, "local_bytes": d.limits.most_local_bytes}
            for d in found()
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    table = Table("index", "name", "kind", "runtime", "driver", "units", "memory", "local memory")
    for device in found():
        info, limits = device.info, device.limits
        table.add_row(
            str(device.index),
            info.name,
            info.kind,
            info.runtime,
            info.driver_version,
            str(info.compute_units),
            f"{limits.global_bytes / GIB:.1f} GiB",
            f"{limits.most_local_bytes // 1024} KiB",
        )
    console().print(table)


@click.command("ray-resources")
def ray_resources() -> None:
    """Print this machine's devices for `ray start --resources`."""
    from search_spaces.crews import ray_resources as resources

    click.echo(json.dumps(resources()))
