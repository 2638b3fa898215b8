"""Listeners of tools: they see what a tool changed before it is committed, and may refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.agent import calls, says
from tests.unit.runtime.evaluations import (
    Add,
    Scripted,
    Sum,
    adding,
    again,
    events,
    on,
    prompt_of,
    run,
    told,
    tool,
)
from turnledger.ledger import (
    InnerMessage,
    InvalidInputError,
    Ledger,
    ToolCallCompleted,
    ToolCallFailed,
)
from turnledger.runtime import (
    ExecutionState,
    Session,
    SnapshotableFilesystem,
    ToolContext,
    ToolInvoked,
    enable_inner_message_recording,
)

STORES = ["memory", "sqlite"]


def test_a_listener_that_fails_undoes_what_the_tool_changed(ledger: Ledger) -> None:
    """S4-16, X28: the call is completed, the message carries all errors."""
    session = on(ledger)
    enable_inner_message_recording(session)
    seen: list[tuple[Sum, ...]] = []

    def object_to(event: ToolInvoked) -> None:
        seen.append(session[Sum].all())
        raise PermissionError("not that")

    def object_too(event: ToolInvoked) -> None:
        raise InvalidInputError("nor so")

    session.bus.subscribe(ToolInvoked, object_to)
    session.bus.subscribe(ToolInvoked, object_too)
    run(adding, session=session)
    assert seen == [(Sum(2),)]
    assert session[Sum].all() == ()
    assert "PermissionError: not that" in told(session)[0]
    assert "InvalidInputError: nor so" in told(session)[0]
    assert len(events(session, ToolCallCompleted)) == 1
    assert session[InnerMessage].all()[1].tool_calls[0].status == "completed"
    assert again(session)[Sum].all() == ()


def test_a_listener_sees_the_tools_changes_before_they_are_committed() -> None:
    """S4-16: ToolInvoked comes after the handler and before the commit."""
    session = Session()
    seen: list[Any] = []

    def look(event: ToolInvoked) -> None:
        seen.append((session[Sum].all(), session.journal.committed.run.slices.all("Sum")))
        session[Sum].append(Sum(100))

    session.bus.subscribe(ToolInvoked, look)
    run(adding, session=session)
    assert seen == [((Sum(2),), ())]
    assert session[Sum].all() == (Sum(2), Sum(100))


def test_what_a_listener_notes_about_a_failed_tool_stays() -> None:
    """Only what the tool itself changed is undone."""

    def fail(params: Add, *, context: ToolContext) -> str:
        context.session[Sum].append(Sum(1))
        raise LookupError("no")

    session = Session()
    session.bus.subscribe(ToolInvoked, lambda event: session[Sum].append(Sum(-1)))
    run(fail, session=session)
    assert session[Sum].all() == (Sum(-1),)
    assert again(session)[Sum].all() == (Sum(-1),)


def test_a_failed_tool_whose_failure_is_objected_to_stays_failed() -> None:
    """The model is told both."""

    def fail(params: Add, *, context: ToolContext) -> str:
        raise LookupError("no")

    def object_to(event: ToolInvoked) -> None:
        raise PermissionError("not that")

    session = Session()
    session.bus.subscribe(ToolInvoked, object_to)
    run(fail, session=session)
    assert "LookupError: no" in told(session)[0]
    assert "not that" in told(session)[0]
    assert len(events(session, ToolCallFailed)) == 1


# --- resources ---------------------------------------------------------------------------


def test_files_go_back_with_a_tool_that_fails_or_is_refused(tmp_path: Path) -> None:
    """S2-17: and stay with one that succeeds, in the commit of its result."""
    (tmp_path / "work").mkdir()
    files = SnapshotableFilesystem(tmp_path / "work")
    session = Session()
    state = ExecutionState(session=session, resources={"files": files})

    def write(params: Add, *, context: ToolContext) -> str:
        (tmp_path / "work" / "sum.txt").write_text(str(params.n))
        if params.n == 3:
            raise LookupError("no")
        return "ok"

    left: list[bool] = []
    session.bus.subscribe(
        ToolInvoked, lambda event: left.append((tmp_path / "work" / "sum.txt").exists())
    )

    def object_to(event: ToolInvoked) -> None:
        if event.params == Add(2):
            raise PermissionError("not that")

    session.bus.subscribe(ToolInvoked, object_to)
    script = [*(calls((f"c{n}", "add", f'{{"n": {n}}}')) for n in (3, 1, 2, 3)), says("done")]
    Scripted(script).evaluate(prompt_of(tool(write)), execution_state=state)
    assert (tmp_path / "work" / "sum.txt").read_text() == "1"
    assert left == [False, True, True, True]
    assert len(events(session, ToolCallCompleted)) == 2
