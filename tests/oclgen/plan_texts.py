"""Which plans' texts a change alters: digests of a fixed corpus, kept in `plan_texts.json`.

    python -m tests.oclgen.plan_texts                      prints every plan's key and digest
    python -m tests.oclgen.plan_texts --against FILE       lists plans that differ, are new or gone,
                                                           and where to note a changed text
    python -m tests.oclgen.plan_texts --write FILE         writes the digests
    python -m tests.oclgen.plan_texts --show KEY           prints the plan with this key
    python -m tests.oclgen.plan_texts --restamp FILE       stamps shipped records of equal work

The corpus is every shipped record and, of each family for each problem of `PROBLEMS` on each
device of `DEVICES`, the default and a sample of the space; one plan for each matrix unit that a
sub-group feeds and for each sub-group whose lanes share operands, and attention by wgmma. Nothing
in it is random: it is the same on every machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from oclgen.attention_problem import ATTENTION_DIRECTIONS
from oclgen.families import FAMILIES, default_of, families_for
from oclgen.families.attention import attention_mma
from oclgen.families.gemm import gemm_fragments, gemm_register
from oclgen.keys import parse_key
from oclgen.limits import KIB, Limits
from oclgen.opencl.fragments import UNITS
from oclgen.opencl.probe import FATAL
from oclgen.opencl.sub_groups import SUB_GROUPS
from oclgen.problem import (
    DIRECTIONS,
    LAYOUTS,
    AttentionProblem,
    ConvProblem,
    GemmProblem,
    PackedProblem,
    Problem,
)
from oclgen.variant import Variant
from search_spaces.space import SPACES
from tuned_db.records.digests import CHANGED

KNOWN = Path(__file__).with_suffix(".json")
SHIPPED = Path(__file__).parents[2] / "tuned_db" / "shipped"
Key = tuple[str, str, str]
"""A plan's problem, family, and the first digits of the SHA-256 of its config."""

DEVICES = (
    Limits(
        "cpu", 32 * KIB, 4096, (4096,) * 3, 2**31, 2**33, compute_units=8, native_float_width=16,
        instructions=frozenset(FATAL),
    ),
    Limits(
        "gpu", 227 * KIB, 1024, (1024, 1024, 64), 2**34, 2**36, compute_units=132,
        instructions=frozenset({"cp_async", "mma", "wgmma", "tma", "dpas8"}),
    ),
)  # fmt: skip

_GEMM = GemmProblem(200, 136, 70)
_EPILOGUE: dict[str, Any] = {"bias": "n", "activation": "gelu", "residual": True}
GEMMS: tuple[GemmProblem, ...] = (
    *(
        replace(_GEMM, dtype=dtype, trans_a=trans_a, trans_b=trans_b)
        for dtype, trans_a, trans_b in (
            ("fp32", False, False), ("fp32", False, True), ("fp32", True, False),
            ("fp32", True, True), ("tf32", False, True), ("tf32", True, False),
            ("fp16", False, False), ("bf16", False, True), ("bf16", True, False),
        )
    ),
    GemmProblem(1024, 1024, 1024, **_EPILOGUE),
    GemmProblem(512, 768, 1024, dtype="bf16", trans_b=True, **_EPILOGUE),
    GemmProblem(1, 1024, 4096, trans_b=True, bias="n"),
    GemmProblem(4, 1000, 2048, dtype="fp16", bias="n", activation="relu"),
    replace(_GEMM, batch=3, shared_b=True, bias="m", activation="sigmoid"),
    replace(_GEMM, batch=6, shared_a=True, dtype="tf32", residual=True),
    *(replace(_GEMM, dtype="int8", trans_a=trans, trans_b=not trans) for trans in (False, True)),
)  # fmt: skip

_SHAPES = (
    ConvProblem(8, 32, 28, 28, 48, 3, 3, 1, 1, 1, 1),
    ConvProblem(4, 24, 15, 14, 40, 3, 3, 2, 2, 1, 1),
    ConvProblem(8, 64, 14, 14, 96, 1, 1),
    ConvProblem(2, 16, 14, 14, 24, 5, 5, 1, 1, 2, 2),
    ConvProblem(4, 3, 32, 30, 16, 7, 7, 2, 2, 3, 3),
    ConvProblem(4, 32, 14, 14, 32, 3, 3, 1, 1, 1, 1, groups=32),
    ConvProblem(2, 16, 15, 13, 32, 5, 3, 2, 1, 2, 1, groups=16),
    ConvProblem(4, 16, 16, 16, 24, 3, 3, 1, 1, 2, 2, 2, 2, groups=2),
)
_DTYPES = ("fp32", "bf16", "fp32", "tf32", "fp16")


def _convs() -> Iterator[ConvProblem]:
    """Yield each shape in each direction and layout; dtypes and epilogues take turns."""
    count = 0
    for shape in _SHAPES:
        for direction in DIRECTIONS:
            for layout in LAYOUTS:
                problem = replace(
                    shape, direction=direction, layout=layout, dtype=_DTYPES[count % len(_DTYPES)]
                )
                count += 1
                if direction == "fwd" and count % 2:
                    problem = replace(problem, bias=True, activation="relu", residual=True)
                yield problem
    yield from (replace(_SHAPES[2], dtype="bf16", layout=layout) for layout in LAYOUTS)


ATTENTIONS = tuple(
    replace(problem, direction=direction)
    for problem in (
        AttentionProblem(2, 4, 2, 70, 90, 64, 48, causal=True),
        AttentionProblem(2, 4, 4, 70, 70, 128, 128, "bf16", window=16, mask=True),
        AttentionProblem(1, 8, 2, 2, 300, 64, 64, "fp16"),
        AttentionProblem(1, 2, 2, 30, 30, 36, 20, dropout=True),
        AttentionProblem(1, 2, 2, 70, 70, 64, 64, "bf16", causal=True, dropout=True),
    )
    for direction in ATTENTION_DIRECTIONS
)
PACKED = (
    PackedProblem(1, 72, 512, "bf16", "int4_128z"),
    *(PackedProblem(5, 72, 512, "fp16", form) for form in ("int8", "q4_0", "q4_k", "q6_k")),
    PackedProblem(70, 72, 512, "fp32", "q8_0", frozenset({"m"})),
    PackedProblem(1, 72, 512, "fp32", "q8_0"),
)
TOKEN = AttentionProblem(1, 6, 2, 1, 300, 64, 64, mask=True)
PROBLEMS: tuple[Problem, ...] = (*GEMMS, *_convs(), *ATTENTIONS, *PACKED, TOKEN)
SAMPLES, DRAWS = 2, 80
"""Configs of a space that are taken for each problem and device, and how many are looked at."""


def corpus() -> dict[Key, tuple[Problem, Variant]]:
    """Return problem and variant of every plan, by the plan's key."""
    return {
        _key(problem, variant): (problem, variant)
        for problem, variant in (
            *_shipped(),
            *_sampled(),
            *_on_each_unit(),
            *_on_each_sub_group(),
            *_wide(),
            *_tailed(),
        )
    }


def _key(problem: Problem, variant: Variant) -> Key:
    digest = hashlib.sha256(variant.to_json().encode()).hexdigest()
    return problem.key(), variant.family, digest[:8]


def _shipped() -> Iterator[tuple[Problem, Variant]]:
    for path in sorted(SHIPPED.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "family" in record:
                variant = Variant.from_values(record["family"], record["config"])
                yield parse_key(record["problem"]), variant


def _sampled() -> Iterator[tuple[Problem, Variant]]:
    for problem in PROBLEMS:
        for family in families_for(problem):
            for limits in DEVICES:
                default = default_of(family, problem, limits)
                for config in (default, *_sample(family.NAME, problem, limits)):
                    yield problem, Variant(family.NAME, config)


def _on_each_unit() -> Iterator[tuple[Problem, Variant]]:
    """Yield the first valid guess of `gemm_fragments` for each unit, in fp16."""
    problem = replace(_GEMM, dtype="fp16", bias="n")
    for unit in UNITS:
        limits = replace(DEVICES[-1], instructions=frozenset({unit}))
        guesses = gemm_fragments.guesses(problem, limits)
        valid = next(each for each in guesses if each.why_not(problem, limits) is None)
        yield problem, Variant(gemm_fragments.NAME, valid)


def _on_each_sub_group() -> Iterator[tuple[Problem, Variant]]:
    """Yield a config of `gemm_register` for each sub-group, for operands that lie in all ways."""
    for name, one in SUB_GROUPS.items():
        shared = replace(gemm_register.DEFAULT, item_m=6, local_n=one.lanes, unroll_k=4, share=name)
        for trans_a, trans_b in ((False, False), (True, False), (False, True)):
            problem = replace(_GEMM, trans_a=trans_a, trans_b=trans_b, bias="n")
            yield problem, Variant(gemm_register.NAME, shared)


def _wide() -> Iterator[tuple[Problem, Variant]]:
    """Yield attention by wgmma, which a sample of the space hardly meets."""
    for problem in ATTENTIONS:
        for keep in (True, False):
            config = attention_mma.Config(4, 1, 32, stages=2, keep=keep, unit="wgmma")
            variant = Variant(attention_mma.NAME, config)
            if attention_mma.serves(problem) and variant.why_not(problem, DEVICES[1]) is None:
                yield problem, variant


def _tailed() -> Iterator[tuple[Problem, Variant]]:
    """Yield products whose last rows have their reduction cut, which samples of few tiles lack."""
    problem = GemmProblem(500, 328, 640, dtype="bf16", bias="m", residual=True)
    for name in ("gemm_mma", "gemm_tma"):
        default = replace(FAMILIES[name].DEFAULT, pack_a=True, pack_b=False)
        yield problem, Variant(name, replace(default, tail_k=3, head_tiles=2))


def _sample(name: str, problem: Problem, limits: Limits) -> Iterator[Any]:
    """Yield the first `SAMPLES` valid ones of `DRAWS` configs whose values a hash draws."""
    family, found = FAMILIES[name], 0
    values = {**SPACES[name](problem, limits)} if name in SPACES else {}
    for number in range(DRAWS if values else 0):
        drawn = {
            parameter: choices[_draw(f"{problem.key()} {name} {limits.kind} {number} {parameter}")
                               % len(choices)]
            for parameter, choices in values.items()
        }  # fmt: skip
        config = family.Config(**asdict(family.DEFAULT) | drawn)
        if Variant(name, config).why_not(problem, limits) is None:
            yield config
            found += 1
            if found == SAMPLES:
                return


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def digests() -> dict[Key, str]:
    """Return the digest of every plan of the corpus."""
    return {key: variant.plan(problem).digest() for key, (problem, variant) in corpus().items()}


def load(path: Path) -> dict[Key, str]:
    """Read what `write` wrote."""
    return {
        (problem, family, config): digest
        for problem, families in json.loads(path.read_text(encoding="utf-8")).items()
        for family, configs in families.items()
        for config, digest in configs.items()
    }


def write(found: dict[Key, str], path: Path) -> None:
    """Write digests by problem, family and config, a problem a line."""
    nested: dict[str, dict[str, dict[str, str]]] = {}
    for (problem, family, config), digest in sorted(found.items()):
        nested.setdefault(problem, {}).setdefault(family, {})[config] = digest
    lines = (
        f"{json.dumps(problem)}:{json.dumps(families, separators=(',', ':'))}"
        for problem, families in nested.items()
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def differences(found: dict[Key, str], known: dict[Key, str]) -> list[str]:
    """Return a line for each plan whose text differs from the known one, is new, or is gone."""
    kinds = {
        "differs": [key for key in found if key in known and found[key] != known[key]],
        "new": [key for key in found if key not in known],
        "gone": [key for key in known if key not in found],
    }
    return [f"{kind}: {' '.join(key)}" for kind, keys in kinds.items() for key in sorted(keys)]


def to_note(found: dict[Key, str], known: dict[Key, str]) -> list[str]:
    """Return what is to be done about records without digest, where texts differ from known ones.

    Returns:
        At most one line, which names the families that are to join `CHANGED` of
        `tuned_db.records.digests`.
    """
    changed = {key[1] for key in found if key in known and found[key] != known[key]}
    families = ", ".join(sorted(changed - CHANGED))
    return [f"add to CHANGED in tuned_db/records/digests.py: {families}"] if families else []


def shown(key: Key) -> str:
    """Return the plan with this key as text: its launches, workspaces and counters."""
    problem, variant = corpus()[key]
    plan = variant.plan(problem)
    lines = [f"// {problem.key()}", f"// {variant.family} {variant.to_json()}"]
    lines.append(f"// workspaces {plan.workspaces}, counters {plan.counters}")
    for launch in plan.launches:
        lines += [
            f"// kernel {launch.kernel}: global {launch.global_size}, local {launch.local_size}, "
            f"{launch.local_bytes} B of local memory",
            *(f"// {arg}" for arg in launch.args),
            launch.source,
        ]
    return "\n".join(lines)


def restamp(known: dict[Key, str], folder: Path = SHIPPED) -> list[str]:
    """Give shipped records today's digest where they had that of the plan before a change.

    For changes that leave a device the same work in the same time, such as sizes that move from the
    text to arguments; whether a change is one, measurements say. A record that was not exact before
    keeps its digest.

    Args:
        known: digests before the change, as `write` wrote them.
        folder: of the records.

    Returns:
        A line for each record that got another digest.
    """
    stamped = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            record = json.loads(line)
            if record.get("digest") is None:
                continue
            variant = Variant.from_values(record["family"], record["config"])
            problem, old = parse_key(record["problem"]), record["digest"]
            if old == known.get(_key(problem, variant)) != (new := variant.plan(problem).digest()):
                lines[number] = line.replace(f'"digest":"{old}"', f'"digest":"{new}"')
                stamped.append(f"{path.name}: {record['problem']} {variant.family} {old} -> {new}")
        path.write_text("\n".join(lines) + "\n")
    return stamped


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the digests")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with a file's")
    parser.add_argument("--show", nargs=3, metavar=("PROBLEM", "FAMILY", "CONFIG"))
    parser.add_argument("--restamp", type=Path, metavar="FILE", help="of digests before a change")
    asked = parser.parse_args(arguments)
    if asked.restamp:
        lines = restamp(load(asked.restamp))
        print("\n".join([*lines, f"{len(lines)} records stamped anew"]))
        return 0
    if asked.show:
        print(shown(tuple(asked.show)))
        return 0
    found = digests()
    if asked.write:
        write(found, asked.write)
    if asked.against:
        known = load(asked.against)
        lines = differences(found, known)
        said = [f"{len(found)} plans, {len(lines)} changed", *to_note(found, known)]
        print("\n".join([*lines, *said]))
        return 1 if lines else 0
    if not asked.write:
        print("\n".join(f"{digest} {' '.join(key)}" for key, digest in sorted(found.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
