"""The ladder: which record serves a problem, rung by rung, and what is left out."""

from __future__ import annotations

import io
import timeit
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oclgen import profiles
from oclgen.families import FAMILIES, ConfigError
from oclgen.families.gemm import gemm_register
from oclgen.keys import parse_conv, parse_gemm
from oclgen.limits import Limits
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from tests.tuned_db.shelves import Shelf, chooser, with_item_m
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE, config, record, timed, variant
from tuned_db import Chooser, NoVariantError, Record, open_store, read_records, write_records
from tuned_db.choosing.option import GUESSES, TRUST

pytestmark = pytest.mark.usefixtures("shipped", "alike")

NEW_DRIVER = replace(INFO, driver_version="9.9")
SIBLING = replace(INFO, name="Imaginary GPU Mini", compute_units=2)
COUSIN = replace(SIBLING, architecture="imaginary 2")
STRANGER = replace(INFO, name="Imaginary CPU", kind="cpu", architecture="imaginary cpu")


def expect(monkeypatch: pytest.MonkeyPatch, ms: dict[str, float]) -> None:
    """Let the model expect these times of families' variants, and a second of all others."""

    def times(_: Problem, variants: list[Variant], __: Limits) -> list[float]:
        return [ms.get(one.family, 1000.0) for one in variants]

    monkeypatch.setattr("tuned_db.choosing.chooser.predict", times)


BOUNDS = TRUST[LIMITS.kind]


@pytest.mark.parametrize(
    ("apart", "bound"),
    [(1, BOUNDS.alike_here), (8, BOUNDS.near_here), (64, 1.0)],
    ids=["another epilogue", "near", "far"],
)
@pytest.mark.parametrize("serves", [True, False])
def test_a_record_serves_another_problem_unless_the_model_knows_better(
    monkeypatch: pytest.MonkeyPatch, apart: int, bound: float, serves: bool
) -> None:
    times_as_slow = bound * (0.97 if serves else 1.03)
    expect(monkeypatch, {"gemm_register": times_as_slow, "gemm_staged": 1.0})
    known = chooser(with_item_m(3, GemmProblem(64, 64, 64 * apart)))
    choice = known.choose(replace(SQUARE, bias="n"))
    assert choice.rung == ("nearest" if serves else "guess")
    assert choice.variant.family == ("gemm_register" if serves else "gemm_staged")
    assert choice.predicted_ms == (times_as_slow if serves else 1.0)


@pytest.mark.parametrize("origin", ["architecture", "shipped"])
@pytest.mark.parametrize("serves", [True, False])
@pytest.mark.parametrize("asked", [SQUARE, replace(SQUARE, bias="n")])
def test_a_related_devices_record_is_evidence_and_no_rank(
    monkeypatch: pytest.MonkeyPatch,
    shipped: list[Record],
    origin: str,
    serves: bool,
    asked: GemmProblem,
) -> None:
    """Nor is one of this very problem: it was the fastest of another device, or of more cores."""
    times_as_slow = BOUNDS.alike_there * (0.97 if serves else 1.03)
    expect(monkeypatch, {"gemm_register": times_as_slow, "gemm_staged": 1.0})
    known = with_item_m(3, device=SIBLING)
    shipped[:] = [known] if origin == "shipped" else []
    choice = chooser(*([] if shipped else [known])).choose(asked)
    assert choice.rung == (origin if serves else "guess")
    assert choice.predicted_ms == (times_as_slow if serves else 1.0)


def test_of_two_records_of_a_problem_the_one_serves_that_is_expected_to_be_faster(
    monkeypatch: pytest.MonkeyPatch, shipped: list[Record]
) -> None:
    def times(_: Problem, variants: list[Variant], __: Limits) -> list[float]:
        return [{1: 1.1, 2: 1.0}.get(getattr(one.config, "item_m", 0), 9.0) for one in variants]

    monkeypatch.setattr("tuned_db.choosing.chooser.predict", times)
    shipped[:] = [with_item_m(2, device=replace(SIBLING, runtime="Another OpenCL"))]
    choice = chooser(with_item_m(1, device=SIBLING)).choose(SQUARE)
    assert choice.variant.config.item_m == 2


def test_what_was_measured_here_serves_whatever_the_model_expects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expect(monkeypatch, {"gemm_staged": 1.0})
    choice = chooser(record()).choose(SQUARE)
    assert (choice.rung, choice.cost) == ("exact", 0.0)


def test_of_two_predicted_choices_the_faster_is_known_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expect(monkeypatch, {"gemm_staged": 1.0})
    slow = chooser().choose(SQUARE)
    expect(monkeypatch, {"gemm_staged": 0.5})
    fast = chooser().choose(SQUARE)
    measured = chooser(record()).choose(SQUARE)
    assert measured.order < fast.order < slow.order


def test_nothing_known_is_a_familys_guess() -> None:
    choice = Chooser(None, INFO, LIMITS).choose(SQUARE)
    assert (choice.rung, choice.ms, choice.source_key) == ("guess", None, "")
    assert choice.variant.config.why_not(SQUARE, LIMITS) is None


def test_every_rung_serves_where_the_ones_above_are_missing(shipped: list[Record]) -> None:
    alike, near = replace(SQUARE, bias="n"), GemmProblem(64, 64, 1024)
    ladder = [
        ("exact", with_item_m(1)),
        ("stale", with_item_m(2, device=NEW_DRIVER)),
        ("nearest", with_item_m(3, alike, device=NEW_DRIVER)),
        ("architecture", with_item_m(4, device=SIBLING)),
        ("architecture", with_item_m(5, alike, device=SIBLING)),
        ("shipped", with_item_m(6, device=SIBLING)),
        ("shipped", with_item_m(7, alike, device=SIBLING)),
        ("nearest", with_item_m(8, near)),
        ("architecture", with_item_m(9, near, device=SIBLING)),
        ("shipped", with_item_m(10, near, device=SIBLING)),
    ]
    last_step = 0
    for start, (rung, want) in enumerate(ladder):
        rest = ladder[start:]
        shipped[:] = [one for rung_of_one, one in rest if rung_of_one == "shipped"]
        known = [one for rung_of_one, one in rest if rung_of_one != "shipped"]
        got = chooser(*known).choose(SQUARE)
        assert (got.rung, got.source_key) == (rung, want.problem)
        assert got.variant.config.item_m == start + 1
        assert got.step >= last_step
        last_step = got.step
    shipped[:] = [with_item_m(12, device=STRANGER)]
    assert chooser().choose(SQUARE).rung == "guess"


def test_an_unrelated_devices_record_serves_where_the_model_expects_most_of_it(
    monkeypatch: pytest.MonkeyPatch, shipped: list[Record]
) -> None:
    shipped[:] = [with_item_m(3, device=COUSIN)]
    assert chooser().choose(SQUARE).rung == "guess"
    expect(monkeypatch, {"gemm_register": 1.0})
    monkeypatch.setattr("tuned_db.choosing.option.GUESSES", dict.fromkeys(GUESSES, 0))
    choice = chooser().choose(SQUARE)
    assert (choice.rung, choice.variant.config.item_m) == ("shipped", 3)


def test_another_runtime_s_faster_record_is_the_second_best(shipped: list[Record]) -> None:
    """It was compiled by another compiler: neither its time nor its rank hold here."""
    stranger = replace(SIBLING, runtime="Another OpenCL")
    shipped[:] = [
        replace(with_item_m(1, device=stranger), samples=(0.1,)),
        replace(with_item_m(2, device=SIBLING), samples=(9.0,)),
    ]
    choices = chooser().candidates(SQUARE)
    assert [next(choices).variant.config.item_m for _ in shipped] == [2, 1]


def test_of_two_problems_the_better_known_stands_higher(shipped: list[Record]) -> None:
    shipped[:] = [with_item_m(1, device=SIBLING)]
    own, far = SQUARE, GemmProblem(64, 64, 64 * 2**5)
    choices = [chooser().choose(problem) for problem in (own, far)]
    assert [one.rung for one in choices] == ["shipped", "shipped"]
    assert choices[0].step < choices[1].step


def test_the_time_is_told_only_where_this_device_ran_this_problem() -> None:
    assert chooser(record()).choose(SQUARE).ms == 1.25
    assert chooser(record(device=NEW_DRIVER)).choose(SQUARE).ms == 1.25
    assert chooser(record(device=SIBLING)).choose(SQUARE).ms is None
    assert chooser(record(GemmProblem(64, 64, 65))).choose(SQUARE).ms is None


@pytest.mark.parametrize("same", ["generator", "driver"])
def test_among_stale_records_this_generator_comes_first_and_then_the_faster(same: str) -> None:
    older = with_item_m(1, generator="0", samples=(0.5,))
    slow = with_item_m(2, device=NEW_DRIVER, samples=(3.0,))
    fast = with_item_m(3, device=replace(INFO, driver_version="0.1"), samples=(2.0,))
    records = [older, slow, fast] if same == "generator" else [older]
    choice = chooser(*records).choose(SQUARE)
    assert choice.rung == "stale"
    assert choice.variant.config.item_m == (3 if same == "generator" else 1)


@pytest.mark.parametrize(
    ("wanted", "nearer", "farther"),
    [
        ("100x100x100", "128x128x128", "256x100x100"),
        ("64x64x64", "64x64x64:nn", "4096x64x64"),
        ("1x4096x4096", "1x1000x2048", "4096x4096x4096"),
        ("64x64x64", "32x64x64", "64x64x256"),
    ],
)
def test_the_nearest_product(wanted: str, nearer: str, farther: str) -> None:
    far = with_item_m(1, parse_gemm(farther), samples=(0.001,))
    near = with_item_m(2, parse_gemm(nearer))
    got = chooser(far, near).choose(replace(parse_gemm(wanted), bias="n"))
    assert got.variant.config.item_m == 2


@pytest.mark.parametrize("other", ["64x64x64:fp16", "64x64x64:nt", "64x64x64:tn"])
def test_other_dtypes_and_transposes_are_never_near(other: str) -> None:
    assert chooser(record(parse_gemm(other))).choose(SQUARE).rung == "guess"


def conv_record(text: str, **changes: Any) -> Record:
    values = Variant("conv_gemm", conv_default()).to_json()
    return record(parse_conv(text), family="conv_gemm", config=values, **changes)


def conv_default() -> Any:
    from oclgen.families import FAMILIES

    return FAMILIES["conv_gemm"].DEFAULT


@pytest.mark.parametrize(
    ("wanted", "served"),
    [
        ("8,64,56,56,64,5,5,1,2", "8,64,56,56,64,7,7,1,3"),
        ("8,64,56,56,64,3,3,2,1", "8,64,56,56,64,7,7,2,3"),
        ("8,64,56,56,64,3,3,1,1", "1,32,28,28,16,3,3,1,0"),
        ("8,64,56,56,64,1,1", "8,256,14,14,64,1,1"),
        ("8,64,56,56,64,3,3,1,1,1,4", "8,32,56,56,64,3,3,1,1,1,2"),
    ],
)
def test_convolutions_of_one_kind_serve_each_other(wanted: str, served: str) -> None:
    choice = chooser(conv_record(served)).choose(parse_conv(wanted))
    assert (choice.rung, choice.source_key) == ("nearest", parse_conv(served).key())


@pytest.mark.parametrize(
    "other",
    [
        "8,64,56,56,64,3,3,1,1:bwd_data",
        "8,64,56,56,64,3,3,1,1:fp16",
        "8,64,56,56,64,1,1",
        "8,64,56,56,64,3,3,2,1",
        "8,64,56,56,64,3,3,1,1,1,64",
        "8,64,56,56,64,3,3,1,1,1,2",
    ],
)
def test_convolutions_of_other_kinds_do_not(other: str) -> None:
    choice = chooser(conv_record(other)).choose(parse_conv("8,64,56,56,64,3,3,1,1"))
    assert choice.rung == "guess"


def test_a_config_that_does_not_fit_this_device_is_stepped_over() -> None:
    large = config(local_m=16, local_n=16)
    small = Limits(kind="gpu", max_work_group=64)
    assert large.why_not(SQUARE, small)
    known = record(config=Variant(gemm_register.NAME, large).to_json())
    assert Chooser(Shelf(known), INFO, LIMITS).choose(SQUARE).variant.config == large
    assert Chooser(Shelf(known), INFO, small).choose(SQUARE).rung == "guess"


@pytest.mark.parametrize("profile", profiles.names())
def test_what_was_measured_under_a_profile_serves_no_real_device(profile: str) -> None:
    """Nor does a real device's record serve as the profile's own."""
    taken = profiles.load(profile).info(INFO)
    real = replace(taken, name="Apple M1", architecture="apple apple m1", driver_version="1.2")
    for one, other in ((taken, INFO), (taken, real), (INFO, taken)):
        served = Chooser(Shelf(replace(record(), device=one)), other, LIMITS).choose(SQUARE)
        assert served.rung in ("guess", "default")


def test_records_that_no_longer_parse_are_counted_and_stepped_over(shipped: list[Record]) -> None:
    shipped[:] = [record(family="gone")]
    alien = record(config='{"tile":8}', generator="0")
    unreadable = record("gemm:1x1:of-the-future", generator="99")
    got = chooser(alien, unreadable, with_item_m(2))
    assert got.choose(SQUARE).variant.config.item_m == 2
    assert len(got.skipped) == 3
    assert "unknown parameters ['tile']" in got.skipped[0]
    assert "of generator 99" in got.skipped[1]
    assert "family 'gone' is unknown" in got.skipped[2]


def test_a_rejected_variant_gives_way_to_the_next_rung() -> None:
    got = chooser(with_item_m(1), with_item_m(2, GemmProblem(64, 64, 128)))
    first = got.choose(SQUARE)
    second = got.reject(first)
    assert (first.rung, second.rung) == ("exact", "nearest")
    assert got.choose(SQUARE) is second
    choice = got.reject(second)
    assert choice.rung == "guess"
    with pytest.raises(NoVariantError, match=r"nothing computes gemm:64x64x64.* failed here"):
        for _ in range(100):
            choice = got.reject(choice)


def test_an_export_taken_into_an_empty_database_gives_the_same_choices(tmp_path: Path) -> None:
    store, export = open_store(tmp_path / "one.sqlite"), io.BytesIO()
    for item_m, size in enumerate((64, 100, 7), start=1):
        problem = GemmProblem(size, size, size)
        store.of(INFO).record(problem, variant(item_m=item_m), timed(1.0))
        store.of(SIBLING).record(problem, variant(item_m=9), timed(1.0))
    write_records(store.all_winners(), export)
    export.seek(0)
    again = open_store(tmp_path / "two.sqlite")
    again.merge(read_records("export", export))
    before, after = Chooser(store, INFO, LIMITS), Chooser(again, INFO, LIMITS)
    for size in (64, 100, 7, 8, 70, 4096):
        problem = GemmProblem(size, size, size)
        assert after.choose(problem) == replace(before.choose(problem), verified=False)
    assert after.choose(GemmProblem(7, 7, 7)).variant.config.item_m == 3


def test_choices_are_remembered_until_refresh() -> None:
    shelf = Shelf()
    got = Chooser(shelf, INFO, LIMITS)
    default = got.choose(SQUARE)
    shelf.records.append(with_item_m(2))
    assert got.choose(GemmProblem(64, 64, 64)) is default
    assert shelf.reads == 1
    got.refresh()
    assert got.choose(SQUARE).rung == "exact"


def test_starts_are_the_first_guess_and_the_best_records_without_repetition() -> None:
    near = GemmProblem(64, 64, 128)
    got = chooser(with_item_m(1), with_item_m(1, near), with_item_m(2, near, device=SIBLING))
    known = [variant(item_m=1), variant(item_m=2)]
    guess = next(one.variant for one in chooser().candidates(SQUARE) if one.rung == "guess")
    assert guess not in known
    assert got.starts(SQUARE) == [guess, *known]
    assert got.starts(SQUARE, count=1) == [guess, *known[:1]]
    assert chooser().starts(SQUARE) == [guess]


def test_starts_know_what_was_tuned_meanwhile() -> None:
    shelf = Shelf()
    got = Chooser(shelf, INFO, LIMITS)
    shelf.records.append(with_item_m(2, GemmProblem(64, 64, 128)))
    assert got.starts(SQUARE)[1:] == [variant(item_m=2)]


def test_a_remembered_choice_costs_a_dictionary_lookup() -> None:
    got = chooser(record())
    got.choose(SQUARE)
    again = GemmProblem(64, 64, 64)
    once = {SQUARE: None}
    ours = min(timeit.repeat(lambda: got.choose(again), number=2000, repeat=9))
    lookup = min(timeit.repeat(lambda: once[again], number=2000, repeat=9))
    assert ours < 3 * lookup


def test_configs_are_read_back_strictly() -> None:
    with pytest.raises(ConfigError, match="item_m='x'"):
        Variant.from_values(gemm_register.NAME, {**vars_of(config()), "item_m": "x"})


def vars_of(one: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(one)


def test_a_bound_on_errors_steps_over_variants(shipped: list[Record]) -> None:
    problem = parse_conv("2,8,12,12,8,3,3,1,1")
    direct, winograd = FAMILIES["conv_gemm"], FAMILIES["winograd_staged"]
    coarse = record(
        problem,
        family=winograd.NAME,
        config=Variant(winograd.NAME, winograd.DEFAULT).to_json(),
        error=4e-6,
        samples=(1.0,),
    )
    fine = record(
        problem,
        family=direct.NAME,
        config=Variant(direct.NAME, direct.DEFAULT).to_json(),
        error=5e-7,
        samples=(2.0,),
    )
    shipped.append(replace(fine, samples=(2.0,)))
    made = chooser(coarse)
    assert made.choose(problem).variant.family == "winograd_staged"
    made.bound_conv_error(1e-6)
    assert made.choose(problem).variant.family == "conv_gemm"
    made.bound_conv_error(1e-8)
    nothing_known = made.choose(problem)
    assert nothing_known.rung == "guess"
    assert not nothing_known.variant.family.startswith("winograd")
    assert made.choose(SQUARE).rung == "guess"  # products are not bounded
    made.bound_conv_error(None)
    assert made.choose(problem).variant.family == "winograd_staged"
