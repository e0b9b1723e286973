"""The steps of a self-test on one device, and the process that runs one: `oclgen check`.

The steps find the device's identity and its rates, test whether each family is right on it, and
tune for a short time. `ocl_backend.selftest` tests the torch device. Measurements are kept in a
database that the caller names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib import util
from math import inf
from typing import Any

from oclgen.measurement import Measurement
from oclgen.measuring import quick_check
from oclgen.measuring.steps import THE_STEP, Finding, Talk, Verdict, run, serve

STARTING_S = 120.0
"""That a process may take to find runtimes and open devices."""
PATIENCE_S = sum(quick_check.TIMEOUTS.values())
"""After which a process that says nothing hangs: one variant may take its time in every stage."""
OPERATOR_S = 60.0
"""The same for an operator of torch."""
SHARES = {"device": 1.0, "rates": 0.2, "families": 0.5, "tuning": 0.5, "operators": 1.0}
"""The steps in their order, and the part that each may take of the time which is left."""
TRIALS = 32
"""Variants that are tried of each problem that is tuned, if there is time."""


def steps(
    index: int, store: str, seconds: float, told: Callable[[str, Any], None]
) -> Iterator[Finding]:
    """Test a device, each step in processes of its own, and yield what is found.

    Args:
        index: of the device in `oclgen.opencl.device.devices()`.
        store: a URL or a path of a database, which keeps what is measured.
        seconds: for all steps; a process that hangs is ended when they are over.
        told: is called with facts: `devices`, `device`, `limits`, `rates`, `torch`.
    """
    ends = time.monotonic() + seconds
    facts: set[str] = set()

    def hear(name: str, value: Any) -> None:
        facts.add(name)
        told(name, value)

    for step, share in SHARES.items():
        left = ends - time.monotonic()
        question = {"index": index, "store": store, "step": step}
        if left <= 0:
            yield Finding(step, THE_STEP, "skipped", "no time was left")
        elif step == "operators":
            yield from _operators(question, left, hear)
        else:
            yield from run(step, __name__, question, share * left, PATIENCE_S, STARTING_S, hear)
        if "device" not in facts:
            return  # without a device there is nothing to try


def _operators(
    question: Mapping[str, Any], seconds: float, told: Callable[[str, Any], None]
) -> Iterator[Finding]:
    """Take the step of the torch device, whose first process may have to compile its shim."""
    if util.find_spec("torch") is None:
        remedy = "torch is not installed: pip install 'oclgen[torch]'"
        yield Finding("operators", "torch", "skipped", remedy)
        return
    module = "ocl_backend.selftest"
    for one in run("operators", module, question, seconds, OPERATOR_S, inf, told):
        if one.what == THE_STEP:
            remedy = "`python -c 'import ocl_backend'` says more, and compiles what is missing"
            one = one._replace(found=f"{one.found}; {remedy}")
        yield one


def _device(talk: Talk) -> None:
    """Say which devices there are, and what the one that is tested allows and shows."""
    from oclgen.opencl.device import devices, select
    from oclgen.opencl.probe import ANSWERS

    if not talk.begins("device"):
        return
    found = devices()
    talk.tell("devices", [asdict(one.info) for one in found])
    device = select(talk.question["index"])
    talk.tell("device", asdict(device.info))
    talk.tell("limits", device.limits.to_json())
    info, limits = device.info, device.limits
    talk.find(
        "device",
        "ok",
        f"{info.name} ({info.runtime}, {info.runtime_version}, driver {info.driver_version}): "
        f"{limits.compute_units} units, {limits.most_local_bytes} B of local memory, "
        f"work-groups of {limits.max_work_group}",
    )
    shown = [name for name in ANSWERS if name in limits.instructions]
    talk.find("instructions", "ok", ", ".join(shown) or "none beyond OpenCL C")


def _rates(talk: Talk) -> None:
    """Measure multiply-adds of every dtype, and copies."""
    what = "multiply-adds and copies"
    session = _session(talk)
    if not talk.begins(what):
        return
    with session:
        if session.level is None:
            talk.find(what, "skipped", "another process holds the device")
            return
        now = session.level.now
        peaks = session.store.of(session.device.info).peaks()
    talk.tell("rates", {"gflops": now.gflops, "gbytes": now.gbytes, "peaks": peaks})
    rows = [
        f"{rate:.0f} GFLOP/s in {dtype}" for dtype, rate in {"fp32": now.gflops, **peaks}.items()
    ]
    talk.find(what, "ok", ", ".join([*rows, f"{now.gbytes:.1f} GB/s"]))


def _families(talk: Talk) -> None:
    """Run every family on small problems against float64, first one case of each."""
    from oclgen.measuring.worker import Worker
    from oclgen.sample import cases

    session = _session(talk, with_peak=False)
    with session:
        info, limits = session.device.info, session.device.limits
        results = session.store.of(info)
        timeouts = dict(quick_check.TIMEOUTS)
        index, affordable = session.device.index, quick_check.AFFORDABLE
        with Worker(index, info, timeouts, affordable=affordable) as worker:
            for case in cases(limits):
                name = f"{case.family} {case.problem.key()}"
                if case.variant is None:
                    if talk.begins(name):
                        talk.find(name, "skipped", case.reason)
                elif talk.begins(name):
                    found = worker.measure(case.problem, case.variant)
                    results.record(case.problem, case.variant, found)
                    talk.find(name, *_judged(found))


def _judged(found: Measurement) -> tuple[Any, str]:
    if found.ok:
        return "ok", f"error {found.error:.1e}, {found.ms:.4g} ms"
    return "fail", f"{found.invalidity}: {found.reason}"


def _tuning(talk: Talk) -> None:
    """Tune the first of the default problems of each kind: a product, a convolution."""
    from search_spaces.progress import Budget
    from search_spaces.workloads import default_problems

    session = _session(talk, with_peak=False)
    first = {problem.op: problem for problem in reversed(default_problems(session.device.limits))}
    problems = sorted(first.values(), key=lambda one: one.flops)
    with session:
        for place, problem in enumerate(problems):
            if talk.begins(problem.key()):
                seconds = (talk.ends - time.monotonic()) / (len(problems) - place)
                (result,) = session.tune([problem], Budget(TRIALS, max(seconds, 0.0)))
                failed = result.trials - result.outcomes["none"]
                found = f"{result}; {result.trials} variants tried, {failed} of them failed"
                verdict: Verdict = "ok" if result.best else "fail" if result.trials else "skipped"
                talk.find(problem.key(), verdict, found)


def _session(talk: Talk, **more: Any) -> Any:
    """Return a session of the device that ends with the step, not entered yet."""
    from search_spaces.session import Session

    asked = talk.question
    return Session(asked["index"], asked["store"], ends=talk.ends, say=lambda _text: None, **more)


STEPS = {"device": _device, "rates": _rates, "families": _families, "tuning": _tuning}


def _work(talk: Talk) -> None:
    STEPS[talk.question["step"]](talk)


if __name__ == "__main__":
    serve(_work)
