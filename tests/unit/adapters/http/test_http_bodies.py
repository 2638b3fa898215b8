"""Bodies that would fill the memory once they are decoded are refused before they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.adapters.http.calling import Api
from turnledger.adapters.http.protocol import bodies
from turnledger.adapters.http.protocol.bodies import MOST_VALUES, SMALL, has_more_values
from turnledger.adapters.http.protocol.envelopes import read_batch
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.ledger import new_run_id

MANY = b"[" + b"[]," * MOST_VALUES + b"[]]"
VALUES = st.recursive(
    st.none() | st.integers() | st.text('[]{},:"\\a'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{},"\\'), inner),
)


def marks(value: Any) -> int:
    """Commas and opening brackets of a value's JSON, the plain way."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    return max(1, len(value)) + sum(map(marks, value))


@given(value=VALUES, piece=st.integers(1, 12), ascii_only=st.booleans())
def test_values_are_counted_outside_strings(value: Any, piece: int, ascii_only: bool) -> None:
    """Brackets, commas and quotes inside strings are text, wherever a slice ends."""
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    found = marks(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "_SLICE", piece)
        assert not has_more_values(body, found)
        assert found == 0 or has_more_values(body, found - 1)


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
def test_too_many_values_are_refused_undecoded(media_type: str) -> None:
    """An array of a million empty ones takes sixty times its size in memory."""
    with pytest.raises(ProblemError, match="more than 1,000,000 values") as refused:
        read_batch(MANY, media_type)
    assert refused.value.kind.status == 413


def test_a_long_text_is_one_value() -> None:
    """Commas of a text are not counted, however many there are."""
    event = {"type": "custom", "data": {"kind": "a.b", "data": "," * (MOST_VALUES + 1)}}
    assert len(read_batch(json.dumps([event]).encode(), "application/json").events) == 1


def test_lines_are_counted_before_they_are_split() -> None:
    """With the last newline or without it, and an empty body has none."""
    line = b'{"type":"custom","data":{"kind":"a.b"}}\n'
    assert len(read_batch(line * 1000, "application/x-ndjson").events) == 1000
    assert len(read_batch((line * 2)[:-1], "application/x-ndjson").events) == 2
    for body, count in ((line * 1001, 1001), (b"\n" * 1_000_000, 1_000_000), (b"", 0)):
        with pytest.raises(ProblemError, match=f"got {count} lines"):
            read_batch(body, "application/x-ndjson")


def test_an_operation_without_events_reads_no_large_body() -> None:
    """Above all not the public one, which anybody may send to."""
    key = {"turnledger-claim-key": "k" * 16}
    with Api() as api:
        for path, headers in (
            ("/v1/session", {"x-turnledger": "1"}),
            (f"/v1/runs/{new_run_id()}/heartbeat", key),
            (f"/v1/runs/{new_run_id()}/release", key),
        ):
            answer = api.call("POST", path, headers=headers, content=b" " * (SMALL + 1))
            assert (answer.status_code, answer.json()["limit"]) == (413, SMALL)
        claim = f"/v1/runs/{new_run_id()}/claim"
        assert api.call("POST", claim, headers=key, content=MANY).status_code == 413
