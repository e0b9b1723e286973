"""Kernels of other tuners: their files read and written, kept, and the nearest asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select

from tuned_db import ImportFileError, Store
from tuned_db.database.models import ForeignRow
from tuned_db.storage.batches import list_batches
from tuned_db.trust.withdrawn import undo
from tuned_db.tuners.adapters import WRITERS, About, read
from tuned_db.tuners.foreign import Foreign, keep, nearest, select_kernels

KERNEL_TUNER: dict[str, Any] = {
    "schema_version": "1.1.0",
    "device_name": "NVIDIA A100",
    "kernel_name": "convolution_kernel",
    "problem_size": [4096, 2048],
    "tune_params_keys": ["block_size_x", "use_padding"],
    "tune_params": {"block_size_x": [16, 32], "use_padding": [0, 1]},
    "objective": "time",
    "cache": {
        "16,0": {
            "block_size_x": 16, "use_padding": 0, "time": 1.5, "times": [1.4, 1.5, 1.9],
            "compile_time": 400.0, "verification_time": 0, "benchmark_time": 12.0,
            "strategy_time": 0, "framework_time": 1.0, "timestamp": "2026-01-01 00:00:00+00:00",
            "GFLOP/s": 100.0,
        },
        "32,1": {
            "block_size_x": 32, "use_padding": 1, "time": "CompilationFailedConfig",
            "compile_time": 400.0, "verification_time": 0, "benchmark_time": 0,
            "strategy_time": 0, "framework_time": 1.0, "timestamp": "2026-01-01 00:00:01+00:00",
        },
    },
}  # fmt: skip
T4 = {
    "schema_version": "1.0.0",
    "results": [
        {
            "timestamp": "2026-01-01", "configuration": {"block_size_x": 16},
            "objectives": ["time"], "times": {"compilation": 400.0, "runtimes": [1.0, 1.25, 3.0]},
            "invalidity": "correct", "correctness": 1,
            "measurements": [{"name": "time", "value": 1.25, "unit": "ms"}],
        },
        {
            "configuration": {"block_size_x": 32}, "times": {"runtimes": []},
            "invalidity": "constraints", "correctness": 1,
        },
    ],
}  # fmt: skip
CLBLAST: dict[str, Any] = {
    "kernel_family": "xgemm_1", "precision": "32", "arg_m": "1024", "arg_n": "1024",
    "arg_k": "512", "arg_alpha": "2.00", "best_kernel": "Xgemm", "best_time": "1.250",
    "best_parameters": "KWG=16 MWG=64", "clblast_device_name": "Mali-G52", "device": "Mali",
    "results": [
        {"kernel": "Xgemm", "time": 1.25, "parameters": {"KWG": 16, "MWG": 64, "PRECISION": 32}},
        {"kernel": "Xgemm", "time": 2.5, "parameters": {"KWG": 32, "MWG": 64, "PRECISION": 32}},
        {"kernel": "Xgemm", "time": -1.0, "parameters": {"KWG": 64, "MWG": 64, "PRECISION": 32}},
    ],
}  # fmt: skip
DATABASE = {
    "sections": [
        {
            "kernel_family": "xgemm", "kernel": "Xgemm", "precision": "32", "arg_m": "1024",
            "arg_n": "1024", "arg_k": "512", "clblast_device_name": "Mali-G52",
            "parameter_names": ["KWG", "MWG"], "results": [["16,64", 1.25], ["32,64", 2.5]],
        }
    ]
}  # fmt: skip
TRITON: dict[str, Any] = {
    "key": ["1024", "512", "torch.float16"],
    "configs_timings": [
        [
            {"kwargs": {"BLOCK_M": 64}, "num_warps": 8, "num_ctas": 1, "num_stages": 3,
             "maxnreg": None, "pre_hook": None, "ir_override": None},
            [0.5, 0.4, 0.75],
        ],
        [
            {"kwargs": {"BLOCK_M": 256}, "num_warps": 8, "num_ctas": 1, "num_stages": 5,
             "maxnreg": None, "pre_hook": None, "ir_override": None},
            [float("inf")] * 3,
        ],
    ],
}  # fmt: skip
ABOUT = About("a_kernel", "NVIDIA A100", {"n": 64})


def parsed(values: Any, name: str = "matmul.autotune.json", **about: Any) -> list[Foreign]:
    return read(name, json.dumps(values).encode(), About(**about))


def test_kernel_tuners_cache_is_read() -> None:
    good, bad = parsed(KERNEL_TUNER)
    assert (good.tuner, good.kernel, good.device) == (
        "kernel_tuner", "convolution_kernel", "NVIDIA A100",
    )  # fmt: skip
    assert (good.sizes, good.ms) == ({"0": 4096, "1": 2048}, 1.5)
    assert good.parameters == {"block_size_x": 16, "use_padding": 0}
    assert (bad.invalidity, bad.samples) == ("compile", ())


def test_a_cache_that_is_still_written_is_read() -> None:
    """Kernel Tuner ends the file when it is done, and else leaves a comma."""
    text = json.dumps(KERNEL_TUNER)[:-2] + ","
    assert len(read("x", text.encode(), About())) == 2
    of_text = KERNEL_TUNER | {"problem_size": "n * m"}
    assert parsed(of_text)[0].words == ("n * m",)


def test_t4_is_read_with_what_it_does_not_say() -> None:
    with pytest.raises(ImportFileError, match="T4 names no kernel"):
        parsed(T4)
    good, bad = read("x", json.dumps(T4).encode(), ABOUT)
    assert (good.kernel, good.device, good.sizes, good.ms) == (
        "a_kernel", "NVIDIA A100", {"n": 64}, 1.25,
    )  # fmt: skip
    assert bad.invalidity == "constraints"


@pytest.mark.parametrize("values", [CLBLAST, DATABASE], ids=["tuner", "database"])
def test_clblasts_files_are_read(values: Any) -> None:
    first, second = parsed(values)
    assert (first.kernel, first.device, first.ms) == ("Xgemm", "Mali-G52", 1.25)
    assert first.sizes == {"arg_m": 1024, "arg_n": 1024, "arg_k": 512}
    assert "precision=32" in first.words
    assert second.parameters == {"KWG": 32, "MWG": 64}


def test_tritons_cache_is_read() -> None:
    good, bad = parsed(TRITON, device="NVIDIA A100")
    assert (good.kernel, good.sizes, good.words) == (
        "matmul", {"0": 1024, "1": 512}, ("torch.float16",),
    )  # fmt: skip
    assert good.parameters == {"BLOCK_M": 64, "num_warps": 8, "num_ctas": 1, "num_stages": 3}
    assert (good.ms, bad.invalidity) == (0.5, "compile")


@pytest.mark.parametrize(
    ("kind", "values", "about"),
    [
        ("kernel_tuner", KERNEL_TUNER, {}),
        ("t4", T4, {"kernel": "a_kernel"}),
        ("clblast", CLBLAST, {}),
        ("triton", TRITON, {}),
    ],
)
def test_what_is_written_is_read_as_the_same(kind: str, values: Any, about: Any) -> None:
    found = parsed(values, **about)
    again = parsed(WRITERS[kind](found), **about)
    assert again == found


def test_our_fields_are_those_of_the_formats() -> None:
    """What is written has the fields that the other tuner's own file has."""
    for kind, values in (("kernel_tuner", KERNEL_TUNER), ("triton", TRITON)):
        written = WRITERS[kind](parsed(values))
        assert written.keys() == values.keys()
    rows = WRITERS["triton"](parsed(TRITON))["configs_timings"]
    assert rows[0] == TRITON["configs_timings"][0]
    assert WRITERS["clblast"](parsed(CLBLAST))["results"] == CLBLAST["results"][:2]
    required = {"time", "compile_time", "verification_time", "benchmark_time", "strategy_time"}
    cache = WRITERS["kernel_tuner"](parsed(KERNEL_TUNER))["cache"]
    assert all(required | {"framework_time", "timestamp"} <= row.keys() for row in cache.values())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cache": {}}, "is of no tuner that is known"),
        ({"sections": [{"results": []}]}, "KeyError"),
        (KERNEL_TUNER | {"device_name": "a\nb"}, "device is"),
        (KERNEL_TUNER | {"problem_size": [-1]}, "sizes"),
        (TRITON | {"configs_timings": [[{"kwargs": {"A": [1]}}, 1.0]]}, "parameters"),
        (TRITON | {"configs_timings": [[{"kwargs": {}}, -1.0]]}, "samples"),
    ],
)
def test_a_file_that_cannot_be_is_refused(values: Any, said: str) -> None:
    with pytest.raises(ImportFileError, match=said):
        parsed(values)
    with pytest.raises(ImportFileError, match="no JSON object"):
        read("x", b"[1]", About())


def test_kernels_are_kept_once_and_a_batch_is_taken_back(store: Store) -> None:
    found = [*parsed(KERNEL_TUNER), *parsed(TRITON)]
    assert keep(store, found, "push by alice") == 4
    assert keep(store, found, "push by bob") == 0
    assert select_kernels(store, tuner="triton") == parsed(TRITON)
    later, first = list_batches(store.database)
    assert (first.origin, first.records, later.records) == ("push by alice", 4, 0)
    assert undo(store, first.id) == 4
    assert select_kernels(store) == []


def test_the_nearest_is_found_whenever_it_came(store: Store) -> None:
    (base, _) = parsed(KERNEL_TUNER)
    keep(store, [replace(base, sizes={"0": 1, "1": 1})], "import")
    with store.database.writing() as connection:
        (row,) = connection.execute(select(ForeignRow.__table__)).mappings()
        copied = {name: value for name, value in row.items() if name != "id"}
        rows = [copied | {"digest": f"copy {number}"} for number in range(20_000)]
        connection.execute(insert(ForeignRow), rows)
    keep(store, [base], "import")
    found = nearest(store, base.kernel, base.sizes)
    assert [one.foreign.sizes for one in found] == [base.sizes, {"0": 1, "1": 1}]
    assert nearest(store, base.kernel, base.sizes, most=1) == found[:1]


def test_names_of_sizes_and_parameters_can_be_shown() -> None:
    (base, _) = parsed(KERNEL_TUNER)
    for name in ("\x1b[2J", "two\nlines", ""):
        with pytest.raises(ImportFileError):
            replace(base, sizes={name: 1})
        with pytest.raises(ImportFileError):
            replace(base, parameters={name: 1})


def test_the_nearest_sizes_come_first_and_other_problems_never(store: Store) -> None:
    (base, _) = parsed(KERNEL_TUNER)
    sizes = [{"0": 1024, "1": 1024}, {"0": 4096, "1": 4096}, {"0": 64, "1": 64}]
    slow = replace(base, sizes=sizes[0], samples=(9.0,), parameters={"block_size_x": 8})
    kept = [replace(base, sizes=each) for each in sizes]
    apart = [replace(base, words=("half",)), replace(base, sizes={"n": 1024})]
    elsewhere = replace(base, sizes=sizes[0], device="Another", samples=(0.1,))
    keep(store, [slow, *kept, *apart, elsewhere], "import")
    found = nearest(store, base.kernel, {"0": 2048, "1": 1024}, device="NVIDIA A100")
    assert [(one.foreign.device, one.distance) for one in found] == [
        ("NVIDIA A100", 1.0), ("NVIDIA A100", 3.0), ("NVIDIA A100", 9.0), ("Another", 1.0),
    ]  # fmt: skip
    assert found[0].foreign.parameters == base.parameters  # the faster of two
    assert nearest(store, "no such kernel", {"0": 1}) == []
    assert nearest(store, base.kernel, sizes[0], source="ab") != []  # those of unknown source
    keep(store, [replace(base, sizes=sizes[0], samples=(0.5,), source="cd")], "import")
    fastest = {"": 0.5, "cd": 0.5, "ab": base.ms}
    for source, ms in fastest.items():
        near = nearest(store, base.kernel, sizes[0], device="NVIDIA A100", source=source)
        assert near[0].foreign.ms == ms
