"""Evaluations for tests: short ways to a prompt, a scripted model, tools and a ledger's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.agent import Crash, calls, says
from turnledger.ledger import Event, InnerMessage, Ledger
from turnledger.runtime import (
    InProcessEventBus,
    MarkdownSection,
    PromptExecuted,
    PromptRendered,
    PromptTemplate,
    Reply,
    Request,
    ScriptedAdapter,
    Session,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.journal.journal import Journal

# A call of the tool that `tool` makes.
ADD = calls(("c1", "add", '{"n": 2}'))


@dataclass(frozen=True)
class Add:
    """A tool's parameters."""

    n: int = 0


@dataclass(frozen=True)
class Sum:
    """A slice, and a structured answer."""

    total: int


def tool(
    handler: Callable[..., Any] | None = None, name: str = "add", **options: Any
) -> Tool[Add, Any]:
    """A tool that adds to the session's sums, unless it is told what to do."""
    return Tool[Add, Any](
        name=name, description="Adds.", handler=handler or adding, params_type=Add, **options
    )


def adding(params: Add, *, context: ToolContext) -> ToolResult[int]:
    context.session[Sum].append(Sum(params.n))
    return ToolResult(f"Added {params.n}.", value=params.n)


class Dying:
    """A handler that dies in some calls, and remembers which ones it was called for."""

    def __init__(self, *dies_in: str) -> None:
        self.dies_in = set(dies_in)
        self.ran: list[tuple[str, bool]] = []

    def __call__(self, params: Add, *, context: ToolContext) -> Any:
        self.ran.append((context.call_id, context.is_resume))
        if context.call_id in self.dies_in:
            raise Crash
        return adding(params, context=context)


def prompt_of(
    *tools: Tool[Any, Any], output: Any = None, key: str = "sum", text: str = "Add it up."
) -> Prompt[Any]:
    section: MarkdownSection[Any] = MarkdownSection(
        title="Task", key="task", template=text, tools=list(tools)
    )
    kind: Any = PromptTemplate if output is None else PromptTemplate[output]
    template = kind(ns="tests", key=key, sections=[section])
    return Prompt(template)


def on(ledger: Ledger) -> Session:
    """A session that records in a ledger."""
    return Session(bus=InProcessEventBus(), ledger=ledger)


def again(session: Session) -> Session:
    """Another process's session on the same run: only what is on disk is known."""
    old = session.journal
    other = Session(bus=InProcessEventBus())
    for kind in (Sum,):
        other.install(kind)
    if session.types.records_messages:
        from turnledger.runtime import enable_inner_message_recording

        enable_inner_message_recording(other)
    other.attach(Journal(old.ledger, old.run_id, declarations=other.declarations))
    return other


def events(session: Session, *kinds: type[Any]) -> list[Any]:
    """What is on disk of a session's run, of these kinds."""
    journal = session.journal
    found: list[Event] = [record.event for record in journal.ledger.read(journal.run_id)]
    return [event for event in found if not kinds or isinstance(event, kinds)]


def messages(session: Session) -> list[InnerMessage]:
    from turnledger.ledger import MessageAppended

    return [event.message for event in events(session, MessageAppended)]


def told(session: Session) -> list[str]:
    """What the model was told by tools."""
    return [said.content for said in messages(session) if said.role == "tool"]


def run(handler: Any, *replies: Any, session: Session | None = None, **options: Any) -> Session:
    """One call of a tool, unless replies are given; then an answer."""
    session = session or Session()
    script = [*(replies or [ADD]), says("done")]
    response = Scripted(script, **options).evaluate(prompt_of(tool(handler)), session=session)
    assert response.text == "done"
    return session


@dataclass
class Heard:
    """What was told on a bus, in order, and whatever else a test adds."""

    said: list[Any] = field(default_factory=list)

    def listen(self, bus: Any) -> Heard:
        for kind in (PromptRendered, ToolInvoked, PromptExecuted):
            bus.subscribe(kind, self.said.append)
        return self

    @property
    def names(self) -> list[str]:
        return [one if isinstance(one, str) else type(one).__name__ for one in self.said]

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.said if isinstance(one, kind)]


class Scripted(ScriptedAdapter[Any]):
    """A scripted model that remembers what it was sent; `on_send` is called before it replies."""

    def __init__(
        self,
        replies: Sequence[Reply | Exception] | Any,
        *,
        on_send: Callable[[Any], object] = lambda sending: None,
        **options: Any,
    ) -> None:
        super().__init__(replies, **options)
        self.requests: list[Request] = []
        self.on_send = on_send

    def send(self, payload: Any, sending: Any) -> Any:
        self.on_send(sending)
        self.requests.append(payload)
        return super().send(payload, sending)
