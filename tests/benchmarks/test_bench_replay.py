"""The replay harness, and the figures of `docs/search.md` on the small table that is kept here."""

from __future__ import annotations

import gzip
import json
from math import inf
from pathlib import Path

import numpy as np
import pytest

from benchmarks.replays.replay import OWN, cold, line, main, ours, random, reached, warm
from benchmarks.replays.tables import Table, read_table
from search_spaces.space import ListedSpace

SEEDS = range(6)


@pytest.fixture(scope="module")
def table() -> Table:
    return read_table(OWN)


def test_ours_comes_near_the_optimum_of_the_small_table_and_chance_does_not(table: Table) -> None:
    assert len(table.space) > 300
    found = [reached(table, ours(table, 50, seed), [50])[0] for seed in SEEDS]
    chance = [reached(table, random(table, 50, seed), [50])[0] for seed in range(200)]
    assert np.mean(found) >= 0.95 > np.mean(chance)


def test_asking_ahead_costs_little(table: Table) -> None:
    late = [reached(table, ours(table, 50, seed, ahead=2), [50])[0] for seed in SEEDS]
    assert np.mean(late) >= 0.94


def test_a_small_table_is_replayed_to_its_end(table: Table) -> None:
    rows = slice(0, 24)
    space = table.space
    listed = ListedSpace(space.kind, space.names, space.values, space.points[rows])
    few = Table("few", listed, table.ms[rows])
    assert sorted(ours(few, 100, 0, ahead=3)) == sorted(few.ms.tolist())


def test_a_warm_search_begins_with_the_best_of_the_others() -> None:
    assert warm(OWN, [OWN], 0) == [1.0, 1.0, 1.0]


def test_a_line_tells_mean_and_nine_of_ten() -> None:
    results = np.array([[0.5, 0.9]] + [[1.0, 1.0]] * 9)
    assert line("ours", results).split() == ["ours", "95.0%", "/100.0%", "99.0%", "/100.0%"]


def test_cold_reads_its_table_itself() -> None:
    assert cold(OWN, "random", 3) == cold(OWN, "random", 3)


CONFIGS = [{"tile": 8, "fixed": 1, "pad": 0}, {"tile": 16, "fixed": 1, "pad": 1}]


def written(path: Path, content: object) -> Path:
    with gzip.open(path, "wt") as file:
        json.dump(content, file)
    return path


def test_both_formats_of_the_hub_are_read(tmp_path: Path) -> None:
    cache = {
        "tune_params_keys": ["tile", "fixed", "pad"],
        "cache": {
            "8,1,0": {**CONFIGS[0], "time": 2.5},
            "16,1,1": {**CONFIGS[1], "time": "RuntimeFailedConfig"},
        },
    }
    t4 = {
        "results": [
            {"configuration": CONFIGS[1], "invalidity": "compile", "measurements": [{"value": 9}]},
            {
                "configuration": CONFIGS[0],
                "invalidity": "correct",
                "measurements": [{"value": 2.5}],
            },
        ]
    }
    for content in (cache, t4):
        table = read_table(written(tmp_path / "GPU_T4.json.gz", content))
        assert table.space.names == ("tile", "pad")
        assert table.ms.tolist() == [2.5, inf]
        assert table.time(table.space.config(0)) == 2.5 == table.optimum


def test_a_rate_that_is_the_objective_is_what_counts(tmp_path: Path) -> None:
    """A config that makes more steps per launch takes longer and is still better."""
    entries = {
        "8": {"tile": 8, "time": 4.0, "GFLOP/s": 8.0},
        "16": {"tile": 16, "time": 1.0, "GFLOP/s": 4.0},
        "32": {"tile": 32, "time": "RuntimeFailedConfig"},
    }
    content = {"tune_params_keys": ["tile"], "objective": "GFLOP/s", "cache": entries}
    table = read_table(written(tmp_path / "GPU.json.gz", content))
    assert table.ms.tolist() == [1 / 8, 1 / 4, inf]


def test_files_of_a_folder_are_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "hotspot"
    folder.mkdir()
    for name, sizes in (("a", (1, 2)), ("b", (2, 3))):
        entries = {str(size): {"tile": size, "time": float(size)} for size in sizes}
        content = {"tune_params_keys": ["tile"], "cache": entries}
        (folder / f"{name}.json").write_text(json.dumps(content))
    assert read_table(folder).ms.tolist() == [1.0, 2.0, 3.0]


def test_tables_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([OWN, OWN], ["random"], seeds=1, with_others=False, jobs=1)
    assert "2 tables random" in capsys.readouterr().out.splitlines()[-1]


def test_a_config_of_another_table_fits_by_its_values(tmp_path: Path, table: Table) -> None:
    (best,) = table.best(1)
    assert table.fitting(best) == best
    other = read_table(
        written(tmp_path / "x.json.gz", {"tune_params_keys": ["tile"], "cache": {
            str(size): {"tile": size, "time": float(size)} for size in (1, 2)
        }})
    )  # fmt: skip
    assert table.fitting(other.space.config(0)) is None
