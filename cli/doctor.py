"""`oclgen doctor`: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

import click
from rich.table import Table
from rich.text import Text

from oclgen.opencl.health import DeviceHealth
from oclgen.opencl.runtimes import CHOICE, FAULTY, Runtime, examine, faulty_allowed

from .console import console
from .options import db_option, json_option

OLDEST_TORCH = (2, 11)
SHIM_TIMEOUT_S = 1800
"""The torch device compiles its shim on first import if the wheel has none for this torch: 30 to
120 s on an idle machine, 535 s on two cores that six programs shared. Only a compiler that hangs
takes three times as long as that."""

Verdict = Literal["ok", "warn", "fail"]
COLOURS: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "fail": "red"}


class Finding(NamedTuple):
    """One line of the report; `remedy` says what to do where something is missing."""

    what: str
    verdict: Verdict
    found: str
    remedy: str = ""


@click.command()
@json_option
@db_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, where: str | None) -> None:
    """Try every runtime, the compiler, torch and the database; say what to do about failures.

    Exit code 1 if no OpenCL device works.
    """
    runtimes = list(_runtimes())
    findings = [*runtimes, _gcc(), *_torch(), _database(where)]
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        _print(findings)
    if not any(f.verdict != "fail" and f.what.startswith("device") for f in runtimes):
        click.echo("No OpenCL device works here.", err=True)
        ctx.exit(1)


def _print(findings: list[Finding]) -> None:
    table = Table("what", "", "found", "what to do", show_lines=True)
    for what, verdict, found, remedy in findings:
        table.add_row(what, Text(verdict, COLOURS[verdict]), found, remedy)
    console().print(table)


def _runtimes() -> Iterator[Finding]:
    found = examine(fresh=True)
    if not found:
        hidden = f" that {CHOICE}={os.environ[CHOICE]} names" if os.environ.get(CHOICE) else ""
        yield Finding(
            "runtimes",
            "fail",
            f"no OpenCL runtime{hidden}",
            "GPU: install its driver with OpenCL. CPU: pip install 'oclgen[cpu]', "
            "or PoCL (Debian, Ubuntu: apt install pocl-opencl-icd).",
        )
    for runtime in found:
        yield from _runtime(runtime)


def _runtime(runtime: Runtime) -> Iterator[Finding]:
    what = f"runtime {runtime.library}"
    if runtime.skipped:
        yield Finding(what, "ok", f"not used: {runtime.skipped}")
    elif runtime.health.problem:
        yield Finding(what, "fail", runtime.health.problem, _remedy(runtime))
    elif not runtime.health.devices:
        remedy = "Nothing, if the machine lacks such a device; else look at its driver."
        yield Finding(what, "warn", f"loads, but has no device (from {runtime.origin})", remedy)
    else:
        yield Finding(what, "ok", f"loads (from {runtime.origin})")
    yield from map(_device, runtime.health.devices)


def _device(device: DeviceHealth) -> Finding:
    what = f"device {device.name}"
    version = f"{device.platform}, {device.platform_version}, driver {device.driver_version}"
    if device.problem:
        remedy = "This device is left out. Update or remove the runtime."
        return Finding(what, "fail", f"{device.problem} ({version})", remedy)
    if device.fault and faulty_allowed():
        remedy = f"It is used since {FAULTY} is set: for tests, with small problems."
        return Finding(what, "warn", f"{device.fault} ({version})", remedy)
    if device.fault:
        remedy = (
            "This device is left out. CPU: pip install 'oclgen[cpu]' brings a runtime without the "
            f"fault. {FAULTY}=1 uses it all the same, for tests with small problems."
        )
        return Finding(what, "fail", f"{device.fault} ({version})", remedy)
    able = " and ".join(("kernels", *device.instructions))
    clock = "" if device.timed else "; its events tell no times, the host's clock does"
    return Finding(what, "ok", f"builds and runs {able} ({version}){clock}")


def _remedy(runtime: Runtime) -> str:
    if runtime.origin.startswith("package"):
        return "It is left out. pip install --force-reinstall 'oclgen[cpu]' repairs the package."
    return f"It is left out. Reinstall the runtime, or remove {runtime.origin}."


def _gcc() -> Finding:
    compiler = os.environ.get("CXX") or "g++"
    remedy = (
        "Nothing, if the torch device works: it came compiled. "
        "Else: Debian, Ubuntu: apt install g++; or set CXX."
    )
    if shutil.which(compiler) is None:
        return Finding("C++ compiler", "warn", f"{compiler} was not found", remedy)
    try:
        done = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("C++ compiler", "warn", str(error), remedy)
    return Finding("C++ compiler", "ok", done.stdout.splitlines()[0])


def _torch() -> Iterator[Finding]:
    remedy = "Only the torch device needs it: pip install torch==2.13.0 (no CUDA packages)."
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        yield Finding("torch", "warn", "not installed", remedy)
        return
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < OLDEST_TORCH:
        yield Finding("torch", "warn", f"{version}; 2.11 or later is needed", remedy)
        return
    yield Finding("torch", "ok", version)
    yield _torch_device()


def _torch_device() -> Finding:
    """Import the torch device in a process of its own: it compiles and may fail in many ways."""
    code = "import ocl_backend, torch; print(torch.ocl.device_count())"
    try:
        with console(aside=True).status("importing the torch device: the first time it compiles"):
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True,
                timeout=SHIM_TIMEOUT_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        remedy = "python -c 'import ocl_backend' shows where it stands."
        return Finding("torch device ocl", "fail", f"no answer within {SHIM_TIMEOUT_S} s", remedy)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Finding(
            "torch device ocl", "fail", last, "python -c 'import ocl_backend' says more."
        )
    return Finding("torch device ocl", "ok", f"loads; {done.stdout.split()[-1]} devices")


def _database(where: str | None) -> Finding:
    from tuned_db import DatabaseError, open_if_any

    try:
        store = open_if_any(where)
        if store is None:
            return Finding("database", "ok", "none yet: the first oclgen tune makes it")
        return Finding("database", "ok", f"{store.name}: {len(store.all_winners())} winners")
    except DatabaseError as error:
        return Finding("database", "fail", str(error), "See the message; --db names another.")
