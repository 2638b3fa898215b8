"""Deltas of requests: small, and always the whole body again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnledger.projections.digests import canonical
from turnledger.runtime.steps.messages.request_delta import RequestDeltas, whole_request

_SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=3)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = st.sampled_from(["messages", "input", "contents", "model", "body", "since", "path"])
_BODIES = st.dictionaries(_KEYS, st.lists(_JSON, max_size=5) | _JSON, max_size=4) | _JSON


def _recorded(bodies: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """What a run records of these bodies, and the bodies as they are read back."""
    deltas, kept, read = RequestDeltas(), dict[str, Any](), []
    for number, body in enumerate(bodies):
        call_id = f"call-{number}"
        kept[call_id] = deltas.recorded("/path", body)
        deltas.add(call_id, body)
        read.append(whole_request(kept[call_id], kept.__getitem__))
    return kept, read


@given(st.lists(_BODIES, max_size=12))
@example([{"messages": [1, 2]}, {"messages": [True, 2]}, {"messages": [1.0, 2]}])
@example([{"messages": [], "model": 1}, {"messages": [], "model": True}])
def test_every_body_is_read_back_whole(bodies: list[Any]) -> None:
    """Whatever came before it: lists that grow, shrink, vanish, and values that only look equal."""
    _, read = _recorded(bodies)
    assert [canonical(one) for one in read] == [
        canonical({"path": "/path", "body": body}) for body in bodies
    ]


def test_a_growing_conversation_costs_what_is_new() -> None:
    """The record of a long conversation grows with its messages, not with their square."""
    said = [{"role": "user", "content": f"{number} " + "x" * 100} for number in range(200)]
    bodies = [{"model": "m", "messages": said[: n + 1]} for n in range(200)]
    kept, _ = _recorded(bodies)
    assert max(len(canonical(one)) for one in kept.values()) < 400


def test_conversations_that_take_turns_build_each_on_its_own() -> None:
    """A subagent's calls between those of its caller do not make either whole again."""
    bodies = [
        {"messages": [f"{who} says {n} " + "x" * 100 for n in range(turn + 1)]}
        for turn in range(20)
        for who in ("one", "other")
    ]
    kept, _ = _recorded(bodies)
    assert all(len(one["add"]) == 1 for one in list(kept.values())[2:])


@pytest.mark.parametrize(
    "request_",
    [
        {"path": "/x", "since": "nobody"},
        {"path": "/x", "since": "itself"},
        {"path": "/x", "since": "empty", "list": "messages", "keep": 1, "add": []},
        {"since": "empty"},
    ],
)
def test_a_delta_that_leads_nowhere_is_given_back(request_: Any) -> None:
    """Others may have written to the run: it is shown as it is, and nothing hangs."""
    earlier = {"itself": request_, "empty": {"path": "/x", "body": {}}}
    assert whole_request(request_, earlier.__getitem__) == request_
