"""The workspace digest: a slice of the session, and the section that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says
from turnledger.ledger import InvalidInputError, Ledger, new_run_id
from turnledger.projections import state_at
from turnledger.runtime import (
    FilesystemCheckpointBackend,
    Prompt,
    PromptTemplate,
    RecoveryConfig,
    Session,
    Tool,
    ToolContext,
    ToolResult,
    replay,
)
from turnledger.runtime.agent.prompts import MarkdownSection
from turnledger.runtime.workspace import (
    WorkspaceDigest,
    WorkspaceDigestSection,
    clear_workspace_digest,
    latest_workspace_digest,
    set_workspace_digest,
)
from turnledger.runtime.workspace.digest import PLACEHOLDER


class Overrides:
    """A store with one text, for the digest section."""

    def __init__(self, text: str) -> None:
        self._text = text

    def section_overrides(self, ns: str, key: str, tag: str) -> dict[str, str]:
        return {"workspace-digest": self._text}


def prompt_of(*more: Any) -> Prompt[Any]:
    return Prompt(PromptTemplate(ns="n", key="k", sections=[WorkspaceDigestSection(), *more]))


def test_a_session_has_one_digest_for_each_section() -> None:
    """Setting one again replaces it, clearing one leaves the others."""
    session = Session()
    assert session[WorkspaceDigest].latest() is None
    set_workspace_digest(session, "a", "one")
    set_workspace_digest(session, "b", "two")
    assert set_workspace_digest(session, "a", " three\n") == WorkspaceDigest("a", "three")
    assert session[WorkspaceDigest].latest() == WorkspaceDigest("a", "three")
    clear_workspace_digest(session, "a")
    assert latest_workspace_digest(session, "a") is None
    assert session[WorkspaceDigest].all() == (WorkspaceDigest("b", "two"),)
    names = [record.event.slice for record in session.journal.records() if record.version > 1]  # type: ignore[union-attr]
    assert set(names) == {"turnledger.WorkspaceDigest"}


@pytest.mark.parametrize(("key", "body"), [("a", " "), ("", "text"), ("a", None), (5, "text")])
def test_a_digest_without_text_or_key_is_refused(key: Any, body: Any) -> None:
    """Nothing is changed."""
    session = Session()
    with pytest.raises((InvalidInputError, TypeError)):
        set_workspace_digest(session, key, body)
    assert session[WorkspaceDigest].all() == ()


def test_a_section_shows_the_sessions_digest_else_the_override_else_a_placeholder(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The session's is text, the override a template. Only the last case is worth a warning."""
    prompt, session = prompt_of(), Session()
    set_workspace_digest(session, "workspace-digest", "costs ${price}")
    store = Overrides("overridden $${text}")
    assert prompt.render(state=session, overrides_store=store).text.endswith("costs ${price}")
    assert prompt.render(state=Session(), overrides_store=store).text.endswith("overridden ${text}")
    assert caplog.messages == []
    assert prompt.render().text.endswith(PLACEHOLDER)
    assert caplog.messages == ["section workspace-digest has no workspace digest to show"]


# --- in a run ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Note:
    text: str


class NotingLoop(ScriptedLoop[Note, Any]):
    """A loop whose tool sets the digest; its second call dies while `is_doomed`."""

    is_doomed = False

    def create_session(self) -> Session:
        session = super().create_session()
        set_workspace_digest(session, "workspace-digest", "as it began")
        return session

    def create_prompt(self, request: Note) -> Prompt[Any]:
        tool = Tool[Note, None](name="note", description="Note.", handler=self._note)
        return prompt_of(MarkdownSection(title="Task", template="Go.", key="task", tools=[tool]))

    def _note(self, params: Note, *, context: ToolContext) -> ToolResult[None]:
        if self.is_doomed and params.text == "two":
            raise Crash
        set_workspace_digest(context.session, "workspace-digest", params.text)
        return ToolResult("Noted.")


REPLIES = [
    calls(("c1", "note", '{"text": "one"}')),
    calls(("c2", "note", '{"text": "two"}')),
    says("done"),
]


def test_a_digest_that_a_tool_sets_does_not_change_the_evaluation_that_it_runs_in() -> None:
    """The resumed evaluation is rendered from the state in which it began, and so is a replay."""
    with Ledger.open("memory://") as ledger:
        whole, broken = new_run_id(), new_run_id()
        NotingLoop(REPLIES, ledger=ledger).execute(Note("go"), run_id=whole)
        loop = NotingLoop(REPLIES, ledger=ledger)
        loop.is_doomed = True
        with pytest.raises(Crash):
            loop.execute(Note("go"), run_id=broken)
        _, session = NotingLoop(REPLIES, ledger=ledger).recover(broken)
        assert session[WorkspaceDigest].latest() == WorkspaceDigest("workspace-digest", "two")
        digests = {state_at(ledger, run).outcome_digest for run in (whole, broken)}
        assert len(digests) == 1
        for run in (whole, broken):
            assert replay(ledger, run, loop=NotingLoop(REPLIES, ledger=ledger)).divergence is None


def test_checkpoint_files_hold_the_state_in_which_the_evaluation_began(tmp_path: Path) -> None:
    """So that a recovery without a ledger renders the same prompt, and has the later digest."""
    recovery = RecoveryConfig(backend=FilesystemCheckpointBackend(tmp_path))
    run = new_run_id()
    loop = NotingLoop(REPLIES, recovery=recovery)
    loop.is_doomed = True
    with pytest.raises(Crash):
        loop.execute(Note("go"), run_id=run)
    response, session = NotingLoop(REPLIES, recovery=recovery).recover(run)
    assert response.text == "done"
    assert session[WorkspaceDigest].latest() == WorkspaceDigest("workspace-digest", "two")


def test_the_next_evaluation_shows_the_digest_that_a_tool_has_set() -> None:
    """The system message of each run is the digest as it was then."""
    with Ledger.open("memory://") as ledger:
        texts: list[str] = []

        def reply(request: Any) -> Any:
            texts.append(request.system)
            return REPLIES[0] if len(texts) == 1 else says("done")

        loop = NotingLoop(reply, ledger=ledger)
        session = loop.create_session()
        loop.create_session = lambda: session  # type: ignore[method-assign]
        loop.execute(Note("go"))
        loop.execute(Note("go"))
        shown = ["one" if "\none\n" in text else "began" for text in texts]
        assert shown == ["began", "began", "one"]
