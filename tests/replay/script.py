"""A small program and the one who writes its runs down: fixed ids, a fixed clock.

What recording.py tells as stories becomes events here, in the commits of a real loop.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import msgspec

from turnledger.ledger import (
    ANY,
    CheckpointReached,
    Draft,
    EvaluationFinished,
    EvaluationStarted,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    RunCompleted,
    RunStarted,
    SliceEventApplied,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRecord,
    ToolCallStarted,
    UsedOverrides,
)
from turnledger.ledger.clock import to_micros
from turnledger.ledger.runs.claims import Claim
from turnledger.projections import (
    Declarations,
    RunState,
    inner_message_append,
    reducer,
    replace_latest,
    state_at,
    upsert_by,
)

NAMESPACE = UUID("0195f5a0-0000-7000-8000-00000000601d")
BEGIN = datetime(2026, 3, 1, 9, 0, 0, tzinfo=UTC)


# --- the program whose runs these are ------------------------------------------------


class SentEmail(msgspec.Struct, frozen=True):
    to: str
    subject: str = ""


class Step(msgspec.Struct, frozen=True):
    name: str
    done: bool = False


class WorkspaceDigest(msgspec.Struct, frozen=True):
    text: str


class Spent(msgspec.Struct, frozen=True):
    cents: int


class Wallet(msgspec.Struct, frozen=True):
    cents: int = 1000

    @reducer(on=Spent)
    def spend(self, event: Spent) -> Wallet:
        return Wallet(self.cents - event.cents)


def declarations() -> Declarations:
    declared = Declarations()
    declared.register(InnerMessage, InnerMessage, inner_message_append)
    declared.register(Step, Step, upsert_by(lambda step: step.name))
    declared.register(WorkspaceDigest, WorkspaceDigest, replace_latest)
    declared.register_class(Wallet)
    declared.declare(SentEmail)
    return declared


# --- writing it down -----------------------------------------------------------------


class FixedClock:
    """A tick of 250 ms a look; ids are made of a name and a count."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids = 0
        self._micros = to_micros(BEGIN)

    def micros(self) -> int:
        self._micros += 250_000
        return self._micros

    def new_id(self) -> str:
        self._ids += 1
        return str(uuid5(NAMESPACE, f"{self._name}/id/{self._ids}"))


class Script:
    """Writes a run as a loop would: what belongs together in one commit."""

    def __init__(self, ledger: Ledger, name: str, clock: FixedClock, run_id: UUID | None = None):
        self.ledger, self.name, self.clock = ledger, name, clock
        self.run_id = run_id or uuid5(NAMESPACE, f"{name}/run")
        self.claimed: Claim | None = None
        self.evaluation_id = ""
        self.sequence = self.turn = self.epoch = self.calls_completed = self._messages = 0

    def commit(self, *events: Event, blobs: tuple[bytes, ...] = ()) -> int:
        epoch = self.epoch or None
        drafts = [Draft(event, self.clock.new_id()) for event in events]
        return self.ledger.append(self.run_id, drafts, ANY, epoch, blobs=blobs).version

    def begin(self, **fields: Any) -> None:
        request_id = uuid5(self.run_id, "request")
        values = {"request_id": request_id, "request_type": "Ask", "request": {"question": "?"}}
        self.commit(RunStarted(**{**values, **fields}))
        self.claim()

    def claim(self, worker: str = "worker-1") -> None:
        """A worker takes the run; the one before is gone."""
        self.release()
        self.claimed = self.ledger.claim(self.run_id, worker=worker)
        self.epoch = self.claimed.epoch

    def release(self) -> None:
        if self.claimed is not None:
            self.ledger.release(self.claimed)

    def evaluate(
        self,
        key: str = "answer",
        *,
        user: str = "",
        number: int = 1,
        overrides: UsedOverrides | None = None,
        after: str = "",
        **accepted: Any,
    ) -> None:
        self.evaluation_id, self.sequence, self.turn = f"evaluation-{number}", 0, 0
        self.commit(
            EvaluationStarted(
                evaluation_id=self.evaluation_id,
                prompt_ns="demo",
                prompt_key=key,
                prompt_name=f"demo {key}",
                prompt_digest=f"prompt-{key}",
                tools_digest="tools-1",
                adapter="scripted",
                overrides=overrides,
                after=after,
                **accepted,
            ),
            self.message("system", f"You {key} questions. Be brief.", prompt_key=key),
            *([self.message("user", user)] if user else []),
        )

    def message(self, role: Any, content: str, **fields: Any) -> MessageAppended:
        self._messages += 1
        message_id = uuid5(self.run_id, f"message/{self._messages}")
        values: dict[str, Any] = {
            "turn": self.turn,
            "prompt_ns": "demo",
            "created_at": BEGIN + timedelta(minutes=self._messages),
            "message_id": message_id,
            **fields,
        }
        message = InnerMessage(role, content, self.evaluation_id, self.sequence, **values)
        self.sequence += 1
        return MessageAppended(message=message)

    def reply(self, content: str, *calls: tuple[str, str, str], **fields: Any) -> MessageAppended:
        """The model is asked and answers; the message, which is committed."""
        self.turn += 1
        request = f"request-{self.turn}"
        self.commit(
            ModelCalled(
                evaluation_id=self.evaluation_id,
                turn=self.turn,
                request_digest=request,
                adapter="scripted",
                model="parrot-1",
            )
        )
        asked = tuple(ToolCallRecord(*call) for call in calls)
        said = self.message("assistant", content, tool_calls=asked, **fields)
        self.commit(
            ModelReplied(
                evaluation_id=self.evaluation_id,
                turn=self.turn,
                message_id=said.message.message_id,
                usage=TokenUsage(
                    input_tokens=100 * self.turn,
                    output_tokens=10 + self.turn,
                    cached_tokens=50 * (self.turn > 1),
                ),
                finish_reason="tool_calls" if asked else "stop",
                model="parrot-1",
                provider_data={"id": f"reply-{self.turn}"},
            ),
            said,
        )
        return said

    def of_call(self, call_id: str, name: str, attempt: int = 1) -> dict[str, Any]:
        fields = {"evaluation_id": self.evaluation_id, "call_id": call_id, "name": name}
        return {**fields, "attempt": attempt}

    def start(self, call_id: str, name: str, attempt: int = 1) -> None:
        self.commit(ToolCallStarted(**self.of_call(call_id, name, attempt)))

    def result(
        self,
        call_id: str,
        name: str,
        text: str,
        *changes: Event,
        value: Any = None,
        attempt: int = 1,
    ) -> MessageAppended:
        """A tool's changes, its end and its message in one commit, then the checkpoint."""
        said = self.message("tool", text, tool_call_id=call_id, tool_name=name, value=value)
        self.commit(
            *changes,
            ToolCallCompleted(
                **self.of_call(call_id, name, attempt),
                message_id=said.message.message_id,
                value=value,
            ),
            said,
        )
        self.calls_completed += 1
        self.checkpoint("post_tool")
        return said

    def fail(self, call_id: str, name: str, text: str) -> None:
        said = self.message(
            "tool",
            text,
            tool_call_id=call_id,
            tool_name=name,
            is_error=True,
            error_type="ValueError",
            error_message=text,
            retryable=False,
        )
        self.commit(
            ToolCallFailed(
                **self.of_call(call_id, name),
                message_id=said.message.message_id,
                error_type="ValueError",
                error_message=text,
                retryable=False,
            ),
            said,
        )

    def tool(self, call_id: str, name: str, text: str, *changes: Event, value: Any = None) -> None:
        self.start(call_id, name)
        self.result(call_id, name, text, *changes, value=value)

    def state(self) -> RunState:
        return state_at(self.ledger, self.run_id, declarations=declarations())

    def checkpoint(self, phase: Any) -> None:
        """In a commit of its own: its digests are those of the version before it."""
        state = self.state()
        self.commit(
            CheckpointReached(
                phase=phase,
                tool_calls_completed=self.calls_completed,
                state_digest=state.state_digest,
                outcome_digest=state.outcome_digest,
                created_at=BEGIN + timedelta(hours=1, seconds=state.version),
            )
        )

    def finish(self, said: MessageAppended, output: Any = None) -> None:
        message_id = said.message.message_id
        self.commit(
            EvaluationFinished(
                evaluation_id=self.evaluation_id, message_id=message_id, output=output
            )
        )
        self.checkpoint("completed")
        digest = self.state().outcome_digest
        self.commit(RunCompleted(message_id=message_id, output=output, outcome_digest=digest))


def change(slice_name: str, payload: Any, event_type: str = "", **fields: Any) -> Event:
    return SliceEventApplied(
        slice=slice_name, event_type=event_type or slice_name, payload=payload, **fields
    )
