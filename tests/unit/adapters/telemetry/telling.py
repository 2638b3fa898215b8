"""Runs that the tests of spans tell, commit by commit, a second apart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from opentelemetry.sdk.trace import ReadableSpan

from turnledger.ledger import (
    ANY,
    EvaluationStarted,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    RunCompleted,
    RunStarted,
    TokenUsage,
    ToolCallCompleted,
    ToolCallStarted,
    new_run_id,
)
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.events.messages import ToolCallRecord
from turnledger.telemetry import export_spans

SECOND = 1_000_000


class TickingClock(SystemClock):
    """A second goes by with every look at it."""

    now = 1_700_000_000 * SECOND

    def micros(self) -> int:
        self.now += SECOND
        return self.now


def tell(ledger: Ledger, *commits: list[Event], run: UUID | None = None) -> UUID:
    """Append commits to a run, by default a new one."""
    told = run or new_run_id()
    for events in commits:
        ledger.append(told, events, ANY)
    return told


def step(call_id: str, **more: Any) -> ToolCallStarted:
    name = call_id.rpartition("/")[2].partition("#")[0]
    return ToolCallStarted(evaluation_id="", call_id=call_id, name=name, **more)


def done(call_id: str, value: Any = None, **more: Any) -> ToolCallCompleted:
    name = call_id.rpartition("/")[2].partition("#")[0]
    return ToolCallCompleted(evaluation_id="", call_id=call_id, name=name, value=value, **more)


def said(role: Any, text: str, sequence: int, **more: Any) -> MessageAppended:
    return MessageAppended(message=InnerMessage(role, text, "first", sequence, **more))


def conversation() -> list[list[Event]]:
    """A run of an agent: a model that calls a tool, and its answer."""
    of: dict[str, Any] = {"evaluation_id": "first"}
    call = ToolCallRecord("c1", "pay", '{"euros": 5}')
    asks = said("assistant", "I pay.", 2, tool_calls=(call,), turn=1)
    paid = said("tool", "Paid 5.", 3, tool_call_id="c1", tool_name="pay", turn=1)
    answers = said("assistant", "It is paid.", 4, turn=2)
    usage = TokenUsage(input_tokens=10, output_tokens=3, cached_tokens=4)
    model = {"adapter": "openai", "model": "gpt-5"}
    return [
        [RunStarted(agent="shop/pay", tags={"customer": "acme"}, request={"invoice": 7})],
        [
            EvaluationStarted(**of, prompt_ns="shop", prompt_key="pay", prompt_digest="-"),
            said("system", "You pay.", 0),
            said("user", "Pay invoice 7.", 1),
            ModelCalled(**of, turn=1, request_digest="-", **model),
        ],
        # The reply before its message, as older programs wrote it.
        [
            ModelReplied(
                **of,
                turn=1,
                message_id=asks.message.message_id,
                usage=usage,
                finish_reason="tool_calls",
                model="gpt-5-2026",
            ),
            asks,
            ToolCallStarted(**of, call_id="c1", name="pay"),
        ],
        [
            ToolCallCompleted(
                **of, call_id="c1", name="pay", message_id=paid.message.message_id, value={"ok": 1}
            ),
            paid,
            ModelCalled(**of, turn=2, request_digest="-", **model),
        ],
        [
            answers,
            ModelReplied(**of, turn=2, message_id=answers.message.message_id, usage=usage),
        ],
        [RunCompleted(output="It is paid.")],
    ]


def spans_by_name(ledger: Ledger, run: UUID, **options: Any) -> dict[str, ReadableSpan]:
    """The spans of a run, of those with the same name the last."""
    return {span.name: span for span in export_spans(ledger, run, **options)}
