"""Records of strangers: none may break, falsify or slow down the programs here."""

from __future__ import annotations

import io
import time
from typing import Any

from benchmarks.commons.lab import INFO, PRODUCT, TUNED, TUNED_MS, Lab, case, chooser, line, read
from oclgen.families import FAMILIES
from oclgen.measurement import Measurement
from oclgen.problem import ConvProblem, Problem
from oclgen.variant import Variant
from tuned_db import RecordError, Store
from tuned_db.records.exchange import ImportFileError
from tuned_db.storage.upkeep import Prune, absorb, prune

CONV = ConvProblem(1, 64, 32, 32, 64, 3, 3, 1, 1, 1, 1)
PATIENCE_S = 5.0
"""What a choice may take, imports included: it takes some 0.1 s."""


def _is_served(lab: Lab, family: str, config: dict[str, Any], problem: Problem = PRODUCT) -> str:
    store = lab.store()
    begin = time.monotonic()
    store.merge(read(line(family, config, problem)))
    choice = chooser(store).choose(problem)
    spent = time.monotonic() - begin
    values = choice.variant.values()
    if choice.variant.family == family and config.items() <= values.items():
        return f"{choice.variant.to_text()} serves as {choice.source}"
    return f"choosing took {spent:.1f} s" if spent > PATIENCE_S else ""


@case("1", "negative sizes serve, and products are zero")
def negative_sizes(lab: Lab) -> str:
    """Import a tile of -2147483647 rows."""
    return _is_served(lab, "gemm_columns", {"item_m": -2147483647}) or _is_served(
        lab, "gemm_register", {"item_m": -16, "loop_m": 1024}
    )


@case("2", "a negative workspace ends the process")
def negative_workspace(lab: Lab) -> str:
    """Import -2 rows of tiles of Winograd's."""
    return _is_served(lab, "winograd_blocked", {"tile_rows": -2}, CONV)


@case("3", "a zero stops every product of its kind")
def zero(lab: Lab) -> str:
    """Import a split into no parts."""
    return _is_served(lab, "gemm_register", {"split_k": 0})


@case("4", "unrolled text fills memory")
def endless_text(lab: Lab) -> str:
    """Import loops that are unrolled a billion times."""
    return _is_served(lab, "gemm_register", {"unroll_k": 2**30}) or _is_served(
        lab, "gemm_dot", {"item_m": 2**30}
    )


@case("5", "a false claim serves in the place of what was measured here")
def false_claim(lab: Lab) -> str:
    """Claim 33 PFLOP/s for a variant that is slow."""
    store = lab.store()
    store.merge(read(line(config={"split_k": 64}, samples=[1e-6])))
    first = chooser(store).choose(PRODUCT)
    return "" if first.ms == TUNED_MS else f"{first.source}, {first.ms} ms"


@case("5", "a claim that is slower than it says counts as verified")
def slow_claim(lab: Lab) -> str:
    """Verify a claim that takes 435 ms here."""
    from tuned_db.trust.verify import verify

    store = lab.store(tuned=False)
    store.merge(read(line(config={"split_k": 64}, samples=[0.5])))
    here = chooser(store)
    slow = Measurement((435.0,) * 5, error=1e-7)
    verdicts = list(verify(here, store.of(INFO), here.unverified(), lambda *_: slow))
    said = getattr(verdicts[0], "kind", "verified")
    return "" if said == "slower" else f"the verdict is {said!r}"


@case("6", "an invalid claim hides the local winner")
def invalid_claim(lab: Lab) -> str:
    """Claim a time for a variant that no device can run."""
    store = lab.store()
    store.merge(read(line("gemm_staged", {"local_m": 4096, "local_n": 4096}, samples=[1e-6])))
    choice = chooser(store).choose(PRODUCT)
    return "" if choice.source == "exact" else choice.source


@case("7", "claimed trials end local tunings")
def false_trials(lab: Lab) -> str:
    """Claim 2^31 - 1 trials."""
    store = lab.store()
    store.merge(read(line(config={"split_k": 2}, trials=2**31 - 1)))
    trials = store.of(INFO).trials(PRODUCT)
    store.of(INFO).record(PRODUCT, TUNED, Measurement((0.9,)))
    prune(store, Prune(claims=True))
    left = store.all_winners()[0].trials
    return "" if (trials, left) == (1, 1) else f"{trials} trials, {left} after prune"


@case("8", "a time of 0 ms is taken in")
def no_time(lab: Lab) -> str:
    """Claim that a product takes no time."""
    try:
        lab.store().merge(read(line(samples=[0.0])))
    except (ImportFileError, RecordError):
        return ""
    return "it was taken"


@case("9", "names of devices are read as markup")
def markup(lab: Lab) -> str:
    """Import a device whose name closes a tag."""
    from rich.table import Table

    from oclgen_cli.console import console

    out = console()
    out.file = io.StringIO()
    table = Table("device")
    table.add_row("GPU [rev a1] [/red] [link=http://evil]x[/link]")
    out.print(table)
    return "" if "[rev a1] [/red] [link" in out.file.getvalue() else "text is lost"


@case("15", "merge forgets a winner that was measured side by side")
def promoted(lab: Lab) -> str:
    """Merge a database in which the winner once took longer than the loser's luckiest time."""
    source = lab.store(tuned=False)
    other = Variant("gemm_columns", FAMILIES["gemm_columns"].DEFAULT)
    source.of(INFO).record(PRODUCT, other, Measurement((0.5,)))
    source.of(INFO).promote(PRODUCT, TUNED, Measurement((0.6,)))
    target = lab.store(tuned=False)
    absorb(target, source, trusted=True)
    found = target.of(INFO).incumbent(PRODUCT)
    return "" if found and found[0] == TUNED else f"{found} wins"


@case("a, b", "cache, seed and conditions are lost, or cold times compete with warm ones")
def conditions(lab: Lab) -> str:
    """Merge, export and import a cold time with its seed and clocks."""
    source, cold = lab.store(), {"sm_clock_mhz": 1980.0}
    slow = Measurement((2.0,), seed=77, cache="cold", conditions=cold)
    source.of(INFO, "cold").promote(PRODUCT, TUNED, slow)
    merged = lab.store(tuned=False)
    absorb(merged, source)
    moved = lab.store(tuned=False)
    moved.merge(read(*(one.to_line() for one in source.all_winners())))
    for store in (merged, moved):
        if reason := _lost(store, cold):
            return reason
    return ""


def _lost(store: Store, conditions: dict[str, float]) -> str:
    found = {one.cache: one for one in store.all_winners()}
    if sorted(found) != ["cold", "warm"]:
        return f"winners of {sorted(found)}"
    kept = found["cold"]
    same = (kept.seed, kept.conditions, kept.ms) == (77, conditions, 2.0)
    return "" if same else f"arrived as {kept.seed}, {kept.conditions}, {kept.ms}"


@case("21", "a false peak survives the claims that it came with")
def false_peak(lab: Lab) -> str:
    """Import a peak of 1e11 GFLOP/s, then drop all claims."""
    store = lab.store(tuned=False)
    store.of(INFO).record(PRODUCT, TUNED, Measurement((0.82,)))
    store.merge(read(line(config={"split_k": 2}, peak=[1e11, 1e11])), origin="push by mallory")
    prune(store, Prune(claims=True))
    peak = store.all_winners()[0].peak
    return "" if peak is None else f"{peak} stays"
