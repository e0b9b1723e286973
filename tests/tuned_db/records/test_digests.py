"""A record is known by its kernels' text: what happens to it when a family's text changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from oclgen import GENERATOR_VERSION
from oclgen.families import FAMILIES
from oclgen.family import BaseConfig
from oclgen.parameters import Unroll
from oclgen.plan import Launch, Needs, Plan
from oclgen.problem import Problem
from oclgen.variant import Variant
from tests.tuned_db.shelves import chooser
from tests.tuned_db.tuned_samples import SQUARE, record, variant
from tuned_db import Record
from tuned_db.records import digests
from tuned_db.records.digests import UNDIGESTED, digest_of, is_of_today, with_digests
from tuned_db.views.compare import compare

pytestmark = pytest.mark.usefixtures("shipped")

Rewrite = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """The parameter of the toy family, whose text does not depend on it."""

    unroll_k: Unroll = 1

    def conflict(self, problem: object, limits: object) -> None:
        """Serve everywhere."""

    def needs(self, problem: object) -> Needs:
        """Return what it asks of a device: nothing."""
        return Needs(())


@pytest.fixture
def rewrite(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rewrite]:
    """Changes the text of a toy family."""
    text = "first"

    def plan(problem: Problem, config: Config) -> Plan:
        return Plan((Launch(text, "toy", (1,), (1,), ()),))

    def to(other: str) -> None:
        nonlocal text
        text = other
        digest_of.cache_clear()

    toy = SimpleNamespace(
        NAME="toy", Config=Config, DEFAULT=Config(), serves=lambda _: True, plan=plan
    )
    monkeypatch.setitem(FAMILIES, "toy", toy)  # type: ignore[arg-type]
    yield to
    digest_of.cache_clear()


def of_toy(**changes: Any) -> Record:
    """A record of the toy family that generator 3 wrote, with today's digest."""
    values: dict[str, Any] = {
        "family": "toy",
        "config": '{"unroll_k":1}',
        "generator": UNDIGESTED,
    } | changes
    return record(**{"digest": digest_of(SQUARE, Variant("toy", Config()))} | values)


def rung_of(*records: Record) -> str:
    return chooser(*records).choose(SQUARE).rung


def test_a_record_is_exact_until_the_text_changes(rewrite: Rewrite) -> None:
    known = of_toy()
    assert (rung_of(known), is_of_today(known)) == ("exact", True)
    rewrite("second")
    assert (rung_of(known), is_of_today(known)) == ("stale", False)
    rewrite("first")
    assert rung_of(replace(known, generator="77")) == "exact"


def test_an_old_record_gets_a_digest_only_where_no_text_of_its_family_changed(
    rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was measured when the text was `first`: the digest of `second` is not its own."""
    old, first = of_toy(digest=None), of_toy()
    assert with_digests([old]) == [first]
    rewrite("second")
    monkeypatch.setattr(digests, "CHANGED", digests.CHANGED | {"toy"})
    assert with_digests([old, first]) == [old, first]
    assert [rung_of(one) for one in with_digests([old, first])] == ["stale", "stale"]
    assert not is_of_today(old)


def test_an_old_record_gets_no_digest_where_a_kernel_changed_that_families_share() -> None:
    whole, split = (variant(split_k=parts) for parts in (1, 2))
    old = [record(config=one.to_json(), digest=None) for one in (whole, split)]
    found = with_digests([replace(one, generator=UNDIGESTED) for one in old])
    assert [one.digest for one in found] == [digest_of(SQUARE, whole), None]


def test_an_old_record_gets_no_digest_where_a_text_has_a_newer_function() -> None:
    shifted = variant(local_m=1, local_n=1, item_n=24)
    old = record(config=shifted.to_json(), digest=None, generator=UNDIGESTED)
    assert [one.digest for one in with_digests([old])] == [None]


@pytest.mark.parametrize("generator", ["1", "2", "4"])
def test_of_what_other_generators_wrote_without_digest_nothing_is_known(generator: str) -> None:
    old = record(generator=generator, digest=None)
    assert not is_of_today(old)
    assert with_digests([old]) == [old]


def test_generators_number_does_not_decide_what_is_of_today() -> None:
    assert is_of_today(replace(record(), generator="1"))
    assert not is_of_today(record(digest="0" * 16, generator=GENERATOR_VERSION))
    assert not is_of_today(record(family="gone", digest=None, generator=UNDIGESTED))
    assert not is_of_today(record("gemm:1x1:of-the-future", digest=None, generator=UNDIGESTED))


def test_families_in_the_list_of_changes_are_there() -> None:
    assert digests.CHANGED.issubset(FAMILIES)


def test_of_two_records_that_of_todays_kernels_is_compared() -> None:
    other = record(samples=(0.1,), digest="0" * 16)
    renumbered = replace(record(samples=(2.0,)), generator="1")
    (pair,) = compare([other, renumbered], [record(samples=(1.0,))]).pairs
    assert (pair.left, pair.speedup) == (renumbered, 2.0)
