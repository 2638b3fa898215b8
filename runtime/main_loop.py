"""`MainLoop`: runs an agent for each request, and recovers runs that were interrupted.

Subclasses give the prompt and the session. With a ledger every run is recorded as it happens, and
any process can recover it. With a checkpoint backend alone, a run can be recovered from what was
last saved. With neither, a run is lost with its process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from turnledger.ledger import (
    NEW,
    AppendRefusedError,
    CheckpointCleared,
    Clock,
    InvalidInputError,
    InvalidRunIdError,
    Ledger,
    RunAbandoned,
    RunClaimedError,
    RunStarted,
    SystemClock,
    new_run_id,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.ledger import OnDamage
from turnledger.ledger.redaction import STANDARD
from turnledger.ledger.redaction.events import redacted
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.ledger.runs.append import Entry
from turnledger.runtime.agent.models.limits import Budget, Deadline, checked_turns
from turnledger.runtime.agent.prompts.override_texts import PromptOverridesStore
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.run_control import at_the_disk
from turnledger.runtime.bus import ControlBus, InProcessEventBus
from turnledger.runtime.checkpoints.checkpoint import (
    CheckpointBackend,
    RecoverableRun,
    RecoveryConfig,
)
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.checkpoints.filesystem import SnapshotableFilesystem
from turnledger.runtime.checkpoints.ledger_backend import LedgerCheckpointBackend
from turnledger.runtime.errors import CheckpointCorruptedError
from turnledger.runtime.journal.heartbeat import LEASE, LeaseHeartbeat, claimed, worker_name
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import OPTIMIZE
from turnledger.runtime.loop.adapter import ProviderAdapter
from turnledger.runtime.loop.events import (
    MainLoopCompleted,
    MainLoopFailed,
    MainLoopRequest,
    PromptResponse,
    RecoveryFailed,
)
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.optimize import (
    Caller,
    WorkspaceOptimization,
    optimization_prompt,
    optimize,
)
from turnledger.runtime.loop.run import RunWork, run_to_end
from turnledger.runtime.recovery.chat_turn import ContinuedRun
from turnledger.runtime.recovery.find import recoverable
from turnledger.runtime.recovery.prompt_check import OnChangedPrompt
from turnledger.runtime.recovery.recover import (
    RecoveryOptions,
    recover_from_checkpoint,
    recover_from_ledger,
)
from turnledger.runtime.recovery.request_types import (
    is_of,
    recorded_request,
    request_from,
    request_type_of,
)
from turnledger.runtime.session.session import Session, enable_inner_message_recording
from turnledger.runtime.workspace.file_tools import WORKSPACE

UserRequestT = TypeVar("UserRequestT")
OutputT = TypeVar("OutputT")
R = TypeVar("R")
# Resources by name, or what makes them for each run.
Resources: TypeAlias = "Mapping[str, Any] | Callable[[], Mapping[str, Any] | None]"

# Enough for long tasks, and an end for a model that calls the same tool for ever.
MAX_TURNS = 50
logger = logger_of("turnledger.loop")


@explain_methods()
@dataclass(frozen=True)
class MainLoopConfig:
    """Defaults for requests that have no limits of their own.

    A `deadline` is a moment, or a timedelta of running time: a recovered run has what is left
    of it. `max_turns` is the most replies of the model in one run, over all of its evaluations
    and attempts; None means no limit. `tool_timeout` is for tools that have no time-out of their
    own, in seconds. By default there is none: a time-out moves handlers to other threads, where
    SQLite connections and event loops of the caller's thread can't be used. `output_retries` is
    how often, in one evaluation, the model is asked again for an output that can't be parsed; it
    is told what is wrong.
    """

    deadline: Deadline | timedelta | None = None
    budget: Budget | None = None
    max_turns: int | None = MAX_TURNS
    tool_timeout: float | None = None
    output_retries: int = 0

    def __post_init__(self) -> None:
        checked_turns(self.max_turns)
        seconds = self.tool_timeout
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < inf):
            raise InvalidInputError(f"Invalid tool_timeout {seconds!r}: expected seconds above 0.")
        retries = self.output_retries
        if type(retries) is not int or retries < 0:
            raise InvalidInputError(
                f"Invalid output_retries {retries!r}: expected a whole number, 0 or more."
            )


@explain_methods()
class MainLoop(ABC, Generic[UserRequestT, OutputT]):
    """Takes requests, from a bus or by `execute`, and runs each to its end.

    Args:
        adapter: The provider.
        bus: Where requests come from and events are published; by default one of its own.
        name: The name of the agent. It is recorded with each run, and the loop recovers, lists
            and replays runs of this name only. A loop without a name takes those without one.
        config: Default limits.
        recovery: When to make checkpoints, and a backend for them besides the ledger.
        ledger: Where runs are recorded.
        resources: What else is snapshotted with the session and handed to tools, files say: a
            mapping by name, or a function that makes one for each run.
        request_type: The type of the requests, if the class does not say it.
        overrides_store: Has texts that replace those of the prompt's sections and tools. A run
            goes on with the texts that it was begun with.
        overrides_tag: Which of the store's texts new runs are begun with.
        clock: Time and ids.
        lease: How long a claim lasts without a heartbeat.
    """

    def __init__(
        self,
        *,
        adapter: ProviderAdapter[OutputT],
        bus: ControlBus | None = None,
        name: str = "",
        config: MainLoopConfig | None = None,
        recovery: RecoveryConfig | None = None,
        ledger: Ledger | None = None,
        resources: Resources | None = None,
        request_type: Any = None,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
        clock: Clock | None = None,
        lease: timedelta = LEASE,
    ) -> None:
        self._adapter = adapter
        self._bus: ControlBus = bus if bus is not None else InProcessEventBus()
        self._name = name
        self._config = config or MainLoopConfig()
        if ledger is None and recovery is not None:
            ledger = _ledger_of(recovery.backend)
        self._ledger = ledger
        self._recovery = recovery or (RecoveryConfig() if ledger is not None else None)
        self._given_resources = resources
        self._overrides_store = overrides_store
        self._overrides_tag = overrides_tag
        self._clock = clock or SystemClock()
        self._lease = lease
        self.request_type = request_type_of(self, MainLoop, request_type)
        if recovery is not None and recovery.backend is None and ledger is None:
            raise InvalidInputError(
                "RecoveryConfig has no backend, and the loop has no ledger. Give one of them: "
                "RecoveryConfig(backend=...), or MainLoop(ledger=...)."
            )
        self._bus.subscribe(MainLoopRequest, self._handle)

    # --- for subclasses ---

    @abstractmethod
    def create_prompt(self, request: UserRequestT) -> Prompt[OutputT]:
        """Return the prompt for a request. The same request must give the same prompt."""

    def create_session(self) -> Session:
        """Return the session for a run: a new one, or one that continues. By default a new one."""
        return Session(bus=self._bus, clock=self._clock)

    def needs_optimization(self, session: Session) -> bool:
        """Whether the adapter is to optimize the prompt before an evaluation of it begins.

        By default never. A prompt with a workspace may want to have a digest of it first:
        `return session[WorkspaceDigest].latest() is None`. The session alone may decide it.
        """
        return False

    # --- for callers ---

    def execute(
        self,
        request: UserRequestT,
        *,
        run_id: UUID | None = None,
        continues: RecoverableRun | UUID | str | None = None,
        tags: Mapping[str, str] | None = None,
        blobs: Iterable[bytes] = (),
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Run a request to its end; returns the response, and the session with its state.

        Args:
            request: What the prompt is made for; it is recorded.
            run_id: The id of the new run; by default a new one.
            continues: A run that has ended: the new run is the next turn of its chat. The model
                sees what was said, and tools the session's state and files. ChatTurnRefusedError,
                and nothing written, if the run has not ended or has calls open.
            tags: Tags of the run, besides those of its session.
            blobs: Bytes that the request names by `blob_name`; they are recorded with it.
        """
        parent = self._continued(_id_of(continues)) if continues is not None else None
        session = self._made_session()
        asked = MainLoopRequest(request)
        return self._execute(asked, run_id, session, tags, parent, tuple(blobs)), session

    def enqueue(
        self,
        request: UserRequestT,
        *,
        run_id: UUID | None = None,
        tags: Mapping[str, str] | None = None,
        blobs: Iterable[bytes] = (),
    ) -> UUID:
        """Request a run, for a worker to take (`turnledger worker`); returns its id.

        What a run begins with is recorded, and nothing else is done.

        Args:
            request: As for `execute`.
            run_id: The id of the new run; by default a new one.
            tags: Tags of the run, besides those of its session.
            blobs: Bytes that the request names by `blob_name`.
        """
        if self._ledger is None or not self._name:
            raise InvalidInputError(
                "A request needs a ledger that workers read, and the name of their agent: make "
                "the loop with MainLoop(ledger=..., name=...)."
            )
        run = run_id or new_run_id()
        first = self._started(MainLoopRequest(request), self._made_session(), tags or {})
        entry, started, _ = self._recorded(run, first, request)
        self._ledger.append(run, entry or started, NEW, blobs=blobs)
        return run

    def take(self, held: LeaseHeartbeat) -> tuple[PromptResponse[OutputT], Session]:
        """Run a run to its end that a worker took from the queue: a resume from its last event.

        Args:
            held: The worker's claim of the run, which is released at the end.
        """
        run_id = UUID(held.claim.run_id)
        return self._published(
            run_id, lambda: recover_from_ledger(self.loop_host, run_id, RecoveryOptions(), held)
        )

    def recover(
        self,
        run: RecoverableRun | UUID | str,
        *,
        deadline: Deadline | timedelta | None = None,
        max_turns: int | None = None,
        retry_in_doubt: bool = False,
        prompt: OnChangedPrompt = "check",
        decided_by: str = "",
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Run an interrupted run to its end.

        A RecoveryError, such as CheckpointNotFoundError or CheckpointExpiredError, if it can't
        be recovered; RunClaimedError if another worker has it; DecisionRequiredError if it waits
        for a person.

        Args:
            run: The run.
            deadline: Replaces the recorded one.
            max_turns: Replaces the recorded one, for this attempt. Without a higher one, a run
                that was ended by it is a TurnLimitExceededError, and no attempt is counted.
            retry_in_doubt: Run calls in doubt again, although they may have happened. The
                consent is recorded with the resume, once the prompt was checked, and holds for
                this attempt of the run alone.
            prompt: What to do if the prompt is not the recorded one. "check" is a PromptMismatch
                that has the difference, before anything is written. "recorded" goes on with the
                recorded text and tools, if the program has these tools as they were. "accept"
                goes on with the new prompt: its evaluation begins with what was said so far.
            decided_by: Who gives that consent, or accepts the prompt.
        """
        run_id = _id_of(run)
        recover = recover_from_ledger if self._ledger is not None else recover_from_checkpoint
        options = RecoveryOptions(
            deadline=deadline,
            max_turns=checked_turns(max_turns),
            retry_in_doubt=retry_in_doubt,
            prompt=prompt,
            decided_by=decided_by,
        )
        return self._published(run_id, lambda: recover(self.loop_host, run_id, options))

    def _published(self, run_id: UUID, recovery: Callable[[], R]) -> R:
        """The result of a recovery; that it failed is published."""
        try:
            return recovery()
        except Exception as error:
            self._bus.publish(RecoveryFailed(run_id=run_id, error=error))
            raise

    def list_recoverable(self, on_damage: OnDamage | None = None) -> Sequence[RecoverableRun]:
        """The interrupted runs that no worker has claimed, oldest first.

        A damaged run is left out: `on_damage` is called with its id and the error, or a warning
        is logged.
        """
        return recoverable(self.loop_host, on_damage)

    def abandon(self, run: RecoverableRun | UUID | str, *, reason: str = "") -> None:
        """Abandon a run: it can't be recovered any more. One that a worker has is left alone."""
        run_id = _id_of(run)
        if self._ledger is not None and self._ledger.head(run_id):
            try:
                with claimed(self._ledger, run_id, lease=self._lease, clock=self._clock) as journal:
                    if journal.state.summary.status not in ("completed", "abandoned"):
                        journal.add(RunAbandoned(reason=reason))
                    if journal.state.checkpoints.latest is not None:
                        journal.add(CheckpointCleared(reason="the run is abandoned"))
                    journal.commit()
            except RunClaimedError:
                return
        backend = self.loop_host.backend
        if backend is not None:
            backend.delete(run_id)

    # --- inside ---

    @property
    def backend(self) -> CheckpointBackend | None:
        """Where checkpoints are stored; None if there is no recovery."""
        if self._recovery is None:
            return None
        if self._recovery.backend is not None:
            return self._recovery.backend
        assert self._ledger is not None
        return LedgerCheckpointBackend(self._ledger)

    @property
    def loop_host(self) -> LoopHost:
        """What running a run needs of this loop, as it is now."""
        backend = self._recovery.backend if self._recovery is not None else None
        in_ledger = self._ledger is not None and _ledger_of(backend) is self._ledger
        return LoopHost(
            adapter=self._adapter,
            evaluate=self._adapter.evaluate,
            bus=self._bus,
            clock=self._clock,
            create_prompt=self.create_prompt,
            create_session=self._made_session,
            resources=self._made_resources,
            request_type=self.request_type,
            ledger=self._ledger,
            recovery=self._recovery,
            backend=None if in_ledger else backend,
            lease=self._lease,
            name=self._name,
            tool_timeout=self._config.tool_timeout,
            output_retries=self._config.output_retries,
            overrides_store=self._overrides_store,
            overrides_tag=self._overrides_tag,
            needs_optimization=self.needs_optimization,
            optimize=self._optimize,
            limited=self._limited,
        )

    def _optimize(self, prompt: Prompt[Any], state: ExecutionState) -> None:
        """Optimize a prompt as a step of its run."""
        optimize(
            self._adapter,
            prompt,
            Caller.of(None, state),
            overrides_store=self._overrides_store,
            overrides_tag=self._overrides_tag,
            call_id=OPTIMIZE,
        )

    def _made_resources(self) -> Mapping[str, Any]:
        given = self._given_resources
        return (given() if callable(given) else given) or {}

    def _handle(self, asked: MainLoopRequest[UserRequestT]) -> None:
        """Run a request from the bus, and publish how it ended.

        A request of another type is left to another loop: several may share a bus.
        """
        if not is_of(self.request_type, asked.request):
            logger.info("request %s is left to another loop", asked.request_id)
            return
        session_id: UUID | None = None
        try:
            session = self._made_session()
            session_id = session.session_id
            response = self._execute(asked, None, session)
        except Exception as error:
            self._bus.publish(
                MainLoopFailed(request_id=asked.request_id, error=error, session_id=session_id)
            )
            raise
        self._bus.publish(
            MainLoopCompleted(request_id=asked.request_id, response=response, session_id=session_id)
        )

    def _execute(
        self,
        asked: MainLoopRequest[UserRequestT],
        run_id: UUID | None,
        session: Session,
        tags: Mapping[str, str] | None = None,
        parent: ContinuedRun | None = None,
        blobs: Sequence[bytes] = (),
    ) -> PromptResponse[OutputT]:
        run, host = run_id or new_run_id(), self.loop_host
        first = self._started(asked, session, tags or {})
        known: Known | None = None
        if parent is not None:
            known = parent.declare(session.declarations)
            first = parent.next_turn(first)
        entry, started, request = self._recorded(run, first, asked.request)
        with self._journal(run, entry or started, session, known, blobs) as journal:
            session.session_id = started.session_id or session.session_id
            state = ExecutionState(session=session, resources=host.resources())
            if parent is not None:
                state.restore_recorded(journal.known, journal.blob)
            work = RunWork(
                host=host,
                run_id=run,
                journal=journal,
                session=session,
                request=request,
                started=started,
                state=state,
            )
            return run_to_end(work)

    def _continued(self, run: UUID) -> ContinuedRun:
        if self._ledger is None:
            raise InvalidInputError(
                f"The loop has no ledger, and so no record of run {run} to continue. Make it with "
                "MainLoop(ledger=...)."
            )
        return ContinuedRun(self._ledger, run, self._name)

    def _made_session(self) -> Session:
        session = self.create_session()
        enable_inner_message_recording(session)
        return session

    def _started(
        self, asked: MainLoopRequest[UserRequestT], session: Session, tags: Mapping[str, str]
    ) -> RunStarted:
        name, payload = recorded_request(self.request_type, asked.request)
        started = RunStarted(
            request_id=asked.request_id,
            request_type=name,
            request=payload,
            requested_at=asked.created_at,
            session_id=session.session_id,
            tags={**session.tags, **tags},
            catalogue=CATALOGUE,
            agent=self._name,
        )
        limit = asked.deadline or self._config.deadline
        budget = asked.budget or self._config.budget
        started = self._with_limits(started, limit, budget)
        parent = session.run_in(self._ledger) if self._ledger is not None else None
        if self._ledger is None or parent is None:
            return started
        at = self._ledger.head(parent)
        return msgspec.structs.replace(started, parent=parent, at=at, kind="continuation")

    def _limited(self, started: RunStarted) -> RunStarted:
        """A run's first event with its limits.

        A request that was made without the agent's code (`Ledger.enqueue`) names no type, and
        has the limits of the loop that runs it.
        """
        if started.request_type or started.request_id is None:
            return started
        return self._with_limits(started, self._config.deadline, self._config.budget)

    def _with_limits(
        self, started: RunStarted, limit: Deadline | timedelta | None, budget: Budget | None
    ) -> RunStarted:
        return msgspec.structs.replace(
            started,
            deadline=limit.expires_at if isinstance(limit, Deadline) else None,
            time_limit=limit.total_seconds() if isinstance(limit, timedelta) else None,
            budget=budget.to_limits() if budget is not None else None,
            max_turns=self._config.max_turns,
        )

    def _recorded(
        self, run: UUID, started: RunStarted, request: Any
    ) -> tuple[Entry | None, RunStarted, Any]:
        """The first event and the request as they are recorded: without secrets.

        A recovery has only these, so the first attempt gets no more. With a ledger, the
        event is encoded here, once.
        """
        entry = self._ledger.prepare(started) if self._ledger is not None else None
        recorded = entry.event if entry is not None else redacted(started, STANDARD)
        assert isinstance(recorded, RunStarted)
        if msgspec.json.encode(recorded.request) == msgspec.json.encode(started.request):
            return entry, recorded, request
        try:
            shown = request_from(
                str(run), self.request_type, recorded.request_type, recorded.request
            )
            return entry, recorded, shown
        except CheckpointCorruptedError as error:
            raise InvalidInputError(
                f"The request holds a secret, and is not a valid {recorded.request_type} without "
                f"it: {error.__cause__}. Nothing was done. Give secrets to tools in another way: "
                "the environment, or what the loop is made with."
            ) from None

    @contextmanager
    def _journal(
        self,
        run: UUID,
        started: Entry | RunStarted,
        session: Session,
        before: Known | None,
        blobs: Sequence[bytes],
    ) -> Iterator[Journal]:
        """The journal of a new run: claimed in the ledger, or in the session's own memory.

        Args:
            run: The new run.
            started: Its first event.
            session: Its session, which is attached to the journal.
            before: The state that it goes on from, if that is folded already.
            blobs: Bytes that its request names.
        """
        if self._ledger is None:
            if blobs:
                raise InvalidInputError("Blobs are recorded in a ledger: give the loop one.")
            assert isinstance(started, RunStarted)
            yield session.begin_run(started)
            return
        try:
            with at_the_disk():
                claim = self._ledger.begin(
                    run, started, worker=worker_name(self._ledger), ttl=self._lease, blobs=blobs
                )
        except AppendRefusedError as error:
            error.add_note(f"Run {run} has begun already: recover it, or choose another run_id.")
            raise
        ledger, own = self._ledger, before.version if before is not None else 0
        with claimed(
            ledger,
            run,
            declarations=session.declarations,
            clock=self._clock,
            claim=claim,
            known=(lambda: before.after(ledger.read(run, after=own))) if before else None,
        ) as journal:
            session.attach(journal)
            yield journal


@explain_methods()
class OptimizationLoop(MainLoop[WorkspaceOptimization, Any]):
    """The loop of the runs that `optimize` makes for a prompt: to replay one, or recover it alone.

    The recovery of the run that it serves goes on with it, so that is rarely needed.
    """

    def __init__(
        self,
        *,
        adapter: ProviderAdapter[Any],
        bus: ControlBus,
        prompt: Prompt[Any],
        ledger: Ledger,
    ) -> None:
        """Make a loop for the optimizations of a prompt.

        Args:
            adapter: The provider.
            bus: Where events are published.
            prompt: The prompt that is optimized.
            ledger: Where the runs are.
        """
        super().__init__(
            adapter=adapter, bus=bus, ledger=ledger, resources=self._directory_for_files
        )
        self._prompt = optimization_prompt(prompt)
        self._directories: list[TemporaryDirectory[str]] = []

    def create_prompt(self, request: WorkspaceOptimization) -> Prompt[Any]:
        """Return the prompt by which the digest is written."""
        return self._prompt

    def _directory_for_files(self) -> Mapping[str, Any]:
        self._directories.append(TemporaryDirectory(prefix="turnledger-"))
        return {WORKSPACE: SnapshotableFilesystem(self._directories[-1].name)}


def _ledger_of(backend: CheckpointBackend | None) -> Ledger | None:
    return backend.ledger if isinstance(backend, LedgerCheckpointBackend) else None


def _id_of(run: RecoverableRun | UUID | str) -> UUID:
    if isinstance(run, RecoverableRun):
        return run.run_id
    if isinstance(run, UUID):
        return run
    try:
        return UUID(run)
    except (ValueError, AttributeError):
        raise InvalidRunIdError(
            f"Invalid run id {run!r}: expected a UUID, or a run of list_recoverable()."
        ) from None
