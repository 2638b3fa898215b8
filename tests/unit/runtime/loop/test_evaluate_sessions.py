"""Evaluations and the session that they are in: several of them, overrides, messages beside."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread
from typing import Any

import pytest

from tests.agent import Crash, calls, says
from tests.unit.runtime.evaluations import (
    ADD,
    Add,
    Dying,
    Scripted,
    Sum,
    adding,
    again,
    events,
    messages,
    prompt_of,
    tool,
)
from turnledger.ledger import EvaluationFinished, EvaluationStarted, InnerMessage, ToolCallStarted
from turnledger.runtime import (
    ExecutionState,
    PromptEvaluationError,
    Session,
    SessionError,
    SnapshotableFilesystem,
    ToolContext,
    enable_inner_message_recording,
)


def test_without_resume_a_new_conversation_begins() -> None:
    """S0-13: the calls that another one left wait for nobody there."""
    session, handler = Session(), Dying("c1")
    with pytest.raises(Crash):
        Scripted([ADD]).evaluate(prompt_of(tool(handler)), session=session)
    adapter = Scripted([says("fresh")])
    assert adapter.evaluate(prompt_of(tool(handler)), session=session).text == "fresh"
    assert len(handler.ran) == 1
    first, second = (event.evaluation_id for event in events(session, EvaluationStarted))
    assert first != second
    assert [(one.sequence, one.evaluation_id) for one in messages(session)[-2:]] == [
        (0, second),
        (1, second),
    ]
    assert len(adapter.requests[0].turns) == 1


def test_the_same_call_id_in_two_evaluations_is_two_calls() -> None:
    """Each evaluation runs its own."""
    session, handler = Session(), Dying()
    for _ in range(2):
        Scripted([ADD, says("4")]).evaluate(prompt_of(tool(handler)), session=session)
    assert handler.ran == [("c1", False), ("c1", False)]
    assert [event.attempt for event in events(session, ToolCallStarted)] == [1, 1]


def test_an_id_that_a_later_turn_uses_again_is_not_a_resumed_call() -> None:
    """S0-19: `is_resume` is about the call, not about its id."""
    session, handler = Session(), Dying("c1")
    with pytest.raises(Crash):
        Scripted([ADD]).evaluate(prompt_of(tool(handler)), session=session)
    handler.dies_in = set()
    script = [ADD, ADD, says("4")]
    Scripted(script).evaluate(prompt_of(tool(handler)), session=again(session), resume=True)
    assert handler.ran == [("c1", False), ("c1", True), ("c1", False)]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_user_who_says_more_gets_another_answer(elsewhere: bool) -> None:
    """S0-17: a conversation whose last word is the user's just goes on."""
    session = Session()
    Scripted([says("one")]).evaluate(prompt_of(), session=session)
    last = messages(session)[-1]
    session.mutate(InnerMessage).append(
        InnerMessage(
            "user",
            "And now?",
            evaluation_id=last.evaluation_id,
            sequence=2,
            turn=1,
            prompt_ns="tests",
            prompt_key="sum",
        )
    )
    session = again(session) if elsewhere else session
    adapter = Scripted([says("one"), says("two")])
    assert adapter.evaluate(prompt_of(), session=session, resume=True).text == "two"
    assert [turn.role for turn in adapter.requests[0].turns] == ["user", "assistant", "user"]
    assert [(one.role, one.sequence) for one in messages(session)] == [
        ("system", 0),
        ("assistant", 1),
        ("user", 2),
        ("assistant", 3),
    ]
    assert len(events(session, EvaluationFinished)) == 2


def test_a_tools_own_message_comes_before_its_result() -> None:
    """S0-3: sequence stays strict, and what the tool said vanishes with it if it fails."""

    def tell(params: Add, *, context: ToolContext) -> str:
        said = context.session[InnerMessage].all()
        context.session.mutate(InnerMessage).append(
            InnerMessage(
                "user",
                "By the way.",
                evaluation_id=said[0].evaluation_id,
                sequence=len(said),
                turn=1,
            )
        )
        if params.n:
            raise LookupError("no")
        return "ok"

    session = Session()
    enable_inner_message_recording(session)
    script = [calls(("a", "add")), ADD, says("end")]
    Scripted(script).evaluate(prompt_of(tool(tell)), session=session)
    assert [(one.role, one.sequence) for one in messages(session)] == [
        ("system", 0),
        ("assistant", 1),
        ("user", 2),
        ("tool", 3),
        ("assistant", 4),
        ("tool", 5),
        ("assistant", 6),
    ]


class Store:
    """Overrides by tag."""

    def section_overrides(self, ns: str, key: str, tag: str) -> Mapping[str, str] | None:
        return {"task": f"Do it like {tag}."} if (ns, key) == ("tests", "sum") else None


def test_an_overrides_store_is_used_for_rendering() -> None:
    """S4-1, S4-24: with the tag, "latest" unless another is given."""
    adapter = Scripted([says("ok")])
    adapter.evaluate(prompt_of(), session=Session(), overrides_store=Store())
    adapter.evaluate(prompt_of(), session=Session(), overrides_store=Store(), overrides_tag="v2")
    assert "Do it like latest." in adapter.requests[0].system
    assert "Do it like v2." in adapter.requests[1].system


def test_two_evaluations_at_once_in_one_session_are_refused() -> None:
    """The first one says what happened; the session can be used again."""
    session, inside, go_on = Session(), Event(), Event()
    raised: list[Exception] = []

    def wait(params: Add, *, context: ToolContext) -> str:
        inside.set()
        assert go_on.wait(30)
        return "ok"

    def first() -> None:
        try:
            Scripted([ADD, says("4")]).evaluate(prompt_of(tool(wait)), session=session)
        except Exception as error:
            raised.append(error)

    thread = Thread(target=first)
    thread.start()
    assert inside.wait(30)
    Scripted([says("second")]).evaluate(prompt_of(), session=session)
    go_on.set()
    thread.join(30)
    (error,) = raised
    assert isinstance(error, SessionError)
    assert "session of its own" in str(error)
    assert Scripted([says("third")]).evaluate(prompt_of(), session=session).text == "third"


def test_an_interrupt_while_tools_run_side_by_side_closes_their_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they change later is refused, and their calls are in doubt."""
    from turnledger.runtime.loop.perform import run_tools as side_by_side

    go_on, over, running = Event(), Event(), Event()
    refused: list[str] = []

    def late(params: Add, *, context: ToolContext) -> str:
        running.set()
        assert go_on.wait(30)
        try:
            context.session[Sum].append(Sum(1))
        except Exception as error:
            refused.append(type(error).__name__)
        over.set()
        return "late"

    def interrupted(*args: Any) -> Any:
        assert running.wait(30)
        raise KeyboardInterrupt

    session = Session()
    script = [calls(("a", "add"), ("b", "no such tool")), says("end")]
    with monkeypatch.context() as patch:
        patch.setattr(side_by_side, "wait_for_one", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Scripted(script, parallel_tools=2).evaluate(prompt_of(tool(late)), session=session)
    go_on.set()
    assert over.wait(30)
    assert refused == ["ScopeClosedError"]
    other = again(session)
    assert Scripted(script).evaluate(prompt_of(tool(adding)), session=other, resume=True).text
    assert other[Sum].all() == (Sum(0),)


def test_what_cannot_be_undone_ends_the_evaluation(tmp_path: Any) -> None:
    """S4-3: in the phase "tool": nobody may go on as if it had been."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "kept.txt").write_text("kept")
    session = Session()
    state = ExecutionState(session=session, resources={"files": SnapshotableFilesystem(work)})

    def spoil(params: Add, *, context: ToolContext) -> str:
        (work / "kept.txt").unlink()
        work.rmdir()
        work.write_text("a file where the folder was")
        raise LookupError("no")

    with pytest.raises(PromptEvaluationError, match="can't be restored") as caught:
        Scripted([ADD, says("4")]).evaluate(prompt_of(tool(spoil)), execution_state=state)
    assert caught.value.phase == "tool"
    assert [call.status for call in session.state.tools.calls] == ["failed"]  # it has ended
