"""Events and state of Google ADK as they are recorded: JSON, and the messages in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from turnledger.adapters.frameworks.packages import framework
from turnledger.adapters.frameworks.sessions import (
    call_events,
    last_message,
    numbered_ids,
    transcript_of,
    usage_in,
)
from turnledger.adapters.transcripts import MessageWriter
from turnledger.ledger import Event as LedgerEvent
from turnledger.ledger import InvalidInputError, Ledger, ModelReplied
from turnledger.ledger.clock import EPOCH, to_datetime

with framework("google.adk", extra="adk", integration="turnledger.adk"):
    from google.adk.events import Event
    from google.adk.sessions import State
    from pydantic_core import PydanticSerializationError, to_jsonable_python

MAIN = "session"
_WIRE = "gemini"


class Scopes(NamedTuple):
    """State by who it belongs to, without prefixes. Temporary state belongs to nobody."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]


def by_scope(state: Mapping[str, Any]) -> Scopes:
    """State by who it belongs to, as the prefixes of its names say."""
    scopes = Scopes({}, {}, {})
    for name, value in state.items():
        if name.startswith(State.APP_PREFIX):
            scopes.app[name.removeprefix(State.APP_PREFIX)] = value
        elif name.startswith(State.USER_PREFIX):
            scopes.user[name.removeprefix(State.USER_PREFIX)] = value
        elif not name.startswith(State.TEMP_PREFIX):
            scopes.session[name] = value
    return scopes


def plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """State as JSON; InvalidInputError if it has no such form."""
    try:
        plain: dict[str, Any] = to_jsonable_python(dict(state))
    except PydanticSerializationError as error:
        raise InvalidInputError(
            f"The state can't be recorded as JSON: {error}. Keep what is not data under a "
            "'temp:' key."
        ) from error
    return plain


def event_json(event: Event) -> dict[str, Any]:
    """An event as it is recorded: without temporary state."""
    kept = event
    delta = event.actions.state_delta if event.actions else {}
    lasting = {k: v for k, v in delta.items() if not k.startswith(State.TEMP_PREFIX)}
    if delta:
        actions = event.actions.model_copy(update={"state_delta": plain_state(lasting)})
        kept = event.model_copy(update={"actions": actions})
    data: dict[str, Any] = kept.model_dump(mode="json", by_alias=True, exclude_none=True)
    return data


def message_events(
    ledger: Ledger, run_id: UUID, event_id: UUID, data: Mapping[str, Any]
) -> tuple[list[LedgerEvent], dict[str, bytes]]:
    """The messages in an event, with the starts and ends of tool calls, and the usage.

    Args:
        ledger: The ledger of the session.
        run_id: The session's run.
        event_id: The id that the event has in it.
        data: The event's JSON.

    Returns:
        The events, and the media that they name.
    """
    content = data.get("content")
    transcript = transcript_of(_WIRE, {"contents": [content]}) if content else None
    if transcript is None:
        return [], {}
    last = last_message(ledger, run_id)
    writer = MessageWriter(
        MAIN,
        _moment(data, ledger),
        numbered_ids(event_id),
        sequence=last.sequence + 1 if last else 0,
        turn=last.turn if last else 0,
    )
    events: list[LedgerEvent] = []
    written = None
    for message in (one for turn in transcript.turns for one in writer.write(turn)):
        written = message.message
        events += [message, *call_events(written)]
    if written is not None and written.role == "assistant" and "usageMetadata" in data:
        answer = {"candidates": [{"content": content}], "usageMetadata": data["usageMetadata"]}
        replied = ModelReplied(
            evaluation_id=MAIN,
            turn=written.turn,
            message_id=written.message_id,
            usage=usage_in(_WIRE, answer),
            model=data.get("modelVersion", ""),
            finish_reason=str(data.get("finishReason", "")),
        )
        events.append(replied)
    return events, dict(transcript.blobs)


def _moment(data: Mapping[str, Any], ledger: Ledger) -> datetime:
    try:
        return datetime.fromtimestamp(data["timestamp"], tz=EPOCH.tzinfo)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return to_datetime(ledger.clock.micros())


def lasting_parts(event: Event) -> dict[str, Any]:
    """What of an event is the same when its run is resumed: not its ids and times."""
    delta = event.actions.state_delta if event.actions else {}
    lasting = {k: v for k, v in delta.items() if not k.startswith(State.TEMP_PREFIX)}
    content = event.content
    return {
        "content": content and content.model_dump(mode="json", by_alias=True, exclude_none=True),
        "state": plain_state(lasting),
    }
