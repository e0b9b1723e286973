"""What a tuning gains a whole network: predicted from its problems' times, and measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocl_backend.dispatch.tuned import chooser, reload_tuned
from oclgen.families import config_to_json
from oclgen.problem import Problem

if TYPE_CHECKING:
    from search_spaces.progress import TuneResult
    from tuned_db import DeviceStore

    from .network import Network

Variant = tuple[str, str]
"""A family's name and a config as JSON."""


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
        """Time the network and note which variants serve it now."""
        reload_tuned()
        ms = network.milliseconds()
        choices = {problem: chooser(device).choose(problem) for problem in calls}
        served = {p: (one.family, config_to_json(one.config)) for p, one in choices.items()}
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
