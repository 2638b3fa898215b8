"""Which parts of a run are live when it is run again: the model, and tools by name."""

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
    """What is live: the model, tools, or both."""

    model: bool
    tools: frozenset[str]

    @classmethod
    def of(cls, parts: Iterable[str]) -> Live:
        """`model` and `tool:NAME`, as people write them; InvalidInputError if it is neither."""
        names = [parts] if isinstance(parts, str) else list(parts)
        if not names:
            raise InvalidInputError(
                "Nothing is to be live. Name the parts that are: `model`, or `tool:NAME`; with "
                "none of them it is a replay from the record alone."
            )
        for name in names:
            if name != MODEL and not name.removeprefix(TOOL):
                raise InvalidInputError(f"{name!r} names no tool: `tool:NAME`.")
            if name != MODEL and not name.startswith(TOOL):
                raise InvalidInputError(
                    f"{name!r} is no part that can be live: those are `model` and `tool:NAME`."
                )
        tools = frozenset(name.removeprefix(TOOL) for name in names if name != MODEL)
        return cls(MODEL in names, tools)

    @property
    def names(self) -> tuple[str, ...]:
        """As people write them."""
        return (*([MODEL] if self.model else []), *(TOOL + name for name in sorted(self.tools)))

    def begins_at(self, record: Record) -> bool:
        """Whether an effect begins with this record that is to be live."""
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
    """InvalidInputError if a tool is neither the run's nor the loop's."""
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
    """The tools that the loop has for a request now; making its prompt leaves no trace."""
    try:
        with session.scope(Overlay(session.journal, CREATE_PROMPT)):
            prompt = host.create_prompt(request)
    except Exception:
        return []
    return [tool.name for _, _, section in prompt.template.walk() for tool in section.tools]


def live_parts_of(records: Iterable[Record], live: Live) -> Iterator[Part]:
    """The effects of a fork that were live, each once however often it was tried."""
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
    """A bus of its own; what live parts have to tell goes to the user's, whose word counts."""

    def __init__(self, live: Live, users: EventBus) -> None:
        super().__init__()
        self._live = live
        self._users = users

    def publish(self, event: object) -> PublishResult:
        by_tool = isinstance(event, ToolInvoked) and event.name in self._live.tools
        by_model = isinstance(event, TextReceived) and self._live.model
        return self._users.publish(event) if by_tool or by_model else super().publish(event)
