"""Runs the device-generic classes of torch's own test files on the device and prints a table.

    python -m tests.conformance.torch_suites FOLDER [--suite autograd,nn] [-k PATTERN] [--json FILE]

FOLDER holds torch's sources, which no wheel ships: its repository, or a distribution's source
package, best of the installed torch. What fails on the CPU too is the file's. What else fails
stands in `torch_suites.toml`, strictly. OpInfo's samples are `conformance.__main__`'s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.conformance import lists

DRAWS = "kstest or multinomial or bernoulli or exponential or geometric or cauchy or log_normal"

SUITES = {
    "autograd": ("test_autograd.py", "DeviceType"),
    "serialization": ("test_serialization.py", "BothSerialization"),
    "random": ("test_tensor_creation_ops.py", "RandomTensorCreation"),
    "draws": ("test_torch.py", DRAWS),
    "nn": ("test_nn.py", "DeviceType"),
    "dropout": ("nn/test_dropout.py", "DeviceType"),
    "convolution": ("nn/test_convolution.py", "DeviceType"),
    "attention": ("nn/test_multihead_attention.py", "DeviceType"),
    "native_attention": ("test_native_mha.py", "DeviceType"),
    "views": ("test_view_ops.py", "ViewOps"),
    "scatter": ("test_scatter_gather_ops.py", "TestScatterGather"),
    "sort": ("test_sort_and_select.py", "TestSortAndSelect"),
    "indexing": ("test_indexing.py", "TestIndexing or NumpyTests"),
    "reductions": ("test_reductions.py", "TestReductions"),
    "shapes": ("test_shape_ops.py", "TestShapeOps"),
    "promotion": ("test_type_promotion.py", "TestTypePromotion"),
    "embedding": ("nn/test_embedding.py", "DeviceType"),
    "pooling": ("nn/test_pooling.py", "DeviceType"),
    "creation": (
        "test_tensor_creation_ops.py",
        "TestTensorCreation or TestLikeTensorCreation or TestAsArray or TestBufferProtocol",
    ),
    "complex": ("test_complex.py", "TestComplexTensor"),
    "masked": ("test_masked.py", "TestMasked"),
    "segments": ("test_segment_reductions.py", "TestSegmentReductions"),
    "sparse": ("test_sparse.py", "TestSparse and not TestSparseAny"),
    "nested": ("test_nestedtensor.py", "DeviceType"),
    "dlpack": ("test_dlpack.py", "TestTorchDlPack"),
    "optim": ("test_optim.py", "TestOptimRenewed"),
    "spectral": ("test_spectral_ops.py", "TestFFT"),
    "binary": ("test_binary_ufuncs.py", "TestBinaryUfuncs and not reference_numerics"),
    "torch": ("test_torch.py", "TestTorchDeviceType or TestDevicePrecision"),
}
"""Name -> file, and what pytest's -k must find, which spares it the other classes."""

SECONDS = 600
"""A test that runs longer ends its process, and the next process goes on after it. One that tries
every pair of dtypes builds a thousand kernels, which takes minutes on two cores."""

ROOT = Path(__file__).parents[2]
COLUMNS = ("passed", "skipped", "declared", "the file's", "failed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended on the device; `name` is `suite class.test`."""

    name: str
    status: str
    text: str

    @property
    def suite(self) -> str:
        """The suite it belongs to."""
        return self.name.partition(" ")[0]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.conformance.torch_suites"
    )
    parser.add_argument("folder", type=Path, help="torch's sources")
    parser.add_argument("--suite", default=",".join(SUITES), help="names, by commas; all")
    parser.add_argument("-k", dest="pattern", default="", help="as pytest takes it")
    parser.add_argument("--json", type=Path, help="write every outcome there")
    return parser.parse_args()


def read(outcomes: Path) -> dict[str, tuple[str, str]]:
    """Return outcome and text of every test; a later line takes an earlier one's place."""
    lines = outcomes.read_text(encoding="utf-8").splitlines() if outcomes.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["test"]: (row["outcome"], row["text"]) for row in rows}


def run(file: Path, pattern: str, device: str, only: set[str] | None) -> dict[str, tuple[str, str]]:
    """Run a file's tests on `device` ("privateuse1" or "cpu") in as many processes as it takes."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes, names = Path(folder, "outcomes"), Path(folder, "names")
        command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull]
        # torch's files use no plugin; those that are installed take each process 1.5 s
        command += ["--disable-plugin-autoload", "-p", "timeout", "-p", "no:cacheprovider"]
        command += ["-p", "tests.conformance.suite_plugin"]
        command += [f"--timeout={SECONDS}", "--timeout-method=thread", f"--outcomes={outcomes}"]
        command += ["-k", pattern, str(file)]
        if only is not None:
            names.write_text("\n".join(only), encoding="utf-8")
            command.append(f"--only={names}")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        chosen = {"PYTORCH_TESTING_DEVICE_ONLY_FOR": device, "PYTHONPATH": path}
        chosen["OCLGEN_SYNC_ERRORS"] = "1"  # a wrong index is its own test's error, no later one's
        while True:
            known = len(read(outcomes))
            done = subprocess.run(
                command, cwd=file.parent, env=os.environ | chosen, capture_output=True, text=True
            )
            found = read(outcomes)
            began = list(found.values())[known:]
            stopped = began and began[-1][0] == "died"  # a limit exits with 1, as failed tests do
            if done.returncode in (0, 1, 5) and not stopped:
                return found
            if not began:  # the file itself does not load
                raise SystemExit(f"{file} does not run:\n{(done.stdout + done.stderr)[-3000:]}")


def outcomes(name: str, folder: Path, pattern: str) -> list[Outcome]:
    """Run a suite on the device, and what failed there on the CPU."""
    path, fixed = SUITES[name]
    file = folder.resolve() / "test" / path
    wanted = " and ".join(f"({part})" for part in (fixed, pattern) if part)
    found = run(file, wanted, "privateuse1", None)
    bad = {test for test, (outcome, _) in found.items() if outcome in ("failed", "died")}
    on_cpu = run(file, wanted, "cpu", bad) if bad else {}
    theirs = {test for test, (outcome, _) in on_cpu.items() if outcome in ("failed", "died")}
    return [
        Outcome(f"{name} {test}", status(f"{name} {test}", outcome, test in theirs), text)
        for test, (outcome, text) in sorted(found.items())
    ]


def status(name: str, outcome: str, fails_on_cpu: bool) -> str:
    """Return a test's column in the table."""
    if outcome in ("passed", "skipped"):
        return outcome
    if fails_on_cpu:
        return "the file's"
    return "declared" if lists.entry("torch_suites", name) else "failed"


def complaints(done: list[Outcome], whole: list[str]) -> list[str]:
    """Return what contradicts the list; unused entries count in the `whole` suites."""
    found = [
        f"{one.name}: {one.text.partition(chr(10))[0][:160]}"
        for one in done
        if one.status == "failed"
    ]
    declared = [one.name for one in done if one.status == "declared"]
    for pattern in lists.declared("torch_suites"):
        needed = any(fnmatchcase(name, pattern) for name in declared)
        if pattern.partition(" ")[0] in whole and not needed:
            found.append(f"torch_suites.toml: {pattern} is not needed any more")
    return found


def table(done: list[Outcome]) -> Table:
    """Return how many tests of each suite ended how."""
    drawn = Table("suite", *COLUMNS, title="torch's device-generic tests on ocl")
    for suite in dict.fromkeys(one.suite for one in done):
        count = Counter(one.status for one in done if one.suite == suite)
        drawn.add_row(suite, *(str(count[column]) for column in COLUMNS))
    return drawn


def main() -> None:
    """Run, print the table and every complaint, and exit with 1 if there is one."""
    arguments = options()
    suites = arguments.suite.split(",")
    done = [one for name in suites for one in outcomes(name, arguments.folder, arguments.pattern)]
    console = Console()
    console.print(table(done))
    if arguments.json:
        rows = [{"name": one.name, "status": one.status, "text": one.text} for one in done]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    found = complaints(done, whole=[] if arguments.pattern else suites)
    for line in found:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
