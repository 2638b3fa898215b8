"""`Agent`: a model with instructions, tools and an output type; each run of it is recorded.

    agent = Agent("support/triage", model="openai:gpt-5", instructions="Triage the ticket.",
                  tools=[credit], output=Triage)
    result = agent.run("My invoice is wrong.", ledger="runs.db")

It is made of MainLoop, Prompt and Session, and does nothing that they can't do.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from threading import Lock
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast, get_origin, overload
from uuid import UUID

from turnledger.ledger import InvalidInputError, Ledger
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import short_repr
from turnledger.ledger.runs.append_request import canonical_id
from turnledger.runtime.agent.messages.builder import MessageBuilder
from turnledger.runtime.agent.messages.message import Message
from turnledger.runtime.agent.models.limits import Budget, Deadline
from turnledger.runtime.agent.tools.async_calls import refuse_in_running_loop
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.agents.agent_loop import AgentLoop, AgentParts
from turnledger.runtime.agents.async_runs import run_async, stream_async
from turnledger.runtime.agents.models import Model, adapter_of, check_model
from turnledger.runtime.agents.result import RunResult, result_of
from turnledger.runtime.agents.shared_ledgers import shared_ledger
from turnledger.runtime.checkpoints.checkpoint import RecoverableRun
from turnledger.runtime.errors import DecisionRequiredError
from turnledger.runtime.journal.heartbeat import LEASE, LeaseHeartbeat
from turnledger.runtime.loop.adapter import ProviderAdapter
from turnledger.runtime.loop.events import PromptResponse, RunEnded, RunEvent, listening
from turnledger.runtime.main_loop import MAX_TURNS, MainLoopConfig
from turnledger.runtime.recovery import approvals
from turnledger.runtime.recovery.prompt_check import OnChangedPrompt
from turnledger.runtime.replaying.replay import Replayed, replay
from turnledger.runtime.session.session import Session

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
Run: TypeAlias = UUID | str | RunResult[Any] | RecoverableRun
AnyLedger: TypeAlias = Ledger | str | os.PathLike[str]
# As of a prompt's namespace and key, which it becomes.
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*"
OnEvent: TypeAlias = Callable[[RunEvent | RunEnded[RunResult[OutputT]]], object]


class AgentOptions(TypedDict, total=False):
    """Keyword arguments of `Agent` that its types do not depend on; described there."""

    tools: Iterable[Tool[Any, Any]]
    state: Iterable[type]
    ledger: AnyLedger | None
    max_turns: int | None
    output_retries: int
    deadline: Deadline | timedelta | None
    budget: Budget | None
    config: MainLoopConfig | None
    lease: timedelta


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `Agent.run`; described there."""

    ledger: AnyLedger | None
    run_id: UUID | str | None
    continues: Run | None
    tags: Mapping[str, str] | None


class RecoverOptions(TypedDict, total=False):
    """Keyword arguments of `MainLoop.recover`; described there."""

    deadline: Deadline | timedelta | None
    max_turns: int | None
    prompt: OnChangedPrompt
    retry_in_doubt: bool
    decided_by: str


@explain_methods(skip=("arun", "arecover", "stream"))
class Agent(Generic[InputT, OutputT]):
    """A named agent: what it is made of, and the calls that run, recover and replay it.

    A run belongs to the agent's name: only an agent of that name recovers, replays or continues
    it. Making an agent needs no key, no network and no SDK: the model is resolved at the first
    run. An agent may be used by several threads at once.
    """

    @overload
    def __init__(
        self: Agent[str, str],
        name: str,
        *,
        model: Model,
        instructions: str | Callable[[str, Session], str],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[str, OutputT],
        name: str,
        *,
        model: Model,
        instructions: str | Callable[[str, Session], str],
        output: type[OutputT],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[InputT, str],
        name: str,
        *,
        model: Model,
        instructions: str | Callable[[InputT, Session], str],
        input: type[InputT],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        *,
        model: Model,
        instructions: str | Callable[[InputT, Session], str],
        input: type[InputT],
        output: type[OutputT],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        model: Model,
        instructions: str | Callable[[Any, Session], str],
        input: Any = str,  # noqa: A002 - the word that everybody looks for
        tools: Iterable[Tool[Any, Any]] = (),
        output: Any = None,
        state: Iterable[type] = (),
        ledger: AnyLedger | None = None,
        max_turns: int | None = MAX_TURNS,
        output_retries: int = 1,
        deadline: Deadline | timedelta | None = None,
        budget: Budget | None = None,
        config: MainLoopConfig | None = None,
        lease: timedelta = LEASE,
    ) -> None:
        """Define an agent; a typed error says what is wrong with it.

        Args:
            name: Names the agent, its runs and its prompt: "support/triage".
            model: "provider:name", an adapter, or for tests a list of replies or a function from
                the request to the reply.
            instructions: The system message. Text is taken literally; with an `input` type,
                `${field}` stands for a field of it. A function gets the input and the session,
                and is called once for a run: a recovery calls it against the same state.
            input: The type of the input, a class; by default text. Every agent takes a Message
                (media) as well.
            tools: What the model may call: functions with `@tool`, or Tools.
            output: The type of the output: a dataclass, a msgspec Struct, a pydantic model, or a
                list of one of these. Without it the output is the text.
            state: The types of the session's slices, with the reducers that they mark.
            ledger: Where runs are recorded, if `run` does not say it: an open Ledger, a path or a
                URL. By default a ledger in memory, which ends with the agent.
            max_turns: The most replies of the model in one run; None means no limit.
            output_retries: How often the model is asked again after a reply that is not the
                output that was asked for.
            deadline: A moment, or a timedelta of running time.
            budget: The most tokens of a run.
            config: Further settings, such as `tool_timeout`. Its limits hold where none is given
                above; `output_retries` is always the agent's.
            lease: How long a claim lasts without a heartbeat. Over HTTP, a killed worker's run
                can be recovered once this is over; beside a store, at once.
        """
        check_model(model)
        _check_name(name)
        base = config or MainLoopConfig()
        self.name = name
        self._model = model
        self._default = ledger
        self._memory: Ledger | None = None
        self._lock = Lock()
        self._adapter: ProviderAdapter[Any] | None = None
        self._parts = AgentParts(
            name=name,
            instructions=instructions,
            input=_checked_input(input),
            tools=_checked_tools(tools),
            output=_checked_output(output),
            state=_checked_state(state),
            config=replace(
                base,
                max_turns=base.max_turns if max_turns == MAX_TURNS else max_turns,
                output_retries=output_retries,
                deadline=base.deadline if deadline is None else deadline,
                budget=base.budget if budget is None else budget,
            ),
            lease=lease,
        )
        if not isinstance(instructions, str) and not callable(instructions):
            raise InvalidInputError(
                f"Invalid instructions {short_repr(instructions)}: expected text, or a function of "
                "the input and the session."
            )
        # Refuses an invalid name, tools with the same name, an output type without a schema.
        self._parts.template(None if isinstance(instructions, str) else "")

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    # --- running ---

    def run(
        self,
        input: InputT | Message | MessageBuilder,  # noqa: A002
        *,
        ledger: AnyLedger | None = None,
        run_id: UUID | str | None = None,
        continues: Run | None = None,
        tags: Mapping[str, str] | None = None,
        on_event: OnEvent[OutputT] | None = None,
    ) -> RunResult[OutputT]:
        """Run the agent to its end.

        Args:
            input: Text, a Message (or its builder), or a value of the agent's input type.
            ledger: Where the run is recorded; by default the agent's ledger.
            run_id: The id of the run; by default a new one.
            continues: A run whose conversation goes on with this input, as the next turn of a
                chat.
            tags: Text by text, recorded with the run; listings find runs by them.
            on_event: Called with TextDelta, ToolStarted, ToolEnded and RunEnded as they happen.

        Raises:
            DecisionRequiredError: The run waits for a person; nothing of it is lost. `recover`
                goes on once it is decided.
        """
        refuse_in_running_loop(self._parts.tools)
        given = (("ledger", ledger), ("run_id", run_id), ("continues", continues), ("tags", tags))
        options = cast(RunOptions, {name: value for name, value in given if value is not None})
        return self._run(input, options, on_event)

    async def arun(
        self,
        input: InputT | Message | MessageBuilder,  # noqa: A002
        *,
        on_event: OnEvent[OutputT] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """Run the agent to its end without holding up the event loop; arguments as for `run`.

        `async def` tools run on this event loop, `on_event` in the run's thread. Cancelling the
        task cancels the run: CancelledError is raised when the run can be recovered.
        """
        _check_names("arun", options)
        return await run_async(lambda: self._run(input, options, on_event))

    def stream(
        self,
        input: InputT | Message | MessageBuilder,  # noqa: A002
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[RunEvent | RunEnded[RunResult[OutputT]], None]:
        """Run the agent, and yield what happens: `async for event in agent.stream(...)`.

        TextDelta, ToolStarted and ToolEnded as they come, RunEnded with the result at last.
        Arguments as for `run`. An error of the run is raised after its last event. Leaving the
        loop early cancels the run; with `contextlib.aclosing` it can be recovered right after.
        """
        _check_names("stream", options)
        return stream_async(lambda tell: self._run(input, options, tell))

    def _run(
        self,
        value: Any,
        options: RunOptions,
        on_event: Callable[[Any], object] | None,
    ) -> RunResult[OutputT]:
        run_id, continues = options.get("run_id"), options.get("continues")
        loop = self.loop(self._ledger(options.get("ledger")))
        request, blobs = _request_of(value)
        return self._followed(
            loop,
            lambda: loop.execute(
                self._checked(request),
                run_id=UUID(canonical_id(run_id)) if run_id is not None else None,
                continues=_id_of(continues) if continues is not None else None,
                tags=options.get("tags"),
                blobs=blobs,
            ),
            on_event,
        )

    def enqueue(
        self,
        input: InputT | Message | MessageBuilder,  # noqa: A002
        *,
        ledger: AnyLedger | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID:
        """Request a run, and return its id: a worker takes it (`turnledger worker`).

        What a run begins with is recorded, and nothing else is done: the model is not called.

        Args:
            input: As for `run`.
            ledger: Where it is recorded, and where the workers look; by default the agent's.
            tags: Text by text, recorded with the run; listings find runs by them.
        """
        request, blobs = _request_of(input)
        return self.loop(self._ledger(ledger)).enqueue(
            self._checked(request), tags=tags, blobs=blobs
        )

    # --- recovering ---

    def recover(
        self,
        run: Run,
        *,
        ledger: AnyLedger | None = None,
        on_event: OnEvent[OutputT] | None = None,
        **options: Unpack[RecoverOptions],
    ) -> RunResult[OutputT]:
        """Run an interrupted run of this agent to its end.

        Args:
            run: The run.
            ledger: Where it is recorded; by default the agent's ledger.
            on_event: As for `run`.
            options: As for `MainLoop.recover`.
        """
        refuse_in_running_loop(self._parts.tools)
        return self._recover(run, ledger, options, on_event)

    async def arecover(
        self,
        run: Run,
        *,
        ledger: AnyLedger | None = None,
        on_event: OnEvent[OutputT] | None = None,
        **options: Unpack[RecoverOptions],
    ) -> RunResult[OutputT]:
        """`recover`, as `arun` is to `run`."""
        return await run_async(lambda: self._recover(run, ledger, options, on_event))

    def _recover(
        self,
        run: Run,
        ledger: AnyLedger | None,
        options: RecoverOptions,
        on_event: Callable[[Any], object] | None,
    ) -> RunResult[OutputT]:
        loop = self.loop(self._ledger(ledger))
        return self._followed(loop, lambda: loop.recover(_id_of(run), **options), on_event)

    def _followed(
        self,
        loop: AgentLoop,
        work: Callable[[], tuple[PromptResponse[Any], Session]],
        on_event: Callable[[Any], object] | None,
    ) -> RunResult[OutputT]:
        """The result of the work; whoever listens is told of what happens in it."""
        with listening(loop.bus, on_event) if on_event is not None else nullcontext():
            try:
                result = cast("RunResult[OutputT]", result_of(*work()))
            except DecisionRequiredError as waits:
                waits.add_note(_where_to_decide(loop.ledger))
                raise
        if on_event is not None:
            on_event(RunEnded(result))
        return result

    def take(self, held: LeaseHeartbeat, ledger: Ledger) -> RunResult[OutputT]:
        """Run a run to its end that a worker took from the queue.

        Args:
            held: The worker's claim of the run.
            ledger: Where it is.
        """
        loop = self.loop(ledger)
        return self._followed(loop, lambda: loop.take(held), None)

    # --- decisions of a person ---

    def approve(
        self, run: Run, call_id: str, *, ledger: AnyLedger | None = None, by: str = ""
    ) -> None:
        """Approve a call that needs it; `recover` goes on with it.

        Args:
            run: The run that waits.
            call_id: The call, as DecisionRequiredError names it.
            ledger: Where the run is; by default the agent's ledger.
            by: Who decides.
        """
        approvals.approve(self._ledger(ledger), _id_of(run), call_id, by=by)

    def deny(
        self, run: Run, call_id: str, text: str, *, ledger: AnyLedger | None = None, by: str = ""
    ) -> None:
        """Deny a call: it fails with this text for the model, and never runs; see `approve`."""
        approvals.deny(self._ledger(ledger), _id_of(run), call_id, text, by=by)

    def edit(
        self,
        run: Run,
        call_id: str,
        arguments: Mapping[str, Any] | str,
        *,
        ledger: AnyLedger | None = None,
        by: str = "",
    ) -> None:
        """Approve a call with other arguments, a mapping or JSON text; see `approve`."""
        approvals.edit(self._ledger(ledger), _id_of(run), call_id, arguments, by=by)

    # --- looking back ---

    def list_recoverable(self, *, ledger: AnyLedger | None = None) -> Sequence[RecoverableRun]:
        """The interrupted runs of this agent that no worker has claimed, oldest first."""
        return self.loop(self._ledger(ledger)).list_recoverable()

    def replay(self, run: Run, *, ledger: AnyLedger | None = None) -> Replayed:
        """Run the agent's code against the record of a run: no model, no tool, no network.

        `Replayed.check()` raises at the first difference.
        """
        with Ledger.open("memory://") as nowhere:
            return replay(self._ledger(ledger), _id_of(run), loop=self.loop(nowhere))

    def loop(self, ledger: Ledger) -> AgentLoop:
        """The MainLoop that runs this agent in a ledger."""
        with self._lock:
            if self._adapter is None:
                self._adapter = adapter_of(self._model)
        return AgentLoop(self._parts, self._adapter, ledger)

    # --- inside ---

    def _ledger(self, given: AnyLedger | None) -> Ledger:
        wanted = self._default if given is None else given
        if wanted is None:
            with self._lock:
                if self._memory is None or self._memory.is_closed:  # in a forked process it is
                    self._memory = Ledger.open("memory://")
                return self._memory
        return wanted if isinstance(wanted, Ledger) else shared_ledger(wanted)

    def _checked(self, value: Any) -> Any:
        kind = self._parts.input
        if isinstance(value, Message | kind):
            return value
        raise InvalidInputError(
            f"Invalid input {short_repr(value)} for agent {self.name!r}: expected "
            f"{kind.__name__}, or a Message."
        )


def _request_of(value: Any) -> tuple[Any, tuple[bytes, ...]]:
    """An input as it is recorded, and the bytes that it names."""
    if isinstance(value, MessageBuilder):
        return value.to_message(), tuple(value.blobs.values())
    return value, ()


def _id_of(run: Run) -> UUID | str:
    return run.run_id if isinstance(run, RunResult | RecoverableRun) else run


def _where_to_decide(ledger: Ledger) -> str:
    """Where the commands that DecisionRequiredError names find the run."""
    here = "In Python: agent.approve(run_id, call_id), deny or edit; then agent.recover(run_id)."
    if ledger.url.startswith("memory:"):
        return f"The ledger is in memory, where no command finds the run. {here}"
    return f"The commands need --db {ledger.redact_text(ledger.url)}. {here}"


def _check_names(method: str, options: Mapping[str, Any]) -> None:
    """TypeError for a keyword that `run` does not take: a misspelled one must not be ignored."""
    for name in options:
        if name not in RunOptions.__annotations__:
            raise TypeError(f"Agent.{method}() got an unexpected keyword argument {name!r}")


def _checked_input(kind: Any) -> Any:
    if not isinstance(kind, type):
        raise InvalidInputError(
            f"Invalid input type {short_repr(kind)}: expected a class, such as a dataclass."
        )
    return kind


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise InvalidInputError(
            f"Invalid agent name {short_repr(name)}: expected letters, digits, '.', '_' and '-', "
            "in steps between '/': 'support/triage'."
        )


def _checked_output(kind: Any) -> Any:
    if kind is None or isinstance(kind, type) or get_origin(kind) is not None:
        return kind
    raise InvalidInputError(
        f"Invalid output {short_repr(kind)}: expected a type (a dataclass, a msgspec Struct, a "
        "pydantic model), or a list of one."
    )


def _checked_tools(tools: Iterable[Any]) -> tuple[Tool[Any, Any], ...]:
    given = tuple(tools)
    for one in given:
        if not isinstance(one, Tool):
            name = getattr(one, "__name__", short_repr(one))
            raise InvalidInputError(
                f"Invalid tool {name}: expected a Tool. Write @tool above the function."
            )
    return given


def _checked_state(state: Iterable[Any]) -> tuple[type, ...]:
    given = tuple(state)
    for one in given:
        if not isinstance(one, type):
            raise InvalidInputError(f"Invalid state {short_repr(one)}: expected a class.")
    return given
