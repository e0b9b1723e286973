"""The progress bar of a tuning: what is tried, the best so far, the time left."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from search_spaces.progress import Progress as Trial


class TuningBar:
    """A context that draws one bar over all problems; `report` is handed to the tuner."""

    def __init__(self, out: Console, problems: int, trials: int, ends: float) -> None:
        self._out = out
        self._total = problems * trials
        self._begin, self._ends = time.monotonic(), ends
        self._made, self._shown = 0, -1
        self._bar = Progress(
            TextColumn("{task.fields[left]}", table_column=Column(min_width=10)),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[best]}", table_column=Column(min_width=36)),
            TextColumn("{task.description}"),
            console=out,
            transient=True,
        )
        self._task = self._bar.add_task("measuring", total=self._total, best="", left="")

    def __enter__(self) -> TuningBar:
        if self._out.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._out.is_terminal:
            self._bar.stop()

    def report(self, trial: Trial) -> None:
        """Show a trial that was made; where there is no terminal, each problem's first one."""
        self._made += 1
        if not self._out.is_terminal:
            self._log(trial)
            return
        best = "nothing works yet"
        if trial.best:
            rate = trial.problem.flops / trial.best.ms / 1e6
            best = f"{trial.best.ms:.4g} ms, {rate:.0f} GFLOP/s"
        made = trial.index * trial.trials + trial.trial
        self._bar.update(
            self._task,
            completed=made,
            description=f"{trial.index + 1}/{trial.count} {trial.problem.key()}",
            best=f"{trial.trial}/{trial.trials} best {best}",
            left=self._left(self._total - made),
        )

    def _left(self, trials: int) -> str:
        """Return the time left: what the trials will take, or the budget if that is less."""
        now = time.monotonic()
        seconds = min(trials * (now - self._begin) / self._made, self._ends - now)
        minutes, rest = divmod(int(max(seconds, 0.0)), 60)
        return f"{minutes}:{rest:02d} left"

    def _log(self, trial: Trial) -> None:
        if trial.index != self._shown:
            self._shown = trial.index
            self._out.print(f"{trial.index + 1}/{trial.count} {trial.problem.key()} ...")
