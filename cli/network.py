"""A PyTorch model on the device: which problems it runs, how long it takes, what a tuning gains.

It decides nothing about tuning; `oclgen tune --model` does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
import torch
from torch.utils._pytree import tree_leaves, tree_map

import ocl_backend  # noqa: F401  (registers the device)
from ocl_backend import module as ocl
from ocl_backend.dispatch.tuned import chooser, reload_tuned
from ocl_backend.interop import torchvision_models
from oclgen.keys import parse_key
from oclgen.problem import Problem
from oclgen.variant import Variant

from .options import MODEL_FORM

if TYPE_CHECKING:
    from search_spaces.progress import TuneResult
    from tuned_db import DeviceStore

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

    def milliseconds(self, repeats: int = 5) -> float:
        """Return the median milliseconds of a run, after one to warm up."""
        self.run()
        samples = []
        for _ in range(repeats):
            ocl.synchronize()
            start = perf_counter()
            self.run()
            ocl.synchronize()
            samples.append(1e3 * (perf_counter() - start))
        return median(samples)

    def to(self, device: str) -> Network:
        """Return the network on `device`; the memory it leaves on another is given back."""
        inputs = tree_map(lambda one: one.to(device) if torch.is_tensor(one) else one, self.inputs)
        moved = Network(self.model.to(device), inputs, self.train)
        ocl.empty_cache()
        return moved


@dataclass(frozen=True)
class Before:
    """A network before its problems are tuned; it waits on the CPU, to leave the device alone."""

    network: Network
    calls: Counter[Problem]
    device: int
    ms: float
    served_by: Mapping[Problem, Variant]

    @staticmethod
    def of(network: Network, calls: Counter[Problem], device: int) -> Before:
        """Time the network and note which variants serve it now.

        Args:
            network: on the device; moved to the CPU.
            calls: how often each problem is called in a run.
            device: its index.
        """
        reload_tuned()
        ms = network.milliseconds()
        choices = {problem: chooser(device).choose(problem) for problem in calls}
        served = {problem: choice.variant for problem, choice in choices.items()}
        return Before(network.to("cpu"), calls, device, ms, served)

    def compare(self, results: Sequence[TuneResult], store: DeviceStore) -> str:
        """Time the network again and return both gains in a sentence."""
        saved = sum(self._saved(result, store) for result in results)
        reload_tuned()
        after = self.network.to(f"ocl:{self.device}").milliseconds()
        predicted = max(self.ms - saved, 0.0)
        return (
            f"the network's run: {self.ms:.4g} ms before, {predicted:.4g} ms predicted from its "
            f"problems, {after:.4g} ms measured: {self.ms / after:.2f} times as fast"
        )

    def _saved(self, result: TuneResult, store: DeviceStore) -> float:
        """Return the milliseconds per run that one problem saves; 0 where the old time is unknown.

        What served before is the first variant that a tuning measures.
        """
        before = store.measured(result.problem).get(self.served_by[result.problem])
        if before is None or result.best is None:
            return 0.0
        return self.calls[result.problem] * (before - result.best.ms)


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
    models = torchvision_models()
    if name not in models.list_models(module=models):
        raise ModelError(f"torchvision has no model {name!r}; torchvision.models.list_models() has")
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
