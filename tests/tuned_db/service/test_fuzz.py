"""Generated requests: from the API's own description, and from damaged exports."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tuned_db.tuned_samples import record

pytest.importorskip("fastapi")
schemathesis = pytest.importorskip("schemathesis")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from oclgen.problem import GemmProblem
from tests.tuned_db.service.service_runs import GENEROUS
from tuned_db import open_store, write_records
from tuned_db.records.exchange import SCHEMA_LINE
from tuned_db.service.app import create_app
from tuned_db.trust.tokens import add_token

EXAMPLES = 25


def filled(folder: Path) -> tuple[FastAPI, str]:
    """An application with a few records, and a token."""
    store = open_store(folder / "served.sqlite")
    store.merge([record(GemmProblem(size, 8, 8)) for size in range(1, 9)])
    return create_app(store, GENEROUS), add_token(store.database, "alice")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app, token = filled(tmp_path_factory.mktemp("fuzz"))
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


@schemathesis.serializer("application/jsonl")
def as_it_is(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def test_every_answer_is_what_the_description_says(tmp_path: Path) -> None:
    app, _ = filled(tmp_path)
    description = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [one.ok() for one in description.get_all_operations()]
    assert len(operations) == 10
    for operation in operations:

        @given(operation.as_strategy())
        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        def ask(case: Any) -> None:
            case.call_and_validate()

        ask()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = sorted(json.loads(record().to_line()))


@given(st.sampled_from(FIELDS), JSON)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_value_in_any_field_is_taken_or_refused(
    web: TestClient, field: str, value: object
) -> None:
    line = json.loads(record().to_line()) | {field: value}
    upload = f"{SCHEMA_LINE}\n{json.dumps(line)}\n".encode()
    answer = web.post("/api/v1/records", content=upload)
    assert answer.status_code in (200, 400)
    for path in ("/", "/devices/1", "/api/v1/records", "/api/v1/winners"):
        assert web.get(path).status_code == 200


@given(st.binary(min_size=1, max_size=4), st.integers(0, 10**6))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_bytes_in_any_place_are_taken_or_refused(
    web: TestClient, noise: bytes, place: int
) -> None:
    stream = io.BytesIO()
    write_records([record(), record(GemmProblem(1, 2, 3))], stream)
    content = stream.getvalue()
    place %= len(content)
    upload = content[:place] + noise + content[place + len(noise) :]
    assert web.post("/api/v1/records", content=upload).status_code in (200, 400)


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_question_is_answered_or_refused(web: TestClient, name: str, value: str) -> None:
    for path in ("/api/v1/winners", "/api/v1/records", "/devices/1", "/tunings/1"):
        for query in ({"text": value}, {"family": value}, {"after": value}, {name: value}):
            answer = web.get(path, params=query)
            assert answer.status_code in (200, 422), (path, query)
