"""`oclgen show-source`: the text that the generator writes."""

from __future__ import annotations

import json
from typing import Any

import click

from oclgen.families import FAMILIES, ConfigError, families_for
from oclgen.keys import parse_problem
from oclgen.limits import Limits
from oclgen.opencl import probe
from oclgen.plan import Plan
from oclgen.problem import Problem
from oclgen.variant import Variant

from .options import db_option


@click.command("show-source")
@click.argument("problem_text", metavar="PROBLEM")
@click.option("--family", metavar="NAME", help="Kernel family; default: the first that serves.")
@click.option(
    "--config",
    "config_text",
    metavar="JSON",
    help="Parameters that differ from the family's default.",
)
@click.option("--device", metavar="INDEX|NAME", help="Show what this device would run.")
@db_option
def show_source(
    problem_text: str,
    family: str | None,
    config_text: str | None,
    device: str | None,
    where: str | None,
) -> None:
    """Print the OpenCL C that computes PROBLEM, and how it is launched.

    PROBLEM is MxNxK[:dtype][:nt], N,C,H,W,K,R,S[,stride,pad,dilation,groups][:dtype][:direction],
    or a key from `oclgen tune`. Without --device no OpenCL is needed.
    """
    problem = parse_problem(problem_text)
    if device is not None and family is None and config_text is None:
        variant = _chosen(problem, device, where)
    else:
        variant = _configured(problem, family, config_text)
    if reason := variant.why_not(problem, _limits(device)):
        raise ConfigError(f"{variant.family}: {reason}")
    click.echo(describe(problem, variant, variant.plan(problem)), nl=False)


def _limits(device: str | None) -> Limits:
    """Return a device's limits; without one nothing but the family itself limits a config."""
    if device is None:
        huge = 2**40
        return Limits(
            local_bytes=huge,
            max_work_group=huge,
            max_work_items=(huge, huge, huge),
            instructions=frozenset(probe.ANSWERS),
        )
    from oclgen.opencl.device import select

    return select(device).limits


def _chosen(problem: Problem, device: str, where: str | None) -> Variant:
    from oclgen.opencl.device import select
    from tuned_db import Chooser, open_if_any

    opened = select(device)
    return Chooser(open_if_any(where), opened.info, opened.limits).choose(problem).variant


def _configured(problem: Problem, family: str | None, text: str | None) -> Variant:
    """Return the family asked for, or the first that any device has, its default overridden."""
    names = [f.NAME for f in families_for(problem)]
    anywhere = [f.NAME for f in families_for(problem) if not f.DEFAULT.why_not(problem, Limits())]
    if family is not None and family not in FAMILIES:
        raise ConfigError(f"family {family!r} is unknown; known are {', '.join(FAMILIES)}")
    if family is not None and family not in names:
        raise ConfigError(
            f"family {family!r} does not serve {problem.key()}; these do: {', '.join(names)}"
        )
    name = family or (anywhere or names)[0]
    default = Variant(name, FAMILIES[name].DEFAULT)
    return Variant.from_values(name, default.values() | _values(text)) if text else default


def _values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--config is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f'--config is {text}; it must be an object, such as {{"tile_m": 64}}')
    return values


def describe(problem: Problem, variant: Variant, plan: Plan) -> str:
    """Return every kernel of a plan with its launch as comments: text that still compiles.

    Args:
        problem: what is computed.
        variant: what computes it.
        plan: the variant's for that problem.
    """
    lines = [f"// {problem.key()}", f"// {variant.family} {variant.to_json()}"]
    lines += [f"// workspace {role}: {size} B" for role, size in plan.workspaces]
    lines += [f"// counters: {plan.counters} ints, zero before and after"] if plan.counters else []
    shown: set[str] = set()
    for number, launch in enumerate(plan.launches, start=1):
        lines.append(
            f"// launch {number} of {len(plan.launches)}: {launch.kernel}, global size "
            f"{launch.global_size}, local size {launch.local_size}, {launch.local_bytes} B local"
        )
        if launch.source not in shown:
            lines += ["", launch.source]
            shown.add(launch.source)
    return "\n".join(lines) + "\n"
