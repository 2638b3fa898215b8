"""Resuming a conversation: from a session, a snapshot or a ledger, and when that can't be."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, calls, says
from tests.unit.runtime.clocks import BEGIN
from tests.unit.runtime.evaluations import (
    Add,
    Dying,
    Scripted,
    Sum,
    again,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.ledger import (
    InnerMessage,
    InvalidInputError,
    Ledger,
    MessageAppended,
    ToolCallRecord,
    ToolCallStarted,
)
from turnledger.projections import (
    get_latest_evaluation_id,
)
from turnledger.runtime import (
    AdapterResumeState,
    ConversationNotFound,
    PromptMismatch,
    Session,
    Snapshot,
    ToolCall,
    ToolContext,
    enable_inner_message_recording,
)

STORES = ["memory", "sqlite"]

TWO = calls(("a", "add", '{"n": 1}'), ("b", "add", '{"n": 2}'), text="Adding.")
SCRIPT = [TWO, says("3")]


def numbers(said: list[InnerMessage]) -> list[tuple[str, int, int]]:
    return [(one.role, one.sequence, one.turn) for one in said]


TABLE = [("system", 0, 0), ("assistant", 1, 1), ("tool", 2, 1), ("tool", 3, 1), ("assistant", 4, 2)]


def test_messages_are_numbered_as_the_table_says() -> None:
    """S0-3, S0-4: two tools give (0,0), (1,1), (2,1), (3,1), (4,2)."""
    session = Session()
    Scripted(SCRIPT).evaluate(prompt_of(tool()), session=session)
    assert numbers(messages(session)) == TABLE
    assert {one.evaluation_id for one in messages(session)} == {messages(session)[0].evaluation_id}
    assert {(one.prompt_ns, one.prompt_key) for one in messages(session)} == {("tests", "sum")}


def test_each_message_is_recorded_when_it_is_said() -> None:
    """S0-7, S0-8: a slice that is looked at in each tool has all that came before it."""
    session = Session()
    enable_inner_message_recording(session)
    seen: list[Any] = []

    def look(params: Add, *, context: ToolContext) -> str:
        said = context.session[InnerMessage].all()
        seen.append([(one.role, [call.status for call in one.tool_calls]) for one in said])
        return "ok"

    Scripted(SCRIPT).evaluate(prompt_of(tool(look)), session=session)
    asked = [("system", []), ("assistant", ["pending", "pending"])]
    assert seen[0] == asked
    assert seen[1] == [("system", []), ("assistant", ["completed", "pending"]), ("tool", [])]
    assert [c.status for c in session[InnerMessage].all()[1].tool_calls] == ["completed"] * 2


def test_an_assistant_without_words_is_recorded_with_empty_content() -> None:
    """S0-7: `content or ""`."""
    session = Session()
    Scripted([calls(("a", "add")), says("0")]).evaluate(prompt_of(tool()), session=session)
    assert messages(session)[1].content == ""


# --- from a snapshot ---------------------------------------------------------------------


def test_a_snapshot_taken_anywhere_can_be_resumed(tmp_path: Path) -> None:
    """S0-15, S0-16, S0-17: after each change of the conversation, with the same end."""
    shots: list[str] = []
    session = Session()
    enable_inner_message_recording(session)
    session.install(Sum)
    session.observe(InnerMessage, lambda old, new: shots.append(session.snapshot().to_json()))
    whole = Scripted(SCRIPT)
    whole.evaluate(prompt_of(tool()), session=session)
    assert len(shots) >= 4
    for shot in shots:
        other = Session()
        enable_inner_message_recording(other)
        other.install(Sum)
        other.restore(Snapshot.from_json(shot))
        adapter = Scripted(SCRIPT)
        assert adapter.evaluate(prompt_of(tool()), session=other, resume=True).text == "3"
        assert numbers(list(other[InnerMessage].all())) == TABLE
        assert other[Sum].all() == (Sum(1), Sum(2))
        for request in adapter.requests:
            same = whole.requests[request.turn - 1]
            assert (request.turns, request.system, request.tools) == (
                same.turns,
                same.system,
                same.tools,
            )


def test_the_latest_conversation_of_a_snapshot_is_the_one_that_goes_on() -> None:
    """S0-11: by the time of its system message, whatever the ids' order is."""
    said = [
        InnerMessage(
            "system", "Add it up.", evaluation_id=name, sequence=0, prompt_ns="tests",
            prompt_key="sum", created_at=BEGIN + timedelta(hours=hours), message_id=UUID(int=hours),
        )
        for name, hours in (("zz", 1), ("aa", 2))
    ]  # fmt: skip
    first = Session()
    enable_inner_message_recording(first)
    for one in said:
        first.mutate(InnerMessage).append(one)
    second = Session()
    enable_inner_message_recording(second)
    second.restore(Snapshot.from_json(first.snapshot().to_json()))
    for session in (first, second):
        assert get_latest_evaluation_id(session) == "aa"
        Scripted([says("ok")]).evaluate(prompt_of(), session=session, resume=True)
        assert messages(session)[-1].evaluation_id == "aa"


# --- from a session or its ledger ----------------------------------------------------------


def test_after_a_crash_in_b_only_b_runs(ledger: Ledger) -> None:
    """S0-16, S0-21: same evaluation, sequence and turn go on, A's result stands."""
    handler, session = Dying("b"), on(ledger)
    with pytest.raises(Crash):
        Scripted(SCRIPT).evaluate(prompt_of(tool(handler)), session=session)
    handler.dies_in = set()
    other, adapter = again(session), Scripted(SCRIPT)
    assert adapter.evaluate(prompt_of(tool(handler)), session=other, resume=True).text == "3"
    assert handler.ran == [("a", False), ("b", False), ("b", True)]
    assert numbers(messages(other)) == TABLE
    assert [request.turn for request in adapter.requests] == [2]
    assert [event.attempt for event in events(other, ToolCallStarted)] == [1, 1, 2]


def test_after_a_final_answer_that_answer_is_returned() -> None:
    """S0-17: without a model call, also where time is up by now."""
    from turnledger.runtime import Deadline

    session = Session()
    Scripted(SCRIPT).evaluate(prompt_of(tool()), session=session)
    late = Deadline(BEGIN)
    for one in (session, again(session)):
        response = Scripted([]).evaluate(prompt_of(tool()), session=one, resume=True, deadline=late)
        assert (response.text, response.tool_results) == ("3", ())


def test_a_session_without_a_conversation_cannot_be_resumed() -> None:
    """S0-14, S0-20, X11: neither a fresh one, nor one whose snapshot has no messages."""
    adapter = Scripted([says("ok")])
    bare = Session()
    bare[Sum].append(Sum(1))
    for session in (Session(), bare):
        with pytest.raises(ConversationNotFound, match="no conversation"):
            adapter.evaluate(prompt_of(), session=session, resume=True)
    assert adapter.requests == []
    assert isinstance(ConversationNotFound(), ValueError)


def test_a_session_resumes_without_the_slice() -> None:
    """X11: the ledger always records; the slice appears only when registered."""
    session = Session()
    with pytest.raises(Crash):
        Scripted(SCRIPT).evaluate(prompt_of(tool(Dying("b"))), session=session)
    assert session.select_all(InnerMessage) == ()
    assert Scripted(SCRIPT).evaluate(prompt_of(tool()), session=session, resume=True).text == "3"


@pytest.mark.parametrize(
    ("now", "what"), [({"key": "other"}, "name"), ({"text": "Something else."}, "digest")]
)
def test_another_prompt_cannot_go_on(now: dict[str, str], what: str) -> None:
    """S0-14, S0-20: neither of another name nor with another text, before any provider call."""
    session = Session()
    with pytest.raises(Crash):
        Scripted(SCRIPT).evaluate(prompt_of(tool(Dying("b"))), session=session)
    head, adapter = session.journal.committed.version, Scripted(SCRIPT)
    with pytest.raises(PromptMismatch) as caught:
        adapter.evaluate(prompt_of(tool(), **now), session=session, resume=True)
    assert caught.value.what == what
    assert (adapter.requests, session.journal.committed.version) == ([], head)
    assert adapter.evaluate(prompt_of(tool()), session=session, resume=True).text == "3"


def test_a_rollback_takes_back_state_and_no_message() -> None:
    """X16: the conversation goes on from all that was said, statuses kept."""
    session = Session()
    enable_inner_message_recording(session)
    session.install(Sum)
    before = session.snapshot()
    with pytest.raises(Crash):
        Scripted(SCRIPT).evaluate(prompt_of(tool(Dying("b"))), session=session)
    assert session[Sum].all() == (Sum(1),)
    session.mutate().rollback(before)
    assert session[Sum].all() == ()
    handler = Dying()
    Scripted(SCRIPT).evaluate(prompt_of(tool(handler)), session=session, resume=True)
    assert [call for call, _ in handler.ran] == ["b"]
    assert session[Sum].all() == (Sum(2),)
    assert numbers(messages(session)) == TABLE


# --- a conversation that is handed in --------------------------------------------------------


def _prefix(key: str = "sum") -> tuple[InnerMessage, ...]:
    common: dict[str, Any] = {"evaluation_id": "e1", "prompt_ns": "tests", "prompt_key": key}
    asked = (ToolCallRecord("a", "add", '{"n": 1}'), ToolCallRecord("b", "add", '{"n": 2}'))
    return (
        InnerMessage("system", "Add it up.", sequence=0, **common),
        InnerMessage("assistant", "Adding.", sequence=1, turn=1, tool_calls=asked, **common),
        InnerMessage("tool", "1", sequence=2, turn=1, tool_call_id="a", tool_name="add", **common),
    )


def test_a_conversation_that_is_handed_in_goes_on() -> None:
    """S2-19, X17: what it lacks is run, in the same evaluation, and once."""
    session, handler = Session(), Dying()
    state = AdapterResumeState(
        conversation_prefix=_prefix(), pending_tool_calls=(ToolCall("b", "add", {"n": 2}),)
    )
    for _ in range(2):
        answer = Scripted(SCRIPT).evaluate(
            prompt_of(tool(handler)), session=session, resume_from=state
        )
        assert answer.text == "3"
    assert handler.ran == [("b", True)]
    assert numbers(messages(session)) == TABLE


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (ToolCall("zz", "add"), "no message of conversation_prefix asks for it"),
        (ToolCall("b", "subtract", {"n": 2}), "no message of conversation_prefix asks for it"),
        (ToolCall("b", "add", {"n": 3}), "no message of conversation_prefix asks for it"),
        (ToolCall("a", "add", {"n": 1}), "conversation_prefix has its result"),
    ],
)
def test_a_pending_call_that_is_not_open_is_refused_by_name(call: ToolCall, why: str) -> None:
    """S2-19: before anything is recorded or sent."""
    session, adapter, handler = Session(), Scripted(SCRIPT), Dying()
    state = AdapterResumeState(conversation_prefix=_prefix(), pending_tool_calls=(call,))
    with pytest.raises(InvalidInputError) as refused:
        adapter.evaluate(prompt_of(tool(handler)), session=session, resume_from=state)
    assert f"{call.name!r} ({call.call_id!r}): {why}" in str(refused.value)
    assert (adapter.requests, handler.ran, events(session, MessageAppended)) == ([], [], [])


def test_a_conversation_of_another_prompt_is_not_taken_in() -> None:
    """S0-14: and nothing of it stays."""
    session, state = Session(), AdapterResumeState(conversation_prefix=_prefix("other"))
    with pytest.raises(PromptMismatch):
        Scripted(SCRIPT).evaluate(prompt_of(tool()), session=session, resume_from=state)
    session[Sum].append(Sum(1))
    assert events(session, MessageAppended) == []
    with pytest.raises(ConversationNotFound):
        Scripted(SCRIPT).evaluate(prompt_of(tool()), session=session, resume=True)
