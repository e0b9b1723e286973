"""Whatever integer stands in whatever field of a record, it is refused, kept, or serves rightly."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oclgen.families import FAMILIES, families_for
from oclgen.limits import first_broken
from oclgen.parameters import parameters
from oclgen.problem import Problem
from oclgen.variant import Variant
from tests.oclgen import plan_texts
from tests.tuned_db.tuned_samples import LIMITS, record
from tuned_db import Record, RecordError

POWERS = [sign * 2**bit for bit in range(70) for sign in (1, -1)]
INTEGERS = st.one_of(st.integers(-3, 3), st.integers(), st.sampled_from(POWERS))
SERVED = [(problem, one.NAME) for problem in plan_texts.PROBLEMS for one in families_for(problem)]
FIELDS = sorted(json.loads(record().to_line()))
ONES = [("device", "compute_units"), ("samples", 0), ("peak", 0), ("conditions", "mhz")]
"""Fields that hold others, and a place within them."""


def claimed(line: dict[str, Any]) -> Record | None:
    try:
        return Record.from_line(json.dumps(line))
    except RecordError:
        return None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(SERVED), st.data())
def test_any_integers_in_a_config(served: tuple[Problem, str], data: st.DataObject) -> None:
    problem, family = served
    values = Variant(family, FAMILIES[family].DEFAULT).values()
    numbers = [one.name for one in parameters(FAMILIES[family].Config) if one.type is int]
    chosen = data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3, unique=True))
    values |= {name: data.draw(INTEGERS) for name in chosen}
    line = json.loads(record().to_line()) | {"problem": problem.key()}
    made = claimed(line | {"family": family, "config": values})
    if made is None:
        return
    if made.why_unreadable() or made.variant.why_not(problem, LIMITS):
        return
    assert first_broken(made.variant.plan(problem), LIMITS) is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(FIELDS), st.sampled_from(ONES), INTEGERS, st.booleans())
def test_any_integer_in_any_field(
    field: str, inner: tuple[str, Any], number: int, is_inner: bool
) -> None:
    line = json.loads(record(peak=(1.0, 1.0), conditions={"mhz": 1.0}).to_line())
    if is_inner:
        line[inner[0]][inner[1]] = number
    else:
        line[field] = number
    made = claimed(line)
    if made is not None:
        assert Record.from_line(made.to_line()) == made
        assert made.ms > 0
        made.why_unreadable()
