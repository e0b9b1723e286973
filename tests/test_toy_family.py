"""A kernel family is a module, a template and a space: with these three files it is served.

They are laid into a copy of the packages, and no file of the copy is changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.home import ROOT

PACKAGES = ("oclgen", "search_spaces", "tuned_db")

MODULE = '''
"""One work-item per element of C."""

from dataclasses import asdict, dataclass

from oclgen.family import BaseConfig, Traits
from oclgen.parameters import Unroll
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer
from oclgen.problem import GemmProblem
from oclgen.render import render

NAME = "toy"


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    unroll_k: Unroll

    def conflict(self, problem, limits):
        if problem.k % self.unroll_k:
            return f"unroll_k={self.unroll_k} does not divide k={problem.k}"
        return None

    def needs(self, problem):
        return Needs((Frame(NAME, (1, 1)),))


DEFAULT = Config(unroll_k=1)
TRAITS = Traits()


def serves(problem):
    return isinstance(problem, GemmProblem) and problem == GemmProblem(
        problem.m, problem.n, problem.k
    )


def guesses(problem, limits):
    return [Config(unroll_k=4), Config(unroll_k=3)]


def plan(problem, config):
    text = LazyText(lambda: render(NAME, m=problem.m, n=problem.n, k=problem.k, **asdict(config)))
    args = tuple(arg for role in "abc" for arg in buffer(role))
    return Plan((Launch(text, NAME, (problem.n, problem.m), (1, 1), args),))
'''

TEMPLATE = """
__kernel void toy(__global const float *a, long a_at, __global const float *b, long b_at,
                  __global float *c, long c_at)
{
    const int column = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < ${k}; k += ${unroll_k}) {
% for step in range(unroll_k):
        sum += a[a_at + row * ${k} + k + ${step}] * b[b_at + (k + ${step}) * ${n} + column];
% endfor
    }
    c[c_at + row * ${n} + column] = sum;
}
"""

SPACE = """
def values(problem, limits):
    return {"unroll_k": (1, 2, 3, 4, 8)}
"""

PREAMBLE = """
import json

from oclgen.families import FAMILIES, families_for, valid_configs
from oclgen.keys import parse_gemm
from oclgen.limits import Limits
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of

problem = parse_gemm("24x40x16")
found = {}
"""

TEXT = """
variants = [Variant.from_values("toy", {"unroll_k": unroll}) for unroll in (1, 3, 4)]
space = space_of("toy", problem, Limits())
found["serving"] = [one.NAME for one in families_for(problem)]
found["text"] = variants[2].plan(problem).launches[0].source
found["why_not"] = [one.why_not(problem, Limits()) for one in variants]
found["space"] = sorted(space.config(row).unroll_k for row in range(len(space)))
guesses = valid_configs(FAMILIES["toy"], problem, Limits())
found["guesses"] = [one.unroll_k for one in guesses]
found["seeds"] = [one.unroll_k for one in seeds_of("toy", problem, Limits())]
found["read_back"] = [Variant.from_text(one.to_text()) == one for one in variants]
print(json.dumps(found))
"""

TUNED = """
import oclgen
from oclgen.opencl.device import select
from tuned_db import Chooser, open_store

device = select(0)
results = oclgen.tune("24x40x16", device, trials=5, families=["toy"])
(record,) = open_store().all_winners()
choice = Chooser(open_store(), device.info, device.limits).choose(problem)
found["status"] = [(one.status, one.trials) for one in results]
found["kept"] = (record.family, record.error)
found["chosen"] = (choice.variant.family, choice.rung)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the packages' files, and with the toy's three."""
    folder = tmp_path_factory.mktemp("toy")
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, copy_function=os.symlink, ignore=ignored)
    (folder / "oclgen/families/gemm/toy.py").write_text(MODULE)
    (folder / "oclgen/families/gemm/toy.cl.mako").write_text(TEMPLATE)
    (folder / "search_spaces/gemm/toy.py").write_text(SPACE)
    return folder


def run(packages: Path, program: str, **variables: str) -> dict[str, Any]:
    """Return what a program prints that runs in a process of its own with these packages."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + program],
        cwd=packages,
        env=os.environ | {"PYTHONPATH": str(packages)} | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_family_is_known_by_its_three_files(packages: Path) -> None:
    found = run(packages, TEXT)
    assert found["serving"][-1] == "toy"  # it declares no rank, so others are preferred
    assert "b[b_at + (k + 3) * 40 + column]" in found["text"]
    assert found["why_not"] == [None, "unroll_k=3 does not divide k=16", None]
    assert found["space"] == [1, 2, 4, 8]
    assert found["guesses"] == [4, 1]  # 3 does not divide k
    assert found["seeds"] == [4, 1]
    assert found["read_back"] == [True] * 3


@pytest.mark.usefixtures("any_device")
def test_a_family_is_tuned_kept_and_chosen(packages: Path, tmp_path: Path) -> None:
    found = run(packages, TUNED, OCLGEN_DB=str(tmp_path / "tuned.sqlite"))
    assert found["status"] == [["tuned", 4]]  # as many as its space has
    family, error = found["kept"]
    assert family == "toy"
    assert 0 < error < 1e-6  # against float64
    assert found["chosen"] == ["toy", "exact"]
