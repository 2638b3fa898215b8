"""`InnerMessage` and `ToolCallRecord`: what a message is, whichever provider it came from."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from turnledger.ledger import (
    NEW,
    InnerMessage,
    InvalidEventError,
    Ledger,
    MediaContent,
    MessageAppended,
    ToolCallRecord,
    new_run_id,
)


def test_a_tool_call_record_has_the_fields_of_the_seed() -> None:
    """S0-1: call_id, name, arguments as JSON text and a status that is pending; frozen."""
    call = ToolCallRecord(call_id="c1", name="add", arguments='{"n": 1}')
    assert (call.call_id, call.name, call.arguments) == ("c1", "add", '{"n": 1}')
    assert call.status == "pending"
    assert ToolCallRecord("c1", "add", "{}", status="failed").status == "failed"
    with pytest.raises(AttributeError):
        call.status = "completed"  # type: ignore[misc]


def test_an_inner_message_has_the_fields_and_defaults_of_the_seed() -> None:
    """S0-2: a time of its own in UTC and an id of its own; frozen."""
    before = datetime.now(UTC)
    message = InnerMessage(role="assistant", content="Hi", evaluation_id="e1", sequence=3)
    assert (message.tool_calls, message.tool_call_id, message.tool_name) == ((), None, None)
    assert (message.turn, message.prompt_ns, message.prompt_key) == (0, "", "")
    assert before <= message.created_at <= datetime.now(UTC)
    assert message.created_at.utcoffset() == datetime.now(UTC).utcoffset()
    assert (type(message.message_id), message.message_id.version) == (UUID, 4)
    other = InnerMessage(role="assistant", content="Hi", evaluation_id="e1", sequence=3)
    assert other.message_id != message.message_id
    with pytest.raises(AttributeError):
        message.content = "Bye"  # type: ignore[misc]


def test_dataclass_functions_work_on_messages_and_calls() -> None:
    """S0-1: `fields`, `replace` and `asdict`, with defaults and what is nested."""
    call = ToolCallRecord("c1", "add", "{}")
    message = InnerMessage(
        "assistant", "Hi", "e1", 3, tool_calls=(call,), parts=(MediaContent("image", blob="b"),)
    )
    for kind in (InnerMessage, ToolCallRecord):
        assert tuple(field.name for field in fields(kind)) == kind.__struct_fields__
    assert [field.default for field in fields(ToolCallRecord)][3] == "pending"
    assert replace(call, status="completed") == ToolCallRecord("c1", "add", "{}", "completed")
    assert replace(message, content="Bye").message_id == message.message_id
    plain = asdict(message)
    assert plain["tool_calls"] == (asdict(call),)
    assert plain["parts"][0]["blob"] == "b"
    assert InnerMessage(**{**plain, "tool_calls": (call,), "parts": message.parts}) == message


@pytest.mark.parametrize("role", ["bot", "", "System", None, ["user"]])
def test_a_message_of_another_role_is_refused(role: object) -> None:
    """S0-2: when it is made, and when it is changed; the error lists the roles."""
    with pytest.raises(InvalidEventError, match="expected one of system, assistant, user, tool"):
        InnerMessage(role, "Hi", "e1", 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidEventError, match="Invalid role"):
        replace(InnerMessage("user", "Hi", "e1", 0), role=role)  # type: ignore[arg-type]


def test_what_is_stored_of_a_message_is_no_providers_form() -> None:
    """S0-24: roles, text and calls under our own names, with nothing of a wire format."""
    run_id = new_run_id()
    message = InnerMessage(
        role="assistant",
        content="One moment.",
        evaluation_id="e1",
        sequence=1,
        turn=1,
        tool_calls=(ToolCallRecord("c1", "add", '{"n": 1}'),),
        created_at=datetime(2025, 3, 1, tzinfo=UTC),
        message_id=UUID(int=7, version=4),
    )
    with Ledger.open("memory://") as ledger:
        ledger.append(run_id, MessageAppended(message=message), NEW)
        (record,) = ledger.read(run_id)
    stored = json.loads(record.data)["message"]
    assert set(stored) <= set(InnerMessage.__struct_fields__)
    assert stored["tool_calls"] == [{"call_id": "c1", "name": "add", "arguments": '{"n": 1}'}]
