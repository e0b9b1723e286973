"""Makes pytest run only the device-generic classes of one of torch's test files, on one device.

It is loaded into a child by `torch_suites`, which judges; here nothing is right or wrong.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HELPERS = (
    "cuda",
    "device_type",
    "dtype",
    "methods_invocations",
    "mkldnn",
    "nn",
    "optimizers",
    "utils",
)
"""The parts of `torch.testing._internal.common_*` whose names differ from torch to torch."""
BEGINNING = "torch.testing._internal.common_"


class Absent(list[Any]):
    """Stands for a name that another torch had: nothing in it, false, no change as a decorator."""

    def __call__(self, *args: Any, **_: Any) -> Any:
        """Return what it decorates, else itself."""
        return args[0] if len(args) == 1 and callable(args[0]) else self


def lend_absent_names(module: ModuleType) -> None:
    """Let a file written for another torch import names that `module` does not have.

    A list of operators with their references in Python becomes that of the operators: torch
    refuses a test over an empty list.
    """

    def lend(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return module.__dict__.get(name.removesuffix("_and_refs"), Absent())

    module.__dict__.setdefault("__getattr__", lend)


class Lender(SourceFileLoader):
    """Loads a helper, and then lends what it lacks."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's text first: it sets its names itself."""
        super().exec_module(module)
        lend_absent_names(module)


class Helpers(PathFinder):
    """Finds helpers when a file imports them: to import all takes a process four seconds."""

    @classmethod
    def find_spec(cls, fullname: str, *others: Any) -> ModuleSpec | None:
        """Return how a helper is loaded, None for other modules."""
        if fullname.removeprefix(BEGINNING) not in HELPERS:
            return None
        if (spec := super().find_spec(fullname, *others)) is not None and spec.origin:
            spec.loader = Lender(fullname, spec.origin)
        return spec


def key(item: pytest.Item) -> str:
    """Return `class.test` without the device's name, which torch puts into both."""
    kind = re.sub(r"(PRIVATEUSE1|OCL|CPU)$", "", item.parent.name if item.parent else "")
    name = re.sub(r"_(ocl|cpu)(?=_|$)(?!.*_(ocl|cpu)(_|$))", "", item.name)
    return f"{kind}.{name}"


def message(report: pytest.TestReport) -> str:
    """Return the beginning of what a failed test raised, and the lines before it did."""
    crash = getattr(report.longrepr, "reprcrash", None)
    raised = crash.message if crash else report.longreprtext
    return f"{raised[:400]}\n\n{report.longreprtext[-1500:]}"


class Selection:
    """Keeps the tests asked for that have no outcome yet, and writes one line for each."""

    def __init__(self, outcomes: Path, only: Path | None) -> None:
        self.outcomes = outcomes
        self.only = set(only.read_text().splitlines()) if only else None
        lines = outcomes.read_text(encoding="utf-8").splitlines() if outcomes.exists() else []
        self.done = {json.loads(line)["test"] for line in lines}
        self.reports: list[pytest.TestReport] = []

    def wanted(self, item: pytest.Item) -> bool:
        """Whether `item` is of a device-generic class, asked for, and not done."""
        from torch.testing._internal.common_device_type import DeviceTypeTestBase

        if not issubclass(getattr(item, "cls", None) or object, DeviceTypeTestBase):
            return False
        return key(item) not in self.done and (self.only is None or key(item) in self.only)

    def write(self, item: pytest.Item, outcome: str, text: str = "") -> None:
        """Add a line; the last one of a test counts, so a crash leaves its `died`."""
        with self.outcomes.open("a") as file:
            file.write(json.dumps({"test": key(item), "outcome": outcome, "text": text}) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop everything else."""
        items[:] = [item for item in items if self.wanted(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Note that a test begins, and how it ended."""
        self.write(item, "died", "the process ended, or the test ran past its limit")
        self.reports = []
        done = yield
        bad = [report for report in self.reports if report.failed]
        skipped = any(report.skipped for report in self.reports)
        ended = "failed" if bad else "skipped" if skipped else "passed"
        self.write(item, ended, message(bad[0]) if bad else "")
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the reports of setting up, calling and tearing down."""
        self.reports.append(report)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take where outcomes go and, optionally, the only tests wanted."""
    parser.addoption("--outcomes", type=Path, required=True)
    parser.addoption("--only", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Register the device before torch's helpers look for one; then the selection."""
    if os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] == "privateuse1":
        importlib.import_module("ocl_backend")
    sys.meta_path.insert(0, Helpers)
    for part in HELPERS:
        if known := sys.modules.get(BEGINNING + part):
            lend_absent_names(known)
    config.pluginmanager.register(Selection(config.option.outcomes, config.option.only))
