"""The seeds' examples of sessions, typed as they stand but for the import paths."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from turnledger.ledger import InnerMessage, ToolCallRecord
from turnledger.projections import (
    get_inner_messages,
    get_latest_evaluation_id,
    get_pending_tool_calls,
    inner_message_append,
)
from turnledger.runtime import (
    InProcessEventBus,
    Session,
    Snapshot,
    ToolContext,
    ToolResult,
    enable_inner_message_recording,
)
from turnledger.runtime.session import Overlay


class InnerLoop:
    """The seed's recording of a conversation, as far as it needs no provider."""

    def __init__(self, session: Session, evaluation_id: str) -> None:
        self.session = session
        self._evaluation_id = evaluation_id
        self._sequence = 0
        self._turn = 0

    def _record_message(
        self,
        role: Any,
        content: str,
        *,
        tool_calls: tuple[ToolCallRecord, ...] = (),
        tool_call_id: str | None = None,
        tool_name: str | None = None,
    ) -> InnerMessage:
        message = InnerMessage(
            role=role,
            content=content,
            evaluation_id=self._evaluation_id,
            sequence=self._sequence,
            turn=self._turn,
            tool_calls=tool_calls,
            tool_call_id=tool_call_id,
            tool_name=tool_name,
            prompt_ns="ns",
            prompt_key="key",
        )
        self._sequence += 1
        self.session.mutate(InnerMessage).append(message)
        return message

    def _handle_assistant_response(self, content: str | None, *call_ids: str) -> None:
        self._turn += 1
        calls = tuple(ToolCallRecord(call_id=c, name="t", arguments="{}") for c in call_ids)
        self._record_message(role="assistant", content=content or "", tool_calls=calls)

    def _mark_tool_completed(self, call_id: str) -> None:
        messages = self.session.select_all(InnerMessage)

        for msg in reversed(messages):
            if msg.evaluation_id != self._evaluation_id:
                continue
            if msg.role != "assistant":
                continue

            for tc in msg.tool_calls:
                if tc.call_id == call_id:
                    updated_calls = tuple(
                        msgspec.structs.replace(t, status="completed")
                        if t.call_id == call_id
                        else t
                        for t in msg.tool_calls
                    )
                    updated_msg = msgspec.structs.replace(msg, tool_calls=updated_calls)
                    self.session.mutate(InnerMessage).dispatch(updated_msg)
                    return


def conversation(session: Session) -> None:
    """Two calls, of which one is answered: as if the process had died then."""
    loop = InnerLoop(session, "e1")
    loop._record_message(role="system", content="Be brief.")
    loop._handle_assistant_response(None, "c1", "c2")
    loop._record_message(role="tool", content="Result 1", tool_call_id="c1", tool_name="t")
    loop._mark_tool_completed("c1")


def test_basic_resume_and_resume_from_checkpoint(tmp_path: Path) -> None:
    """S0-6, S0-9, S0-22: the seed's "Usage Example", without the adapter."""
    checkpoint = tmp_path / "checkpoint.json"

    # Setup session with recording
    session = Session(bus=InProcessEventBus())
    session.mutate(InnerMessage).register(
        InnerMessage,
        inner_message_append,
    )

    # Save checkpoint after each message
    saved: list[int] = []

    def save_on_change(old: Any, new: Any) -> None:
        if len(new) > len(old):
            checkpoint.write_text(session.snapshot().to_json())
            saved.append(len(new))

    session.observe(InnerMessage, save_on_change)
    conversation(session)
    assert saved == [1, 2, 3]

    # Load checkpoint
    snapshot = Snapshot.from_json(checkpoint.read_text())

    resumed = Session(bus=InProcessEventBus())
    resumed.mutate(InnerMessage).register(
        InnerMessage,
        inner_message_append,
    )
    resumed.mutate().rollback(snapshot)
    assert resumed.select_all(InnerMessage) == session.select_all(InnerMessage)
    pending = get_pending_tool_calls(resumed, "e1")
    assert [call.call_id for call in pending] == ["c2"]


def test_inspecting_a_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    """S0-10, S0-11: the seed's loop over the messages of the latest evaluation."""
    session = Session(bus=InProcessEventBus())
    enable_inner_message_recording(session)
    assert get_latest_evaluation_id(session) is None
    conversation(session)

    messages = session.select_all(InnerMessage)
    assert len(messages) == 3

    eval_id = get_latest_evaluation_id(session)
    conversation_ = get_inner_messages(session, eval_id)

    for msg in conversation_:
        print(f"[{msg.sequence}] {msg.role}: {msg.content[:50]}...")
    assert capsys.readouterr().out == (
        "[0] system: Be brief....\n[1] assistant: ...\n[2] tool: Result 1...\n"
    )


def test_the_seeds_snapshot_is_read_whatever_module_it_names() -> None:
    """S0-9: types are spelled "module:Class" and only ever compared."""
    text = json.dumps(
        {
            "slices": [
                {
                    "slice_type": "weakincentives.runtime.inner_messages:InnerMessage",
                    "item_type": "weakincentives.runtime.inner_messages:InnerMessage",
                    "items": [
                        {
                            "role": "system",
                            "sequence": 0,
                            "content": "Be brief.",
                            "evaluation_id": "e1",
                            "created_at": datetime(2025, 1, 1, tzinfo=UTC).isoformat(),
                            "message_id": str(UUID(int=5)),
                        }
                    ],
                }
            ]
        }
    )
    session = Session()
    enable_inner_message_recording(session)
    session.mutate().rollback(Snapshot.from_json(text))
    (found,) = session.select_all(InnerMessage)
    assert (found.content, found.message_id) == ("Be brief.", UUID(int=5))


# --- the main loop's -----------------------------------------------------------------


@dataclass(frozen=True)
class SentEmails:
    key: str


SentEmail = SentEmails


@dataclass(frozen=True)
class SendEmailParams:
    idempotency_key: str


def send_email_handler(params: SendEmailParams, *, context: ToolContext) -> ToolResult[None]:
    # Check if already sent (idempotency key in session)
    sent_emails = context.session[SentEmails].all()
    if params.idempotency_key in {e.key for e in sent_emails}:
        return ToolResult(message="Email already sent", success=True)

    # Send and record
    context.session[SentEmails].append(SentEmail(key=params.idempotency_key))
    return ToolResult(message="Email sent", success=True)


def test_a_tool_sees_what_it_recorded_itself() -> None:
    """S2-24: the seed's send_email handler, within one call and in the next."""
    session = Session()
    params = SendEmailParams("k1")
    overlay = Overlay(session.journal, "c1")
    with session.scope(overlay):
        context = ToolContext(call_id="c1", session=session)
        assert send_email_handler(params, context=context).message == "Email sent"
        assert send_email_handler(params, context=context).message == "Email already sent"
    assert session[SentEmails].all() == ()
    session.journal.add(*overlay.close())
    again = replace(params)
    context = ToolContext(call_id="c2", session=session)
    assert send_email_handler(again, context=context).message == "Email already sent"
