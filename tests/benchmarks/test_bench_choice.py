"""How the model of the choice is judged, and how its tables are measured, without a device."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.choice import collect, duels
from benchmarks.choice.cases import Case, cases_of
from benchmarks.choice.collect import AGAIN
from benchmarks.choice.draw import offered
from benchmarks.choice.evaluate import (
    FOLDS,
    TABLES,
    folds,
    geometric_mean,
    of_dispatch,
    quality,
    split_quality,
)
from benchmarks.costs import choosing
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tuned_db.files.table import Row, append, read


def test_what_is_hardly_apart_is_left_out_together() -> None:
    """A chain of sizes is one fold, also where its ends are far apart."""
    chain = [GemmProblem(size, 64, 64) for size in (64, 100, 160, 250)]
    others = [GemmProblem(64, 64, 64 * 4**step) for step in range(1, 6)]
    found = folds([chain[0], others[0], chain[1], *others[1:], chain[2], chain[3]])
    assert len({found[0], found[2], found[-2], found[-1]}) == 1
    assert set(found) == set(range(FOLDS))


def test_other_kinds_are_not_near() -> None:
    assert folds([GemmProblem(64, 64, 64), GemmProblem(64, 64, 64, trans_b=True)]) == [0, 1]


class Ready:
    """Gives each variant the times 3, 2 and 4 by its number of rows; what has 4 is not prepared."""

    def __init__(self, _device: Any, _problem: Any, variants: list[Variant], _seed: int) -> None:
        self.rows = [variant.config.item_m for variant in variants]

    def turns(self, count: int) -> list[tuple[float, ...]]:
        return [() if at == 4 else (at * 3.0, at * 2.0, at * 4.0)[:count] for at in self.rows]


class NoDevice:
    """A device whose programs may be forgotten."""

    class programs:  # noqa: N801 (an attribute of the device)
        """Of which there are none."""

        @staticmethod
        def forget() -> None:
            """Forget nothing."""


def test_what_is_not_far_from_the_best_is_timed_in_turns_which_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collect, "Ready", Ready)
    problem = GemmProblem(64, 64, 64)
    values = {**_values(), "item_m": 1}
    times = (1.0, 1.5, AGAIN + 0.1, AGAIN, inf)
    rows = [
        Row(problem.key(), "gemm_register", {**values, "item_m": at}, ms, "none")
        for at, ms in enumerate(times, 1)
    ]
    device: Any = NoDevice
    found = collect.by_turns(device, problem, rows, turns=3, seed=0)
    assert [row.turns for row in found] == [(3.0, 2.0, 4.0), (6.0, 4.0, 8.0), (), (), ()]
    assert [row.ms for row in found] == [2.0, 4.0, *times[2:]]


def test_tables_keep_turns_and_older_ones_have_none(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl.gz"
    rows = [Row("p", "f", {"a": 1}, 2.0, "none", turns) for turns in ((2.0, 3.0), ())]
    head = next(iter(read(TABLES[0])))[0]
    append(path, head, rows)
    assert [row for _, row in read(path)] == rows
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    assert ["turns" in line for line in lines] == [False, True, False]


def test_the_noise_of_equal_variants_counts_by_one_measure_only() -> None:
    """Of two equal variants another program disturbs one in each half, any with the same chance."""
    scores = np.array([0.0, 1.0], np.float32)
    disturbed = ([1.5, 1.0], [1.0, 1.5])
    cases = [_case([one, other]) for one in disturbed for other in disturbed]
    assert geometric_mean([split_quality(each, scores) for each in cases]) == pytest.approx(1.0)
    assert geometric_mean([quality(each, scores) for each in cases]) < 0.95


def test_a_wrong_choice_loses_by_both_measures() -> None:
    case = _case([[2.0, 1.0], [2.2, 1.1]])
    scores = np.array([0.0, 1.0], np.float32)
    assert quality(case, scores) == split_quality(case, scores) == pytest.approx(0.5)
    assert split_quality(case, scores, raced=2) == pytest.approx(1.0)


def test_a_choice_of_dispatch_is_among_what_it_offers_if_all_was_measured() -> None:
    head = next(head for table in TABLES for head, _ in read(table) if head.device.kind == "cpu")
    problem = GemmProblem(64, 64, 64)
    asked = offered(problem, head.limits)
    other = Variant.from_values("gemm_register", {**_values(), "item_m": 3})
    assert other not in asked
    variants = (other, *asked)
    case = replace(
        _case([[1.0] * len(variants)] * 2), head=head, problem=problem, variants=variants
    )
    scores = np.arange(len(variants), dtype=np.float32)
    assert of_dispatch(case, scores) is None
    found = of_dispatch(replace(case, tried=frozenset(variants)), scores)
    assert found is not None
    assert found.tolist() == [inf, *scores[1:]]


def test_an_older_table_is_measured_again_where_it_was_near_the_best(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl.gz"
    problem = GemmProblem(64, 64, 64).key()
    head = next(iter(read(TABLES[0])))[0]
    times = (3.0, 1.0, collect.NEAR, collect.NEAR + 0.1, inf)
    rows = [
        Row(problem, "gemm_register", {**_values(), "item_m": at}, ms, "none")
        for at, ms in enumerate(times, 1)
    ]
    append(path, head, rows)
    kept = collect._near_best([path])[problem]
    assert [variant.config.item_m for variant in kept] == [2, 3]


def test_halves_are_the_least_of_even_and_of_odd_turns(tmp_path: Path) -> None:
    problem = GemmProblem(64, 64, 64).key()
    path = tmp_path / "table.jsonl.gz"
    head = next(head for table in TABLES for head, _ in read(table) if head.device.kind == "cpu")
    turns = ((3.0, 2.0, 1.0, 4.0), ())
    rows = [
        Row(
            problem,
            "gemm_register",
            {**_values(), "item_m": at},
            1.0 if each else 9.0,
            "none",
            each,
        )
        for at, each in enumerate(turns, 1)
    ]
    append(path, head, rows)
    (case,) = cases_of(path)
    assert case.halves is not None
    assert case.halves.tolist() == [[1.0, 9.0], [2.0, 9.0]]
    assert case.only([1]).halves is not None
    append(path, head, [Row(GemmProblem(8, 8, 8).key(), *_plain(rows[1]))])
    assert cases_of(path)[1].halves is None


def test_a_duel_is_decided_by_the_median_of_its_turns_and_keeps_the_ratio_of_each() -> None:
    variant = Variant.from_values("gemm_register", _values())
    duel = duels.Duel(GemmProblem(8, 8, 8), variant, variant, claimed=3.0)
    found = duels._judged(duel, np.array([2.0, 4.0, 8.0]), np.array([1.0, 4.0, 0.5]))
    assert (found.ms, found.gain, found.turns, found.claimed) == (2.0, 2.0, (2.0, 1.0, 16.0), 3.0)


def _plain(row: Row) -> tuple[Any, ...]:
    return row.family, row.config, row.ms, row.invalidity


def _case(halves: list[list[float]]) -> Case:
    times = np.array(halves)
    unused: Any = None
    return Case(unused, GemmProblem(8, 8, 8), (), times.min(axis=0), (), times)


def _values() -> dict[str, int | bool | str]:
    from oclgen.families.gemm import gemm_register

    return Variant("gemm_register", gemm_register.DEFAULT).values()


def test_a_choice_is_timed_for_each_problem_of_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = next(one for one in TABLES if one.name == "nvidia_h200_taps.jsonl.gz")
    chosen = {row.problem for _, row in read(table)}
    timed: list[tuple[int, int]] = []

    def counted(ask: Any, problems: Any, rounds: int) -> list[float]:
        assert ask(problems[0])
        timed.append((len(problems), rounds))
        return [1.0, 3.0, 2.0]

    monkeypatch.setattr(choosing, "_least", counted)
    choosing.main([table], 2)
    assert timed == [(len(chosen), 2)] * len(choosing.PARTS)
    assert capsys.readouterr().out.count("median 2.00, most 3.00") == len(choosing.PARTS)
