"""An agent every part of which can be changed: recorded once, and run again with a dead world.

Its replies are scripted, and its two tools do what a test says. `live=False` is the same agent
with nobody to ask: a model call or a handler that is called then is a failure of the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.agent import calls as calls_of
from tests.agent import says, task
from turnledger.ledger import Ledger
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    Prompt,
    Reply,
    ScriptedAdapter,
    SectionVisibility,
    Session,
    ThrottlePolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from turnledger.runtime.agent.models import Sending
from turnledger.runtime.replaying.replay import Replayed, replay

AT_ONCE = ThrottlePolicy(max_attempts=3, base_delay=timedelta(0), max_delay=timedelta(0))


@dataclass(frozen=True)
class Job:
    """What the shepherd is asked to do."""

    text: str = "count the sheep"


@dataclass(frozen=True)
class Flock:
    """A tool's parameters."""

    name: str = "all"


@dataclass(frozen=True)
class Sheep:
    """A slice of the session."""

    name: str


@dataclass(frozen=True)
class Tally:
    """A structured answer."""

    sheep: int


def calls(*ids: str, tool: str = "count") -> Reply:
    """A reply that calls a tool under each of these ids."""
    return asks(*((one, tool, f'{{"name": "{one}"}}') for one in ids))


def asks(*asked: tuple[str, str, str]) -> Reply:
    """A reply with calls: id, tool and arguments."""
    return calls_of(*asked, text="Wait.")


DONE = says("All are here.")
ONE_CALL = (calls("a1"), DONE)
Handler = Callable[[Flock, ToolContext], Any]


def remembers(params: Flock, context: ToolContext) -> Any:
    """What the tools do unless they are told otherwise."""
    context.session[Sheep].append(Sheep(params.name))
    return ToolResult(f"Counted {params.name}.", value={"name": params.name})


class Shepherd(MainLoop[Job, Any]):
    """An agent of two tools, `count` and `weigh`."""

    def __init__(
        self,
        ledger: Ledger | None,
        replies: Sequence[Any] | Callable[[Any], Reply] = ONE_CALL,
        *,
        live: bool = True,
        handler: Handler = remembers,
        template: str | Callable[[], str] = "Please ${text}.",
        output: Any = None,
        summarised: Sequence[str] = (),
        tools: Callable[[Shepherd], Sequence[Tool[Any, Any]]] | None = None,
        timeout: float | None = None,
        on_interrupt: Any = "retry",
        opens_with: Callable[[Prompt[Any]], Prompt[Any]] = lambda prompt: prompt,
        session: Callable[[Session], object] = lambda session: session.install(Sheep),
        reuses: bool = False,
        resources: Mapping[str, Any] | None = None,
        listeners: Mapping[type, Callable[..., object]] | None = None,
        adapter: Callable[..., ScriptedAdapter[Any]] = ScriptedAdapter,
        adapter_options: Mapping[str, Any] | None = None,
        width: int = 1,
        **options: Any,
    ) -> None:
        self.live = live
        self.called: list[str] = []
        self.sent = 0
        self.handler = handler
        self._template = template
        self._output = output
        self._summarised = summarised
        self._make_tools = tools
        self._timeout = timeout
        self._on_interrupt = on_interrupt
        self._opens_with = opens_with
        self._prepares = session
        self._reuses = reuses
        self._kept: Session | None = None
        self._given = resources
        bus = InProcessEventBus()
        for kind, listener in (listeners or {}).items():
            bus.subscribe(kind, listener)
        usual = {"throttle": AT_ONCE, "parallel_tools": width}
        made = adapter(replies, **{**usual, **(adapter_options or {})})
        self._really_send = made.send
        made.send = self._send  # type: ignore[method-assign]
        options.setdefault("resources", self._make_resources)
        super().__init__(adapter=made, bus=bus, ledger=ledger, **options)

    def _send(self, payload: Any, sending: Sending) -> Any:
        self.sent += 1
        assert self.live, "a model was asked"
        return self._really_send(payload, sending)

    def _handle_call(self, params: Flock, *, context: ToolContext) -> Any:
        self.called.append(context.call_id)
        assert self.live, "a handler was called"
        return self.handler(params, context)

    def _make_resources(self) -> Mapping[str, Any] | None:
        assert self.live, "resources were built"
        return self._given

    def create_session(self) -> Session:
        if self._reuses and self._kept is not None:
            return self._kept
        session = Session(bus=self._bus, tags={"loop": "shepherd"})
        self._prepares(session)
        self._kept = session
        return session

    def tool(self, name: str = "count", **other: Any) -> Tool[Any, Any]:
        """A tool of this agent's, as it is or with something changed."""
        given = {
            "name": name,
            "description": "Count a flock.",
            "handler": self._handle_call,
            "params_type": Flock,
            "timeout": self._timeout,
            "on_interrupt": self._on_interrupt,
        }
        return Tool(**{**given, **other})

    def create_prompt(self, request: Job) -> Prompt[Any]:
        text = self._template if isinstance(self._template, str) else self._template()
        make = self._make_tools
        tools = make(self) if make is not None else [self.tool("count"), self.tool("weigh")]
        more = [
            MarkdownSection[Job](
                title=key.title(),
                template=f"All about {key}, to ${{text}}.",
                summary=f"Something about {key}.",
                visibility=SectionVisibility.SUMMARY,
                key=key,
            )
            for key in self._summarised
        ]
        made = task(request, text, tools, name="replay/shepherd", output=self._output, more=more)
        return self._opens_with(made)


def check_again(
    ledger: Ledger, run: UUID, dead: Callable[[], Shepherd], every: bool = True
) -> Replayed:
    """Fold a run and run it again, whole and up to its versions; all of it agrees.

    `dead` makes the agent anew, with nobody to ask. Nothing is called and nothing is written.
    The versions are `every` one of them, or the first and the last event of each kind.
    """
    before = [record.row for record in ledger.read(run)]
    head = ledger.head(run)
    runs = sum(1 for _ in ledger.runs())
    declared = dead().loop_host.create_session().declarations
    for folded in (replay(ledger, run), replay(ledger, run, declarations=declared)):
        assert folded.divergence is None, f"folded: {folded.divergence}"
        assert folded.version == head
    assert folded.not_compared == 0
    whole = rerun(ledger, run, dead)
    for until in range(1, head + 1) if every else _first_and_last(ledger, run):
        rerun(ledger, run, dead, until)
    assert whole.state.version == head
    assert whole.state.state_digest == folded.state.state_digest
    assert [record.row for record in ledger.read(run)] == before
    assert sum(1 for _ in ledger.runs()) == runs
    return whole


def _first_and_last(ledger: Ledger, run: UUID) -> list[int]:
    """The versions of the first and the last event of each kind."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for record in ledger.read(run):
        first.setdefault(record.tag, record.version)
        last[record.tag] = record.version
    return sorted({*first.values(), *last.values()})


def rerun(
    ledger: Ledger, run: UUID, dead: Callable[[], Shepherd], until: int | None = None
) -> Replayed:
    """Run the agent again, up to a version; it agrees, and touches nothing."""
    loop = dead()
    found = replay(ledger, run, loop=loop, until=until)
    assert found.divergence is None, f"up to {until or 'its end'}: {found.divergence}"
    assert found.version == (until or ledger.head(run))
    assert (loop.called, loop.sent) == ([], 0)
    return found
