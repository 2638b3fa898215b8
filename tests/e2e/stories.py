"""Runs that the tests of commands look at, and text that tries to steer a terminal."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from tests.e2e.driving import InProcess
from turnledger.ledger import (
    NEW,
    CustomEvent,
    EvaluationStarted,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    RunCompleted,
    RunStarted,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    new_run_id,
)
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.events.messages import ToolCallRecord
from turnledger.projections import state_at

UNSAFE = "\x1b]0;evil\x07 \x1b[31m \x9b31m \x7f \r\n\t \u202egnp.exe\u2066 \u200f\u2028 \U000e0041"
MARKUP = "[bold red]not markup[/bold red] [link=http://evil]x[/link] :smile:"
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
EVALUATION = "first"
MOMENT = 1_700_000_000_000_000


class HeldClock(SystemClock):
    """Shows the time that it was set to."""

    now = MOMENT

    def micros(self) -> int:
        return self.now


def said(role: Any, text: str, sequence: int, **more: Any) -> MessageAppended:
    return MessageAppended(
        message=InnerMessage(role, text, more.pop("evaluation", EVALUATION), sequence, **more)
    )


def story() -> list[Event]:
    """A run with two tools, one of which fails, and a model that is asked again."""
    calls = (
        ToolCallRecord("c1", "weather", '{"city": "Lisbon"}'),
        ToolCallRecord("c2", "save", '{"path": "a.py", "content": "def f():\\n    return 1\\n"}'),
    )
    asks = said("assistant", "Let me look.", 2, tool_calls=calls, turn=1)
    sunny = said("tool", "21 degrees\nand sunny", 3, tool_call_id="c1", tool_name="weather")
    full = said("tool", "disk full", 4, tool_call_id="c2", tool_name="save", is_error=True)
    answers = said("assistant", "It is sunny, but I could not save it.", 5, turn=2)
    of: dict[str, Any] = {"evaluation_id": EVALUATION}
    return [
        RunStarted(tags={"team": "blue"}),
        EvaluationStarted(**of, prompt_ns="demo", prompt_key="trip", prompt_digest="d"),
        said("system", "You plan trips.", 0),
        said("user", "How is Lisbon?", 1),
        ModelCalled(**of, turn=1, request_digest="-", model="small"),
        asks,
        ModelReplied(
            **of,
            turn=1,
            message_id=asks.message.message_id,
            model="small",
            usage=TokenUsage(input_tokens=10, output_tokens=5, cached_tokens=2),
        ),
        ToolCallStarted(**of, call_id="c1", name="weather"),
        sunny,
        ToolCallCompleted(
            **of, call_id="c1", name="weather", message_id=sunny.message.message_id, value=21
        ),
        ToolCallStarted(**of, call_id="c2", name="save"),
        full,
        ToolCallFailed(
            **of,
            call_id="c2",
            name="save",
            message_id=full.message.message_id,
            error_type="OSError",
            error_message="disk full",
        ),
        ModelCalled(**of, turn=2, request_digest="-", model="large"),
        ModelCallFailed(**of, turn=2, error_type="Busy", error_message="503", retryable=True),
        ModelCalled(**of, turn=2, request_digest="-", model="large", attempt=2),
        answers,
        ModelReplied(
            **of,
            turn=2,
            message_id=answers.message.message_id,
            model="large",
            usage=TokenUsage(input_tokens=100, output_tokens=50, reasoning_tokens=7),
        ),
        RunCompleted(output={"ok": True}),
    ]


def stepped_story() -> list[Event]:
    """The same in two steps: the user asks again before the model's second turn."""
    events = story()
    events[3] = said("user", "How is Lisbon?", 1, step_num=1)
    events.insert(13, said("user", "And save it again?", 5, step_num=2))
    return events


def record(cli: InProcess, events: list[Event]) -> UUID:
    """A run of these events, recorded one a second."""
    run, clock = new_run_id(), HeldClock()
    with Ledger.open(cli.db, clock=clock) as ledger:
        for version, event in enumerate(events):
            clock.now = MOMENT + version * 1_000_000
            ledger.append(run, [event], version or NEW)
    return run


def record_custom_only(cli: InProcess) -> UUID:
    """A run that no view reads anything of."""
    return record(cli, [CustomEvent(kind="test.note", data=n) for n in range(3)])


def known(cli: InProcess, run: UUID | str, version: int | None = None) -> Any:
    """The state as the library gives it."""
    with cli.ledger() as ledger:
        return state_at(ledger, run, version).to_json()
