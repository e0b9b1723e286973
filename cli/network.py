"""A PyTorch model on the device: which problems it runs, how long it takes, what a tuning gains.

It decides nothing about tuning; `oclgen tune --model` does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
import torch
from torch.utils._pytree import tree_leaves, tree_map

import ocl_backend  # noqa: F401  (registers the device)
from ocl_backend import module as ocl
from ocl_backend.dispatch.tuned import choose_by, chooser, reload_tuned
from oclgen.keys import parse_key
from oclgen.problem import Problem
from search_spaces.progress import OutOfTimeError

from .options import MODEL_FORM

if TYPE_CHECKING:
    from search_spaces.session import Session
    from tuned_db import Chooser

TURNS = 5
"""Turns of each side in which a network is timed."""
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class ModelError(click.ClickException):
    """The model cannot be made as asked; the message says why."""


@dataclass(frozen=True)
class Network:
    """A model and inputs for it; `train` adds the gradients of all parameters to a run."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    train: bool

    def run(self) -> None:
        """Run the model once."""
        self.model.train(self.train)
        with torch.set_grad_enabled(self.train):
            result = self.model(*self.inputs)
            if self.train:
                tensors = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
                loss = torch.stack([one.float().square().mean() for one in tensors]).sum()
                loss.backward()  # type: ignore[no-untyped-call]
                self.model.zero_grad()

    def calls(self) -> Counter[Problem]:
        """Return how often one run asks for each tuned problem."""
        counts: Counter[Problem] = Counter()
        for row in ocl.explain(self.run).rows:
            counts[parse_key(row.problem)] += row.calls
        return counts

    def milliseconds(self, repeats: int = 2) -> float:
        """Return the least milliseconds of some runs, after one to warm up."""
        self.run()
        samples = []
        for _ in range(repeats):
            ocl.synchronize()
            start = perf_counter()
            self.run()
            ocl.synchronize()
            samples.append(1e3 * (perf_counter() - start))
        return min(samples)

    def to(self, device: str) -> Network:
        """Return the network on `device`; the memory it leaves on another is given back."""
        inputs = tree_map(lambda one: one.to(device) if torch.is_tensor(one) else one, self.inputs)
        moved = Network(self.model.to(device), inputs, self.train)
        ocl.empty_cache()
        return moved


@dataclass(frozen=True)
class Before:
    """A network and what served it before a tuning; it waits on the CPU, to leave the device alone.

    What served before and what serves after are timed in turns, at the end: times that lie minutes
    apart do not compare.
    """

    network: Network
    calls: Counter[Problem]
    device: int
    chooser: Chooser

    @staticmethod
    def of(network: Network, calls: Counter[Problem], device: int) -> Before:
        """Remember the variants that serve now.

        Args:
            network: on the device; moved to the CPU.
            calls: how often each problem is called in a run.
            device: its index.
        """
        reload_tuned()
        now = chooser(device)
        for problem in calls:
            now.choose(problem)
        return Before(network.to("cpu"), calls, device, now)

    def saved(self, session: Session) -> Saved:
        """Return what the new choices save in a run, by the times of problems.

        A problem of which the tuning did not time both variants is measured now, if the session's
        time lasts until then.

        Args:
            session: that tuned; it is open.
        """
        reload_tuned()
        now, store = chooser(self.device), session.store.of(session.device.info)
        saved, changed, missing = 0.0, 0, 0
        for problem, calls in self.calls.items():
            pair = [one.choose(problem).variant for one in (self.chooser, now)]
            if pair[0] == pair[1]:
                continue
            changed += 1
            known = store.measured(problem)
            times = [known[one] for one in pair if one in known]
            try:
                before, after = times if len(times) == 2 else session.compare(problem, pair)
            except OutOfTimeError:
                before = after = inf
            if max(before, after) < inf:
                saved += calls * (before - after)
            else:
                missing += 1
        return Saved(saved, changed, missing)

    def compare(self, saved: Saved) -> str:
        """Time the network in turns, by what served and by what serves; return both gains.

        Args:
            saved: the milliseconds of a run that its problems' times promise.
        """
        if not saved.changed:
            return "the network's problems are served by what served them before: nothing is gained"
        turns = self._turns()
        before, after = ([turn[side] for turn in turns] for side in (0, 1))
        gains = [turn[0] / turn[1] for turn in turns]
        return (
            f"the network's run: {_spread(before)} ms before, {_spread(after)} ms after, in "
            f"{TURNS} turns: {_spread(gains)} times as fast; its problems' times predicted "
            f"{saved.gain(median(before)):.2f} times{saved.untold}"
        )

    def _turns(self) -> list[tuple[float, float]]:
        """Return the milliseconds by what served and by what serves, in pairs.

        Every second pair is taken the other way around, since load and clocks drift.
        """
        network = self.network.to(f"ocl:{self.device}")
        reload_tuned()
        sides = (self.chooser, chooser(self.device))
        turns = []
        for turn in range(TURNS):
            times = {}
            for side in sides if turn % 2 == 0 else reversed(sides):
                choose_by(self.device, side)
                times[side] = network.milliseconds()
            turns.append((times[sides[0]], times[sides[1]]))
        reload_tuned()
        return turns


@dataclass(frozen=True)
class Saved:
    """The milliseconds of a run that are saved.

    `changed` problems are served by another variant than before; those of `missing` ones are left
    out.
    """

    ms: float
    changed: int
    missing: int = 0

    def gain(self, before: float) -> float:
        """Return how many times as fast a run is that took `before` milliseconds."""
        return before / (before - self.ms) if self.ms < before else inf

    @property
    def untold(self) -> str:
        """The sentence about missing problems."""
        return f", {self.missing} that time did not reach left out" if self.missing else ""


def _spread(samples: Sequence[float]) -> str:
    return f"{median(samples):.4g} ({min(samples):.4g} to {max(samples):.4g})"


def load(spec: str, batch: int, shape: Sequence[int], dtype: str, train: bool) -> Network:
    """Return a network with random weights and inputs, on the CPU.

    Args:
        spec: as `MODEL_FORM` describes it.
        batch: items of the input.
        shape: of an item; not read where the function brings its own inputs.
        dtype: of weights and inputs.
        train: whether it is to be trained.

    Raises:
        ModelError: there is no such model.
    """
    torch.manual_seed(0)
    source, _, name = spec.partition(":")
    if not source or not name:
        raise ModelError(f"{spec!r} is no model; one is {MODEL_FORM}")
    made = _torchvision(name) if source == "torchvision" else _function(source, name)()
    model, *inputs = made if isinstance(made, tuple) else (made,)
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"{spec} returned a {type(model).__name__}, not a torch.nn.Module")
    wanted = DTYPES[dtype]
    given = tuple(inputs) or (torch.randn(batch, *shape).to(wanted),)
    return Network(model.to(wanted), given, train)


def _torchvision(name: str) -> torch.nn.Module:
    models: Any = import_module("torchvision.models")
    if name not in models.list_models(module=models):
        raise ModelError(
            f"torchvision has no model {name!r}; torchvision.models.list_models() names what it has"
        )
    model: torch.nn.Module = models.get_model(name, weights=None)
    return model


def _function(module: str, name: str) -> Callable[[], Any]:
    """Return a function of a module, which may lie in the working directory."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        made: Callable[[], Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{module}:{name} cannot be had: {error}") from error
    finally:
        sys.path.pop(0)
    return made
