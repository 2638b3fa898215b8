"""What if an event had said something else: the fork that it makes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.crash.agents import KINDS, Agent, Order
from tests.replay.recording import HISTORIES, kept, opened
from tests.replay.script import declarations
from tests.unit.runtime.forks import (
    TEXT,
    Asked,
    asked,
    begun,
    check_fork,
    ended,
    message_of,
    own,
    own_tags,
    rows,
    said,
    session_declarations,
    started,
)
from tests.unit.runtime.loops import ANSWER, Goal, Plan, Planner, asks, call
from turnledger.ledger import (
    CustomEvent,
    EvaluationStarted,
    Ledger,
    MessageAppended,
    ModelReplied,
    RunStarted,
    SliceEventApplied,
    ToolCallCompleted,
    ToolCallFailed,
    new_run_id,
)
from turnledger.projections import Declarations, state_at
from turnledger.runtime import ChangeRefusedError, Session, what_if

GOLDEN = kept()
OF_AGENTS = sorted(str(path.relative_to(HISTORIES)) for path in HISTORIES.glob("*/*.jsonl"))


# --- what the fork holds ---------------------------------------------------------------


def test_a_tools_message_comes_with_its_result_and_a_right_checkpoint(
    ledger: Ledger, run: UUID
) -> None:
    """What the tool changed and its result come along; the next request does not."""
    before = rows(ledger, run)
    at = message_of(ledger, run, "tool")
    fork = what_if(ledger, run, at, {"/message/content": "Nothing was there."})
    assert own_tags(ledger, fork) == [
        "run.started",
        "slice.event_applied",
        "tool_call.completed",
        "message.appended",
        "checkpoint.reached",
    ]
    started, _, completed, said, _ = own(ledger, fork)
    assert isinstance(started, RunStarted)
    assert (started.kind, started.parent, started.at) == ("fork", run, at - 3)
    assert isinstance(said, MessageAppended)
    assert said.message.content == "Nothing was there."
    assert isinstance(completed, ToolCallCompleted)
    assert completed.message_id == said.message.message_id
    assert completed == ledger.record(run, at - 1).event
    assert check_fork(ledger, fork, session_declarations()) == 1
    assert state_at(ledger, fork).tools.pending() == ()
    assert rows(ledger, run) == before
    ids = [record.event_id for run_id in (run, fork) for record in ledger.read(run_id)]
    assert len(set(ids)) == len(before) + 5


def test_a_reply_comes_with_what_was_recorded_of_it_but_not_of_the_provider(
    ledger: Ledger,
) -> None:
    """Usage stays; what the provider sent beyond its message was about another message."""
    run = new_run_id()
    reply = asks(call("c1"))
    reply = type(reply)(
        text=reply.text, tool_calls=reply.tool_calls, usage=reply.usage, provider_data={"id": 1}
    )
    Planner([reply, ANSWER], ledger=ledger).execute(Goal(), run_id=run)
    at = message_of(ledger, run, "assistant")
    fork = what_if(ledger, run, at, {"/message/content": "Wait."})
    assert own_tags(ledger, fork) == ["run.started", "message.appended", "model.replied"]
    recorded, replied = ledger.record(run, at + 1).event, own(ledger, fork)[-1]
    assert isinstance(recorded, ModelReplied)
    assert isinstance(replied, ModelReplied)
    assert recorded.provider_data is not None
    assert replied.provider_data is None
    assert replied.usage == recorded.usage
    assert replied.message_id == recorded.message_id


def test_what_is_asked_comes_with_the_rest_of_what_is_asked(ledger: Ledger) -> None:
    """The evaluation's start and all of its first messages, but no request."""
    run = new_run_id()
    Asked(ledger=ledger).execute(Goal(), run_id=run)
    for role in ("system", "user"):
        fork = what_if(ledger, run, message_of(ledger, run, role), TEXT)
        assert own_tags(ledger, fork) == [
            "run.started",
            "checkpoint.reached",
            "evaluation.started",
            "message.appended",
            "message.appended",
        ]
        said = [e.message for e in own(ledger, fork) if isinstance(e, MessageAppended)]
        assert [one.role for one in said] == ["system", "user"]
        assert [one.content for one in said if one.role == role] == ["Something else."]
        assert check_fork(ledger, fork, session_declarations()) == 1


@pytest.mark.parametrize(
    ("text", "value", "other", "told"),
    [
        ('Found.\n\n{"n":1}', {"n": 1}, {"n": 2}, 'Found.\n\n{"n":2}'),
        ('{"n":1}', {"n": 1}, [2], "[2]"),
        ('Found.\n\n{"n":1}', {"n": 1}, None, "Found."),
        ('{"n":1}', {"n": 1}, None, ""),
        ("Found.", None, {"n": 2}, 'Found.\n\n{"n":2}'),
        ("", None, 2, "2"),
        ("It is a secret.", {"n": 1}, {"n": 2}, "It is a secret."),
    ],
)
def test_another_value_is_told_where_the_value_was_told(
    ledger: Ledger, text: str, value: Any, other: Any, told: str
) -> None:
    """After the tool's own text, as JSON; a tool that keeps its value from the model keeps it."""
    run = begun(ledger, [started("c1")], ended("c1", text, value))
    fork = what_if(ledger, run, 3, {"/value": other})
    _, completed, message = own(ledger, fork)
    assert isinstance(completed, ToolCallCompleted)
    assert isinstance(message, MessageAppended)
    assert completed.value == other
    assert message.message.content == told
    assert message.message.message_id == completed.message_id


def test_another_text_leaves_the_value(ledger: Ledger) -> None:
    """What the model is told and what the program got are two things."""
    run = begun(ledger, [started("c1")], ended("c1", "[1]", [1]))
    _, completed, message = own(ledger, what_if(ledger, run, 4, TEXT))
    assert isinstance(completed, ToolCallCompleted)
    assert isinstance(message, MessageAppended)
    assert (completed.value, message.message.content) == ([1], "Something else.")


def test_another_error_is_told_where_the_error_was_told(ledger: Ledger) -> None:
    """A failure's text is in its message too."""
    message = said("tool", "Tool 'look' failed: no light", tool_call_id="c1", is_error=True)
    failed = ToolCallFailed(
        evaluation_id="e",
        call_id="c1",
        name="look",
        message_id=message.message.message_id,
        error_type="Dark",
        error_message="no light",
    )
    run = begun(ledger, [started("c1")], [failed, message])
    fork = what_if(ledger, run, 3, {"/error_message": "no eyes", "/error_type": "Blind"})
    _, refused, told = own(ledger, fork)
    assert isinstance(refused, ToolCallFailed)
    assert isinstance(told, MessageAppended)
    assert (refused.error_type, refused.error_message) == ("Blind", "no eyes")
    assert told.message.content == "Tool 'look' failed: no eyes"


def test_tools_that_ran_beside_it_have_ended_too(ledger: Ledger) -> None:
    """How another call of the same commit ended could not depend on what is changed."""
    reply = said("assistant", "", 1, tool_calls=tuple(asked("a", "b", "c")))
    run = begun(
        ledger,
        [reply],
        [started("a"), started("b"), started("c")],
        [*ended("a", "A"), *ended("b", "B"), said("user", "And?", 9)],
    )
    fork = what_if(ledger, run, 7, TEXT)
    assert own_tags(ledger, fork) == [
        "run.started",
        *("tool_call.completed", "message.appended") * 2,
    ]
    (open_call,) = state_at(ledger, fork).tools.pending()
    assert (open_call.call_id, open_call.status) == ("c", "in_doubt")


def test_a_reply_to_what_is_changed_does_not_come_along(ledger: Ledger) -> None:
    """Not even if it was appended together with it; what is said beside it does."""
    commit = [said("user", "a"), said("user", "b", 1), said("assistant", "c", 2, turn=1)]
    run = begun(ledger, commit)
    texts = [
        event.message.content
        for event in own(ledger, what_if(ledger, run, 2, TEXT))
        if isinstance(event, MessageAppended)
    ]
    assert texts == ["Something else.", "b"]


def test_state_that_is_changed_comes_with_the_rest_of_its_change(ledger: Ledger) -> None:
    """A session's events that were recorded together stay together."""
    changes = [SliceEventApplied(slice="Plan", event_type="Plan", payload=n) for n in (1, 2)]
    run = begun(ledger, [*changes, EvaluationStarted(**EVALUATION)])
    fork = what_if(ledger, run, 2, {"/payload": 7})
    payloads = [e.payload for e in own(ledger, fork) if isinstance(e, SliceEventApplied)]
    assert payloads == [7, 2]
    assert len(own(ledger, fork)) == 3


EVALUATION: dict[str, Any] = {
    "evaluation_id": "e",
    "prompt_ns": "a",
    "prompt_key": "b",
    "prompt_digest": "c",
}


def test_what_a_fork_inherited_or_changed_can_be_changed_again(ledger: Ledger, run: UUID) -> None:
    """Also the very event that made it another, and one before the fork began."""
    first, second = (message_of(ledger, run, "tool", n) for n in (1, 2))
    fork = what_if(ledger, run, second, TEXT, tags={"why": "test"})
    assert ledger.run(fork).tags == {"why": "test"}
    changed = message_of(ledger, fork, "tool", 2)
    assert changed > ledger.run(fork).parent_version
    before = rows(ledger, run, fork)
    again = what_if(ledger, fork, changed, {"/message/content": "Again."})
    inherited = what_if(ledger, fork, first, {"/message/content": "Earlier."})
    assert own_tags(ledger, again) == own_tags(ledger, fork)
    assert ledger.run(again).parent_version == ledger.run(fork).parent_version
    for child, text in ((again, "Again."), (inherited, "Earlier.")):
        assert check_fork(ledger, child, session_declarations()) == 1
        assert state_at(ledger, child).tools.calls[-1].result == text
    assert rows(ledger, run, fork) == before


def test_a_checkpoint_that_depends_on_unknown_reducers_is_left_out(ledger: Ledger) -> None:
    """With the program's declarations it is made anew; without, the loop makes one itself."""

    class Counting(Planner):
        def create_session(self) -> Session:
            session = super().create_session()
            session.register(Plan, Plan, keeps_the_last)
            return session

    run = new_run_id()
    _, session = Counting(ledger=ledger).execute(Goal(), run_id=run)
    at = message_of(ledger, run, "tool", 2)
    without = what_if(ledger, run, at, TEXT)
    assert "checkpoint.reached" not in own_tags(ledger, without)
    fork = what_if(ledger, run, at, TEXT, declarations=session.declarations)
    assert check_fork(ledger, fork, session.declarations) == 1


def keeps_the_last(before: tuple[Any, ...], event: Any, *, context: Any) -> tuple[Any, ...]:
    return (event,)


def test_what_a_reducer_refuses_is_no_fork(ledger: Ledger) -> None:
    """Nothing is written, and the error is a typed one."""
    declared = Declarations()
    declared.register(Plan, Plan, refuses)
    run = begun(ledger, [SliceEventApplied(slice="Plan", event_type="Plan", payload={"step": "a"})])
    with pytest.raises(ChangeRefusedError, match="ZeroDivisionError"):
        what_if(ledger, run, 2, {"/payload/step": "b"}, declarations=declared)
    assert [info.run_id for info in ledger.runs()] == [run]


def refuses(before: tuple[Any, ...], event: Plan, *, context: Any) -> tuple[Any, ...]:
    if event.step == "b":
        raise ZeroDivisionError("b")
    return (event,)


def test_a_comment_is_changed_by_itself(ledger: Ledger) -> None:
    """A fact of the user's own has nothing that follows from it."""
    note = CustomEvent(kind="acme.note", data={"a/b": [1]})
    run = begun(ledger, [note, said("user", "Hi.")])
    fork = what_if(ledger, run, 2, {"/data/a~1b/0": 2, "/data/a~1b/-": 3})
    _, changed = own(ledger, fork)
    assert isinstance(changed, CustomEvent)
    assert changed.data == {"a/b": [2, 3]}


# --- whatever was recorded -------------------------------------------------------------

POINTERS: dict[str, Any] = {
    "/message/content": "Something else.",
    "/message/tool_calls": [],
    "/value": {"something": "else"},
    "/error_message": "something else",
    "/payload": {"something": "else"},
    "/snapshot": {"slices": []},
    "/text": "something else",
    "/provider_data": {"parsed": 1},
    "/request": {"something": "else"},
    "/data": "something else",
}


def every_fork(ledger: Ledger, run_id: Any, declared: Declarations) -> tuple[int, int, int]:
    """Ask of every event; how many forks, refusals and checkpoints came of it."""
    forks = refusals = checkpoints = 0
    for version in range(1, ledger.head(run_id) + 1):
        for pointer, value in POINTERS.items():
            parents, known = rows(ledger, run_id), sum(1 for _ in ledger.runs())
            try:
                fork = what_if(ledger, run_id, version, {pointer: value}, declarations=declared)
            except ChangeRefusedError:
                assert sum(1 for _ in ledger.runs()) == known
                refusals += 1
            else:
                checkpoints += check_fork(ledger, fork, declared)
                forks += 1
            assert rows(ledger, run_id) == parents
    return forks, refusals, checkpoints


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_event_of_every_history_is_changed_or_refused(name: str) -> None:
    """The fork verifies and folds, its checkpoints are right, and its parent is as it was."""
    with opened(GOLDEN[name]) as ledger:
        for run_id in [str(info.run_id) for info in ledger.runs()]:
            forks, refusals, _ = every_fork(ledger, run_id, declarations())
            assert forks > 2
            assert refusals > forks


@pytest.mark.parametrize("name", OF_AGENTS)
def test_every_event_of_every_agents_history_is_changed_or_refused(name: str) -> None:
    """The same for the histories that real loops left."""
    with opened((HISTORIES / name).read_bytes()) as ledger:
        for run_id in [str(info.run_id) for info in ledger.runs()]:
            forks, refusals, _ = every_fork(ledger, run_id, session_declarations())
            assert forks > 2
            assert refusals > forks


def test_a_prompts_stream_has_no_what_if() -> None:
    """Its overrides are set again, and its past stays: every change is refused."""
    with opened(GOLDEN["overridden-prompt"]) as ledger:
        (prompt,) = ledger.runs(kind="prompt")
        forks, refusals, _ = every_fork(ledger, str(prompt.run_id), declarations())
    assert forks == 0
    assert refusals


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_of_every_kind_of_loop_is_changed_or_refused(
    ledger: Ledger, tmp_path: Path, kind: str
) -> None:
    """The same for runs in the commits of a real loop, where checkpoints come along."""
    agent = Agent(kind, tmp_path / "effects", ledger)
    run_id = new_run_id()
    _, session = agent.execute(Order(), run_id=run_id)
    forks, refusals, checkpoints = every_fork(ledger, run_id, session.declarations)
    assert forks > 2
    assert refusals > forks
    assert checkpoints
