"""Selection of live parts: the model, and tools by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from turnledger.ledger import (
    EvaluationStarted,
    InvalidInputError,
    MessageAppended,
    ModelCalled,
    Record,
    ToolCallStarted,
)
from turnledger.ledger.errors import short_repr
from turnledger.runtime.bus import EventBus, InProcessEventBus, PublishResult
from turnledger.runtime.journal.loop_progress import CREATE_PROMPT
from turnledger.runtime.loop.events import TextReceived, ToolInvoked
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.session.overlay import Overlay
from turnledger.runtime.session.session import Session

MODEL = "model"
TOOL = "tool:"


@dataclass(frozen=True)
class Live:
    """The parts that are live: the model, tools, or both."""

    model: bool
    tools: frozenset[str]

    @classmethod
    def of(cls, parts: Iterable[str]) -> Live:
        """Parse `model` and `tool:NAME`; InvalidInputError for anything else."""
        names = [parts] if isinstance(parts, str) else list(parts)
        if not names:
            raise InvalidInputError(
                "No live parts given: expected `model` or `tool:NAME`. Use `replay` to run "
                "everything from the record."
            )
        for name in names:
            if not isinstance(name, str):
                raise InvalidInputError(f"Invalid live part {short_repr(name)}: expected text.")
            if name != MODEL and not name.removeprefix(TOOL):
                raise InvalidInputError(f"Invalid live part {name!r}: expected `tool:NAME`.")
            if name != MODEL and not name.startswith(TOOL):
                raise InvalidInputError(
                    f"Invalid live part {name!r}: expected `model` or `tool:NAME`."
                )
        tools = frozenset(name.removeprefix(TOOL) for name in names if name != MODEL)
        return cls(MODEL in names, tools)

    @property
    def names(self) -> tuple[str, ...]:
        """The parts as they are written: `model`, `tool:NAME`."""
        return (*([MODEL] if self.model else []), *(TOOL + name for name in sorted(self.tools)))

    def begins_at(self, record: Record) -> bool:
        """Whether a live effect begins with this record."""
        event = record.event
        if isinstance(event, ToolCallStarted):
            return event.name in self.tools
        return self.model and isinstance(event, ModelCalled)


@dataclass(frozen=True)
class Part:
    """An effect of the fork: a turn of the model, or a call of a tool.

    `recorded` is the version at which the run has the answer; None if it was live.
    """

    what: str
    turn: int
    call_id: str = ""
    recorded: int | None = None


def check_tools(
    run: UUID, live: Live, records: Sequence[Record], now: Callable[[], Iterable[str]]
) -> None:
    """Raise InvalidInputError for a live tool that neither the run nor the loop has.

    Args:
        run: The run.
        live: The selection.
        records: The run's records.
        now: Gives the names of the loop's tools; called only if the run lacks one.
    """
    known: dict[str, None] = {}
    for record in records:
        event = record.event
        if isinstance(event, EvaluationStarted):
            known.update((tool.name, None) for tool in event.tools)
        elif isinstance(event, ToolCallStarted):
            known[event.name] = None
    if live.tools <= known.keys():
        return
    known.update(dict.fromkeys(now()))
    for name in sorted(live.tools - known.keys()):
        tools = ", ".join(known) or "none"
        raise InvalidInputError(f"Run {run} has no tool {name!r}. Its tools are: {tools}.")


def offered(host: LoopHost, session: Session, request: Any) -> list[str]:
    """The names of the loop's tools for a request; what create_prompt changes is dropped."""
    try:
        with session.scope(Overlay(session.journal, CREATE_PROMPT)):
            prompt = host.create_prompt(request)
    except Exception:
        return []
    return [tool.name for _, _, section in prompt.template.walk() for tool in section.tools]


def live_parts_of(records: Iterable[Record], live: Live) -> Iterator[Part]:
    """The live effects of a fork, each once however often it was tried."""
    found: dict[tuple[str, Part], None] = {}
    turn = 0
    for record in records:
        event = record.event
        if isinstance(event, MessageAppended) and event.message.role == "assistant":
            turn = event.message.turn
        elif isinstance(event, ToolCallStarted) and event.name in live.tools:
            found[event.evaluation_id, Part(TOOL + event.name, turn, event.call_id)] = None
        elif isinstance(event, ModelCalled) and live.model:
            found[event.evaluation_id, Part(MODEL, event.turn)] = None
    return (part for _, part in found)


class LiveNews(InProcessEventBus):
    """A bus that passes events of live parts on to the user's bus, and no others.

    A listener of the user's may veto a live tool's result, as in any run.
    """

    def __init__(self, live: Live, users: EventBus) -> None:
        super().__init__()
        self._live = live
        self._users = users

    def publish(self, event: object) -> PublishResult:
        by_tool = isinstance(event, ToolInvoked) and event.name in self._live.tools
        by_model = isinstance(event, TextReceived) and self._live.model
        return self._users.publish(event) if by_tool or by_model else super().publish(event)
