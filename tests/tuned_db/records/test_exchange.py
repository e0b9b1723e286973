"""Export and import: the same bytes again, and every bad line refused by its number."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oclgen import GENERATOR_VERSION
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import INFO, SQUARE, record, timed, variant
from tuned_db import ImportFileError, Record, RecordError, open_store, read_records, write_records
from tuned_db.records.digests import digest_of, with_digests
from tuned_db.records.exchange import LINE_LIMIT, SCHEMA_LINE
from tuned_db.records.shipped import shipped_records


def export(records: list[Record]) -> bytes:
    stream = io.BytesIO()
    assert write_records(records, stream) == len(records)
    return stream.getvalue()


def lines(*records: Record) -> list[dict[str, Any]]:
    return [json.loads(one.to_line()) for one in records]


def read(*after_schema: Any) -> list[Record]:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in after_schema]
    return read_records("file.jsonl", io.BytesIO("\n".join([SCHEMA_LINE, *texts]).encode()))


def test_export_import_export_gives_the_same_bytes(tmp_path: Path) -> None:
    store = open_store(tmp_path / "one.sqlite")
    mine, other = store.of(INFO), store.of(replace(INFO, name="Another", driver_version="ü 2"))
    for size in (64, 7, 1000):
        mine.record(GemmProblem(size, 3, 5), variant(), timed(1 / 3, 0.1, 0.123456789))
        mine.record(GemmProblem(size, 3, 5), variant(item_m=2), timed(2.0))
        other.record(GemmProblem(size, 3, 5), variant(), timed(1.0))
    first = export(store.all_winners())
    assert first.count(b"\n") == 7
    again = open_store(tmp_path / "two.sqlite")
    assert again.merge(read_records("x", io.BytesIO(first))).improved == 6
    assert export(again.all_winners()) == first
    assert again.merge(read_records("x", io.BytesIO(first))).improved == 0
    assert export(again.all_winners()) == first
    assert again.of(INFO).trials(GemmProblem(7, 3, 5)) == 0  # they were made elsewhere


def test_caches_seed_conditions_and_digest_travel(tmp_path: Path) -> None:
    conditions = {"mhz_before": 1980.0, "celsius_after": 45.5}
    measured = Measurement((9.0, 9.5), error=1e-7, seed=11, cache="cold", conditions=conditions)
    store, other = open_store(tmp_path / "one.sqlite"), open_store(tmp_path / "two.sqlite")
    store.of(INFO, "cold").record(SQUARE, variant(), measured)
    other.merge(read_records("x", io.BytesIO(export(store.all_winners()))))
    (sent,), (kept,) = store.all_winners(), other.all_winners()
    assert kept == sent
    assert (kept.cache, kept.seed, kept.conditions) == ("cold", 11, conditions)
    assert kept.digest == digest_of(SQUARE, variant())
    assert other.of(INFO).winner(SQUARE) is None
    assert other.of(INFO, "cold").winner(SQUARE) == kept


def test_joined_files_are_one() -> None:
    """The pages of a service, one after the other, are joined so."""
    first, second = record(), record(GemmProblem(1, 2, 3))
    joined = export([first]) + export([second])
    assert read_records("x", io.BytesIO(joined)) == [first, second]
    newer = joined + SCHEMA_LINE.replace("4", "5").encode()
    with pytest.raises(ImportFileError, match=r"line 5: the file has schema 5"):
        read_records("x", io.BytesIO(newer))


@pytest.mark.parametrize(("schema", "later"), [(1, 6), (2, 5), (3, 1)])
def test_older_files_are_read(schema: int, later: int) -> None:
    (line,) = lines(record(digest=None, peak=(2.0, 1.0)))
    for name in ("peaks", "digest", "conditions", "seed", "cache", "peak")[:later]:
        del line[name]
    text = f'{{"format":"oclgen records","schema":{schema}}}\n{json.dumps(line)}'
    (one,) = read_records("old", io.BytesIO(text.encode()))
    assert one == record(digest=None)
    assert one.peak == (None if schema == 1 else (2.0, 1.0))
    assert with_digests([one]) == [record()]
    alien = replace(one, generator="2")
    assert with_digests([alien]) == [alien]


def test_the_order_of_lines_does_not_depend_on_the_order_of_records() -> None:
    records = [record(GemmProblem(size, 1, 1)) for size in (3, 1, 2)]
    records.append(record(device=replace(INFO, name="A")))
    assert export(records) == export(records[::-1])


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=5),
    st.none() | st.floats(0, 1),
    st.integers(0, 2**31 - 1),
    st.text(
        st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="\u2028"), max_size=9
    ),
)
def test_a_line_gives_the_record_back(
    samples: list[float], error: float | None, trials: int, name: str
) -> None:
    try:
        device = replace(INFO, name=name)
        one = record(samples=tuple(samples), error=error, trials=trials, device=device)
    except RecordError:
        assert not name.isprintable()
        return
    assert Record.from_line(one.to_line()) == one
    assert "\n" not in one.to_line()


@pytest.mark.parametrize("generator", ["77", GENERATOR_VERSION])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"problem": "gemm:1x2"}, "'gemm:1x2' is no problem key"),
        ({"problem": "gemm:1x2x3:fp99:nn:b1:-:-:none"}, "dtype 'fp99' is unknown"),
        ({"family": "wgmma_of_2031"}, "family 'wgmma_of_2031' is unknown"),
        ({"config": '{"tile":8}'}, "unknown parameters ['tile']"),
    ],
)
def test_what_no_family_reads_is_kept_and_says_why(
    change: dict[str, str], why: str, generator: str
) -> None:
    """The number does not tell what can be read: families come and go under one."""
    alien = record(**change, generator=generator)
    assert read(*lines(alien)) == [alien]
    assert why in (alien.why_unreadable() or "")
    assert record().why_unreadable() is None


DEEP = "[" * 100_000 + "]" * 100_000

BAD_LINES: list[tuple[Any, str]] = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("[]", "a JSON list instead of an object"),
    ("3", "a JSON int instead of an object"),
    (DEEP[: LINE_LIMIT - 1], "not JSON"),
    ('{"a":' * 9000 + "1" + "}" * 9000, "not JSON"),
    ("x" * (LINE_LIMIT + 10), f"longer than {LINE_LIMIT} bytes"),
    ({"problem": "x"}, "missing ['config', 'created', 'device'"),
    ({"extra": 1}, "unknown fields ['extra']"),
    ({"problem": 7}, "problem is 7: input should be a valid string"),
    ({"family": ["gemm"]}, "family is"),
    ({"config": 3}, "config is 3: input should be a valid dictionary"),
    ({"config": {"item_m": [1]}}, "config item_m is [1]: a number of 32 bits, a switch or a word"),
    ({"config": {"item_m": 1.5}}, "config item_m is 1.5"),
    ({"samples": []}, "samples is (): tuple should have at least 1 item"),
    ({"samples": 1.5}, "samples is 1.5"),
    ({"samples": ["fast"]}, "samples[0] is 'fast'"),
    ({"samples": [True]}, "samples[0] is True"),
    ({"samples": [-1]}, "samples[0] is -1"),
    ({"samples": [0.0]}, "samples[0] is 0.0: input should be greater than or equal to 0.000001"),
    ({"samples": [1.0] * 10_001}, "samples"),
    ({"peak": [0, 0]}, "peak[0] is 0"),
    ({"peak": [1.0]}, "peak"),
    ({"peaks": {"bf16": 0}}, "peaks bf16 is 0"),
    ({"peaks": {"fp8": 1.0}}, "peaks fp8"),
    ({"cache": "tepid"}, "cache is 'tepid'"),
    ({"seed": -1}, "seed is -1"),
    ({"conditions": {"mhz_before": "fast"}}, "conditions mhz_before is 'fast'"),
    ({"digest": "0" * 15}, "digest is '000000000000000'"),
    ({"origin": "import"}, "unknown fields ['origin']"),
    ({"error": "small"}, "error is 'small'"),
    ({"trials": -1}, "trials is -1"),
    ({"trials": 1.0}, "trials is 1.0"),
    ({"trials": 2**31}, "trials is 2147483648"),
    ({"device": "GPU"}, "device is 'GPU': input should be a valid dictionary"),
    ({"device": {}}, "device: unknown fields [], missing ['architecture'"),
    ({"device": {"serial": 1}}, "device: unknown fields ['serial']"),
    ({"device": {"compute_units": "8"}}, "device compute_units is '8'"),
    ({"device": {"kind": "tpu"}}, "device kind is 'tpu'"),
    ({"device": {"name": "a\nb"}}, "device name is 'a\\nb'"),
    ({"device": {"vendor": "v" * 1000}}, "device vendor is 'vvv"),
    ({"created": "yesterday"}, "created is 'yesterday'"),
    ({"created": "9999-99-99T99:99:99Z"}, "it is UTC in ISO 8601"),
    ({"generator": None}, "generator is None"),
]


def damaged(change: dict[str, Any]) -> dict[str, Any]:
    (good,) = lines(record())
    if list(change) == ["problem"] and change["problem"] == "x":
        return change
    for name, value in change.items():
        if name == "device" and isinstance(value, dict) and value:
            value = good["device"] | value
        good[name] = value
    return good


@pytest.mark.parametrize(("bad", "message"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_bad_line_is_named_by_its_number(bad: Any, message: str) -> None:
    line = bad if isinstance(bad, str) else damaged(bad)
    with pytest.raises(ImportFileError) as caught:
        read(*lines(record(), record()), line, *lines(record()))
    assert str(caught.value).startswith("file.jsonl, line 4: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted(Record.__dataclass_fields__)), JSON)
def test_any_value_in_any_field_is_taken_or_named(field: str, value: Any) -> None:
    (line,) = lines(record())
    try:
        (one,) = read(line | {field: value})
    except ImportFileError as error:
        assert str(error).startswith("file.jsonl, line 2: ")
    else:
        assert Record.from_line(one.to_line()) == one


@given(st.binary(min_size=1, max_size=3), st.integers(0, 10**6))
def test_any_bytes_in_any_place_are_taken_or_named(noise: bytes, place: int) -> None:
    content = export([record(), record(GemmProblem(1, 2, 3))])
    place %= len(content)
    try:
        read_records("f", io.BytesIO(content[:place] + noise + content[place + len(noise) :]))
    except ImportFileError as error:
        assert str(error).startswith("f, line ")


def test_numbers_that_json_does_not_know_are_refused() -> None:
    line = record().to_line().replace("1.25", "NaN")
    with pytest.raises(ImportFileError, match="line 2: not JSON: NaN is no number"):
        read(line)
    with pytest.raises(ImportFileError, match=r"line 2: samples\[1\] is inf"):
        read(record().to_line().replace("1.25", "1e999"))
    with pytest.raises(ImportFileError, match="line 2: not JSON"):
        read(record().to_line().replace("1.25", "1" * 5000))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"", "line 1: this is no export of oclgen"),
        (b"\n", "line 1: this is no export of oclgen"),
        (b"PNG\x89\xff", "line 1: not UTF-8"),
        (b'{"format":"something else","schema":1}', "line 1: this is no export of oclgen"),
        (b'{"format":"oclgen records","schema":9}', "has schema 9, this version of oclgen reads"),
    ],
)
def test_files_that_are_no_export(start: bytes, message: str) -> None:
    with pytest.raises(ImportFileError) as caught:
        read_records("file", io.BytesIO(start))
    assert message in str(caught.value)


def test_a_record_says_nothing_of_people_or_machines() -> None:
    (line,) = lines(record())
    assert set(line) == {
        "problem", "family", "config", "samples", "error", "trials", "device", "generator",
        "created", "version", "peak", "cache", "seed", "conditions", "digest", "peaks",
    }  # fmt: skip
    assert set(line["device"]) == set(INFO.__dataclass_fields__)


def test_shipped_records_are_well_formed_and_sorted() -> None:
    records = list(shipped_records())
    assert {one.why_unreadable() for one in records} == {None}
    assert len({one.order for one in records}) == len(records)


def test_shipped_files_are_read_in_order_and_never_stop_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shipped"
    folder.mkdir()
    removed = record(family="removed_since")
    (folder / "b.jsonl").write_bytes(export([removed]))
    (folder / "a.jsonl").write_bytes(export([record()]))
    (folder / "README").write_text("no records")
    monkeypatch.setattr("tuned_db.records.shipped.resources.files", lambda _: tmp_path)
    shipped_records.cache_clear()
    try:
        assert shipped_records() == (record(), removed)
    finally:
        shipped_records.cache_clear()


def test_merging_keeps_the_faster_and_the_larger_count(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db.sqlite")
    store.merge([record(samples=(2.0,), trials=5)])
    slower = record(samples=(3.0,), trials=9, created="2026-01-02T03:04:06Z")
    assert store.merge([slower]).kept == 1
    assert store.all_winners() == [record(samples=(2.0,), trials=9)]
    faster = record(samples=(1.0,), trials=1, created="2026-01-02T03:04:07Z")
    assert store.merge([faster]).improved == 1
    assert store.all_winners() == [replace(faster, trials=9)]
    assert store.of(INFO).measured(SQUARE) == {}
    assert {one.config for one in store.history()} == {faster.config}
