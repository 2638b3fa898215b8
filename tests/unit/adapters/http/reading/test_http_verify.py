"""Verification over HTTP, with lines that say how far it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.unit.adapters.http.calling import Api
from turnledger.ledger import ANY, CustomEvent, new_run_id
from turnledger.ledger.integrity.verify import PROGRESS_EVERY, verifying_run

LINES = {"accept": "application/x-ndjson"}


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


@pytest.fixture
def run(api: Api) -> UUID:
    """A run of more records than come without a word, forked from one that is as long."""
    run = api.new_run()
    api.ledger.append(run, [CustomEvent(kind="shop.note")] * PROGRESS_EVERY, ANY)
    fork = api.ledger.fork(run, PROGRESS_EVERY + 1)
    api.ledger.append(fork, [CustomEvent(kind="shop.note")] * PROGRESS_EVERY, ANY)
    return fork


def lines(api: Api, run: Any) -> list[Any]:
    response = api.call("GET", f"/v1/runs/{run}/verify", headers=LINES)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_lines_say_how_far_it_is(api: Api, run: UUID) -> None:
    """Of all records, ancestors included; the last line has the report that JSON would have."""
    total = api.ledger.head(run)
    *steps, last = lines(api, run)
    expected = [{"records": n, "of": total} for n in (0, PROGRESS_EVERY, 2 * PROGRESS_EVERY)]
    assert steps == expected
    assert last == {"report": api.call("GET", f"/v1/runs/{run}/verify").json()}
    assert last["report"]["records"] == total


def test_a_changed_record_is_in_the_report(api: Api, run: UUID) -> None:
    """With its version, in lines as in JSON."""
    rows = api.ledger.store.tables.rows  # type: ignore[attr-defined]
    place = next(n for n, row in enumerate(rows) if row[1] == str(run) and row[2] == 1500)
    rows[place] = rows[place]._replace(data='{"kind":"shop.other"}')
    report = lines(api, run)[-1]["report"]
    assert (report["ok"], report["problems"][0]["version"]) == (False, 1500)
    assert report == api.call("GET", f"/v1/runs/{run}/verify").json()


def test_a_run_that_is_not_there(api: Api) -> None:
    """It is a problem, before any line."""
    response = api.call("GET", f"/v1/runs/{new_run_id()}/verify", headers=LINES)
    assert response.status_code == 404


def test_nothing_is_read_that_nobody_takes(api: Api, run: UUID) -> None:
    """A client that has gone takes no further line: the verification goes no further."""
    read = [0]
    store = api.ledger.store
    raw_rows = store.raw_rows

    def counted(*args: Any) -> Iterator[Any]:
        for row in raw_rows(*args):
            read[0] += 1
            yield row

    store.raw_rows = counted  # type: ignore[method-assign]
    steps = verifying_run(store, api.ledger.codec, str(run))
    assert next(steps) == PROGRESS_EVERY
    assert read[0] == PROGRESS_EVERY
