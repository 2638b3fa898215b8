"""What can't be asked with "what if": each refused with its reason, and nothing is written."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.replay.recording import kept, opened, run_ids
from tests.unit.runtime.forks import TEXT, message_of, own, rows, said, version_of
from turnledger.ledger import (
    NEW,
    Ledger,
    MessageAppended,
    RecordNotFoundError,
    RunNotFoundError,
    RunStarted,
    new_run_id,
)
from turnledger.runtime import ChangeRefusedError, what_if


@pytest.mark.parametrize(
    ("tag", "pointer", "value", "why"),
    [
        ("run.started", "/request", None, "has that of its parent"),
        ("run.started", "/session_id", str(UUID(int=7)), "these can: /request"),
        ("run.claimed", "/epoch", 7, "not to a fork"),
        ("checkpoint.reached", "/state_digest", "x", "follows from the state"),
        ("checkpoint.reached", "/phase", "failed", "follows from the state"),
        ("checkpoint.cleared", "/reason", "x", "without the checkpoints"),
        ("evaluation.started", "/prompt_digest", "x", "the system message"),
        ("evaluation.finished", "/output", 1, "the loop decides"),
        ("model.called", "/turn", 2, "the loop decides"),
        ("tool_call.started", "/attempt", 2, "the loop decides"),
        ("tool_message.amended", "/content", "x", "the loop decides"),
        ("run.completed", "/output", 1, "the loop decides"),
        ("message.appended", "/message/message_id", str(UUID(int=7)), "its ids"),
        ("message.appended", "/message/role", "user", "these can: /message/content"),
        ("message.appended", "/message", {}, "can't be changed"),
        ("message.appended", "/tag", "custom", "Its type"),
        ("message.appended", "", {}, "as a whole"),
        ("message.appended", "message/content", "x", "Invalid JSON Pointer"),
        ("message.appended", "/message/content~2", "x", "Invalid JSON Pointer"),
        ("message.appended", "/message/content", 7, "Expected `str`"),
        ("message.appended", "/message/content", float("nan"), "no nan"),
        ("message.appended", "/message/content/0", "x", "nothing to go into"),
        ("tool_call.completed", "/value/a", 1, "nothing to go into"),
        ("tool_call.completed", "/name", "x", "these can: /value"),
        ("tool_call.completed", "/message_id", str(UUID(int=7)), "its ids"),
        ("model.replied", "/usage/input_tokens", -1, ">= 0"),
        ("model.replied", "/usage/inputs", 1, "unknown field"),
        ("slice.event_applied", "/slice", "x", "these can: /payload"),
    ],
)
def test_what_makes_no_sense_is_refused(
    ledger: Ledger, run: UUID, tag: str, pointer: str, value: Any, why: str
) -> None:
    """With the pointer and the reason, and nothing is written."""
    version = version_of(ledger, run, tag, "system")
    before = rows(ledger, run)
    with pytest.raises(ChangeRefusedError, match=why) as caught:
        what_if(ledger, run, version, {pointer: value})
    assert (caught.value.version, caught.value.pointer) == (version, pointer)
    assert f"Event {version}" in str(caught.value)
    assert pointer in str(caught.value)
    assert rows(ledger, run) == before
    assert [info.run_id for info in ledger.runs()] == [run]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"/message/content": "", "/message/tool_calls": []}, "/message/content"),
        ({"/message/tool_calls": [{"call_id": "x", "name": "", "arguments": ""}]}, "tool_calls"),
        ({"/message/tool_calls/0/call_id": "x"}, "call_id"),
        ({"/message/tool_calls/0/status": "failed"}, "status"),
        ({"/message/tool_calls/7/name": "x"}, "/message/tool_calls/7/name"),
        ({"/message/tool_calls/7": {}}, "/message/tool_calls/7"),
        ({"/message/tool_calls/0/id": "x"}, "/message/tool_calls/0/id"),
        ({"/message/content": "a", "/message/tool_calls": 7}, "/message/tool_calls"),
        ({}, ""),
    ],
)
def test_a_reply_that_no_model_gives_is_refused(
    ledger: Ledger, run: UUID, changes: dict[str, Any], pointer: str
) -> None:
    """It has text or calls, and each call a name and an id of its own."""
    with pytest.raises(ChangeRefusedError) as caught:
        what_if(ledger, run, message_of(ledger, run, "assistant"), changes)
    assert pointer in caught.value.pointer
    assert "/message/content, " not in str(caught.value)


def test_two_calls_of_a_reply_are_two(ledger: Ledger, run: UUID) -> None:
    """An id that stands twice would mean both."""
    again = {"call_id": "c1", "name": "step", "arguments": "{}"}
    at = message_of(ledger, run, "assistant")
    with pytest.raises(ChangeRefusedError, match="an id of its own"):
        what_if(ledger, run, at, {"/message/tool_calls/-": again})


def test_what_is_not_there_can_not_be_changed(ledger: Ledger, run: UUID) -> None:
    """No such run, no such event."""
    with pytest.raises(RunNotFoundError):
        what_if(ledger, uuid4(), 1, TEXT)
    for version in (0, -1, 999):
        with pytest.raises(RecordNotFoundError):
            what_if(ledger, run, version, TEXT)


def test_a_run_that_is_one_commit_has_nothing_to_fork_from(ledger: Ledger) -> None:
    """Nor has one whose request was appended with the rest."""
    run = new_run_id()
    ledger.append(run, [RunStarted(request={"q": 1}), said("user", "Hi.")], NEW)
    with pytest.raises(ChangeRefusedError, match="versions 1 to 2 were appended together"):
        what_if(ledger, run, 2, TEXT)
    with pytest.raises(ChangeRefusedError, match="appended together"):
        what_if(ledger, run, 1, {"/request": {"q": 2}})


def test_a_fork_has_no_request_of_its_own(ledger: Ledger, run: UUID) -> None:
    """It goes on with the conversation, which another request would not have had."""
    fork = ledger.fork(run, 2)
    with pytest.raises(ChangeRefusedError, match="the request of the run"):
        what_if(ledger, fork, 3, {"/request": {}})


def test_media_is_changed_by_its_parts() -> None:
    """A message that is shown by its parts has no other text; the text for people follows."""
    with opened(kept()["media"]) as ledger:
        (run_id,) = (UUID(one) for one in run_ids(ledger))
        at, message = next(
            (record.version, record.event.message)
            for record in ledger.read(run_id)
            if isinstance(record.event, MessageAppended) and record.event.message.parts
        )
        with pytest.raises(ChangeRefusedError, match="/message/parts/0/text"):
            what_if(ledger, run_id, at, TEXT)
        place = next(n for n, part in enumerate(message.parts) if hasattr(part, "text"))
        fork = what_if(ledger, run_id, at, {f"/message/parts/{place}/text": "Look again."})
        changed = own(ledger, fork)[-1]
        assert isinstance(changed, MessageAppended)
        assert "Look again." in changed.message.content
