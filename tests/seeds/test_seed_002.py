"""Seed 002, the main loop and its recovery: its code blocks as printed, but for import paths.

Where a block is a fragment, the test completes it: the sections of a prompt, the parameters of a
request, what sends an email, and how the printed `recover` goes on. The acceptance tests run on
every backend, the printed one too.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID, uuid4

import pytest

from tests.agent import Crash, calls, says
from tests.seeds.printed import FrozenDataclass, assert_callable_as, assert_same_fields
from tests.unit.runtime.loops import Answer, Goal, Plan, Planner
from turnledger import runtime
from turnledger.ledger import InnerMessage, Ledger, TurnledgerError
from turnledger.projections import ReducerContext
from turnledger.runtime import (
    Budget,
    BudgetTracker,
    Checkpoint,
    CheckpointBackend,
    CheckpointExpiredError,
    CheckpointPhase,
    CompositeSnapshot,
    ControlBus,
    Deadline,
    ExecutionState,
    FilesystemCheckpointBackend,
    InProcessEventBus,
    LedgerCheckpointBackend,
    MainLoop,
    MainLoopCompleted,
    MainLoopConfig,
    MainLoopRequest,
    MarkdownSection,
    Prompt,
    PromptResponse,
    PromptTemplate,
    ProviderAdapter,
    RecoveryConfig,
    RecoveryError,
    Reply,
    ScriptedAdapter,
    SectionVisibility,
    Session,
    SetVisibilityOverride,
    SnapshotableFilesystem,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
    VisibilityOverrides,
)
from turnledger.runtime.workspace import VfsToolsSection, WorkspaceDigest, WorkspaceDigestSection

UserRequestT = TypeVar("UserRequestT")
OutputT = TypeVar("OutputT")


# --- Core Components ---------------------------------------------------------------------


class Printed:
    """The seed's own classes."""

    class MainLoop(ABC, Generic[UserRequestT, OutputT]):
        def __init__(
            self,
            *,
            adapter: ProviderAdapter[OutputT],
            bus: ControlBus,
            config: MainLoopConfig | None = None,
            recovery: RecoveryConfig | None = None,  # New parameter
        ) -> None: ...

        @abstractmethod
        def create_prompt(self, request: UserRequestT) -> Prompt[OutputT]: ...

        @abstractmethod
        def create_session(self) -> Session: ...

        def execute(
            self,
            request: UserRequestT,
            *,
            run_id: UUID | None = None,  # Explicit run ID for tracking
        ) -> tuple[PromptResponse[OutputT], Session]: ...

        def recover(self, run_id: UUID) -> tuple[PromptResponse[OutputT], Session]:
            """Resume an interrupted run from its last checkpoint."""

        def list_recoverable(self) -> Sequence[Any]:
            """List runs that can be recovered."""

        def abandon(self, run_id: UUID) -> None:
            """Mark a run as abandoned and delete its checkpoint."""

    @FrozenDataclass()
    class MainLoopRequest(Generic[UserRequestT]):
        request: UserRequestT
        budget: Budget | None = None  # Overrides config default
        deadline: Deadline | None = None  # Overrides config default
        request_id: UUID = field(default_factory=uuid4)
        created_at: datetime = field(default_factory=lambda: datetime.now(UTC))  # fmt: skip

    @FrozenDataclass()
    class MainLoopCompleted(Generic[OutputT]):
        request_id: UUID
        response: PromptResponse[OutputT]
        session_id: UUID
        completed_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @FrozenDataclass()
    class MainLoopFailed:
        request_id: UUID
        error: Exception
        session_id: UUID | None
        failed_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @FrozenDataclass()
    class MainLoopConfig:
        deadline: Deadline | None = None
        budget: Budget | None = None

    @dataclass(slots=True, frozen=True)
    class Checkpoint:
        """Serializable execution state at a transaction boundary."""

        run_id: UUID
        request_id: UUID
        created_at: datetime
        composite_snapshot: CompositeSnapshot
        request_payload: bytes  # Serialized UserRequestT
        request_type: str  # Fully-qualified type name
        tool_calls_completed: int  # Progress indicator
        phase: CheckpointPhase
        adapter_state: bytes | None  # Optional adapter-specific state  # fmt: skip

    class CheckpointPhase(Enum):
        """Lifecycle phase when checkpoint was taken."""

        INITIALIZED = "initialized"  # After session/prompt creation, before first eval
        POST_TOOL = "post_tool"  # After successful tool execution
        COMPLETED = "completed"  # Final checkpoint before cleanup
        FAILED = "failed"  # Checkpoint taken on handled failure  # fmt: skip

    @dataclass(slots=True, frozen=True)
    class RecoveryConfig:
        """Configuration for restart recovery."""

        backend: CheckpointBackend
        checkpoint_interval: int = 1  # Checkpoint every N successful tool calls
        cleanup_on_success: bool = True  # Delete checkpoint after successful completion
        max_resume_age: timedelta = timedelta(hours=24)  # Ignore stale checkpoints  # fmt: skip

    class CheckpointBackend(Protocol):
        """Storage backend for execution checkpoints."""

        def save(self, run_id: UUID, checkpoint: Checkpoint) -> None:
            """Persist a checkpoint. Overwrites any existing checkpoint for run_id."""
            ...

        def load(self, run_id: UUID) -> Checkpoint | None:
            """Load the most recent checkpoint for a run, or None if not found."""
            ...

        def delete(self, run_id: UUID) -> None:
            """Remove checkpoint for a completed or abandoned run."""
            ...

        def list_incomplete(self) -> Sequence[UUID]:
            """Return run IDs with checkpoints that were never marked complete."""
            ...

    class ProviderAdapter(Protocol[OutputT]):
        def evaluate(
            self,
            prompt: Prompt[OutputT],
            *,
            execution_state: ExecutionState,
            deadline: Deadline | None = None,
            budget_tracker: BudgetTracker | None = None,
            resume_from: Any = None,  # New parameter
        ) -> PromptResponse[OutputT]: ...

    @dataclass(slots=True, frozen=True)
    class AdapterResumeState:
        """State needed to resume an interrupted adapter evaluation."""

        conversation_prefix: tuple[InnerMessage, ...]  # Messages up to interruption
        pending_tool_calls: tuple[ToolCall, ...]  # Unanswered tool calls

    @FrozenDataclass()
    class CheckpointSaved:
        """Published after a checkpoint is persisted."""

        run_id: UUID
        checkpoint_id: UUID
        phase: CheckpointPhase
        tool_calls_completed: int
        created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @FrozenDataclass()
    class RecoveryStarted:
        """Published when recovery begins for an interrupted run."""

        run_id: UUID
        checkpoint_created_at: datetime
        tool_calls_completed: int
        started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @FrozenDataclass()
    class RecoveryCompleted:
        """Published when recovery finishes successfully."""

        run_id: UUID
        completed_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @FrozenDataclass()
    class RecoveryFailed:
        """Published when recovery fails."""

        run_id: UUID
        error: Exception
        failed_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@pytest.mark.parametrize(
    "name",
    [
        "MainLoopRequest",
        "MainLoopCompleted",
        "MainLoopFailed",
        "MainLoopConfig",
        "Checkpoint",
        "RecoveryConfig",
        "AdapterResumeState",
        "CheckpointSaved",
        "RecoveryStarted",
        "RecoveryCompleted",
        "RecoveryFailed",
    ],
)
def test_the_classes_are_as_printed(name: str) -> None:
    """S2-4 to S2-7, S2-13, S2-15, S2-19, S2-21: fields in their order, with their defaults."""
    assert_same_fields(getattr(Printed, name), getattr(runtime, name))


def test_the_methods_are_as_printed() -> None:
    """S2-1, S2-2, S2-3, S2-12, S2-14, S2-16: parameters by name, and the phases."""
    for name in ("save", "load", "delete", "list_incomplete"):
        for backend in (FilesystemCheckpointBackend, LedgerCheckpointBackend):
            assert_callable_as(getattr(Printed.CheckpointBackend, name), getattr(backend, name))
    for name in ("__init__", "create_prompt", "create_session", "execute", "list_recoverable"):
        assert_callable_as(getattr(Printed.MainLoop, name), getattr(MainLoop, name))
    assert_callable_as(Printed.ProviderAdapter.evaluate, ProviderAdapter.evaluate)
    assert [(one.name, one.value) for one in CheckpointPhase] == [
        (one.name, one.value) for one in Printed.CheckpointPhase
    ]
    # A session has a default; the prompt is the subclass's.
    assert MainLoop.__abstractmethods__ == {"create_prompt"}


def test_the_errors_are_the_printed_tree() -> None:
    """S2-22: each is a RecoveryError, which is a RuntimeError under the project's own root."""

    class RecoveryError(TurnledgerError, RuntimeError):
        """Base class for recovery errors."""

    class CheckpointNotFoundError(RecoveryError):
        """No checkpoint exists for the given run ID."""

    class CheckpointExpiredError(RecoveryError):
        """Checkpoint is older than max_resume_age."""

    class CheckpointCorruptedError(RecoveryError):
        """Checkpoint data is invalid or cannot be deserialized."""

    class RequestTypeMismatchError(RecoveryError):
        """Checkpoint request type does not match MainLoop type parameters."""

    for kind in RecoveryError.__subclasses__():
        assert issubclass(getattr(runtime, kind.__name__), runtime.RecoveryError)
    assert issubclass(runtime.RecoveryError, RecoveryError.__bases__)


# --- Execution ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ReviewRequest:
    path: str


@dataclass(frozen=True)
class ReviewResult:
    verdict: str


@dataclass(frozen=True)
class ReviewParams:
    path: str

    @classmethod
    def from_request(cls, request: ReviewRequest) -> ReviewParams:
        return cls(request.path)


SECTION = MarkdownSection[ReviewParams](title="Task", template="Review ${path}.", key="task")
GOOD = Reply(text='{"verdict": "good"}')


# --- Implementation --------------------------------------------------------------------


class CodeReviewLoop(MainLoop[ReviewRequest, ReviewResult]):
    def __init__(self, *, adapter: ProviderAdapter[ReviewResult], bus: ControlBus) -> None:
        super().__init__(adapter=adapter, bus=bus)
        self._template = PromptTemplate[ReviewResult](
            ns="reviews",
            key="code-review",
            sections=[SECTION],
        )

    def create_prompt(self, request: ReviewRequest) -> Prompt[ReviewResult]:
        return Prompt(self._template).bind(ReviewParams.from_request(request))

    def create_session(self) -> Session:
        return Session(bus=self._bus, tags={"loop": "code-review"})


def test_the_code_review_loop_runs() -> None:
    """S2-11: the seed's CodeReviewLoop, by call and by bus, with constraints of the request."""
    bus = InProcessEventBus()
    adapter: ScriptedAdapter[ReviewResult] = ScriptedAdapter([GOOD])
    loop = CodeReviewLoop(adapter=adapter, bus=bus)
    prompt = loop.create_prompt(ReviewRequest("a.py"))
    assert (prompt.ns, prompt.key) == ("reviews", "code-review")
    assert "Review a.py." in prompt.render().text
    response, session = loop.execute(ReviewRequest("a.py"))
    assert response.output == ReviewResult("good")
    assert (dict(session.tags), bool(session.session_id)) == ({"loop": "code-review"}, True)

    told: list[MainLoopCompleted[ReviewResult]] = []
    bus.subscribe(MainLoopCompleted, told.append)
    bus.publish(
        MainLoopRequest(
            request=ReviewRequest("b.py"),
            budget=Budget(max_total_tokens=10000),
        )
    )
    assert [one.response.output for one in told] == [ReviewResult("good")]


def test_a_recovery_enabled_loop_runs(tmp_path: Path) -> None:
    """S2-20: the seed's basic usage, with files as the backend."""

    class MyMainLoop(CodeReviewLoop):
        def __init__(self, *, adapter: Any, bus: Any, recovery: RecoveryConfig) -> None:
            MainLoop.__init__(self, adapter=adapter, bus=bus, recovery=recovery)
            self._template = PromptTemplate[ReviewResult](
                ns="reviews", key="code-review", sections=[SECTION]
            )

    backend = FilesystemCheckpointBackend(root=tmp_path)
    recovery = RecoveryConfig(backend=backend)

    loop = MyMainLoop(
        adapter=ScriptedAdapter([GOOD]),
        bus=InProcessEventBus(),
        recovery=recovery,
    )

    # Normal execution with explicit run_id
    run_id = uuid4()
    response, _ = loop.execute(ReviewRequest("a.py"), run_id=run_id)
    assert response.output == ReviewResult("good")


# --- With reducers ---------------------------------------------------------------------


@dataclass(frozen=True)
class SetupPlan:
    goal: str


def plan_reducer(
    slice_values: tuple[Plan, ...], event: SetupPlan, *, context: ReducerContext
) -> tuple[Plan, ...]:
    return (*slice_values, Plan(event.goal))


def setup(params: SetupPlan, *, context: ToolContext) -> ToolResult[None]:
    assert context.session is not None
    context.session[Plan].apply(params)
    return ToolResult(message="Planned.")


class PlanningLoop(CodeReviewLoop):
    def create_session(self) -> Session:
        session = Session(bus=self._bus)
        session[Plan].register(SetupPlan, plan_reducer)
        return session

    def create_prompt(self, request: ReviewRequest) -> Prompt[ReviewResult]:
        tool = Tool[SetupPlan, None](name="setup", description="Plan.", handler=setup)
        section = MarkdownSection[ReviewParams](
            title="Task", template="Review ${path}.", key="task", tools=[tool]
        )
        template = PromptTemplate[ReviewResult](ns="reviews", key="plan", sections=[section])
        return Prompt(template).bind(ReviewParams.from_request(request))


def test_reducers_that_a_session_is_made_with_are_used() -> None:
    """S2-11: an event that a tool applies goes through the registered reducer."""
    replies = [Reply(tool_calls=(ToolCall("c1", "setup", '{"goal": "review"}'),)), GOOD]
    loop = PlanningLoop(adapter=ScriptedAdapter(replies), bus=InProcessEventBus())
    _, session = loop.execute(ReviewRequest("a.py"))
    assert session[Plan].latest() == Plan("review")


# --- Code reviewer integration ---------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    path: str


class Reviewer(MainLoop[ReviewRequest, ReviewResult]):
    """One session for all of its requests, and a deadline of five minutes."""

    def __init__(self, *, adapter: Any, bus: Any, **options: Any) -> None:
        config = MainLoopConfig(
            deadline=Deadline(expires_at=datetime.now(UTC) + timedelta(minutes=5)),
        )
        super().__init__(adapter=adapter, bus=bus, config=config, **options)
        self._session = Session(bus=bus)

    def execute(self, request: ReviewRequest, **options: Any) -> Any:
        if self._session[WorkspaceDigest].latest() is None:
            self._run_optimization()
        # ... proceed with evaluation
        return super().execute(request, **options)

    def _run_optimization(self) -> None:
        self._adapter.optimize(self.create_prompt(ReviewRequest("")), session=self._session)

    def create_session(self) -> Session:
        return self._session

    def create_prompt(self, request: ReviewRequest) -> Prompt[ReviewResult]:
        tool = Tool[Seen, None](name="see", description="See.", handler=self._see)
        section = MarkdownSection[ReviewParams](
            title="Task", template="Review ${path}.", key="task", tools=[tool]
        )
        sections: list[Any] = [section, VfsToolsSection(), WorkspaceDigestSection()]
        template = PromptTemplate[ReviewResult](ns="reviews", key="review", sections=sections)
        return Prompt(template).bind(ReviewParams.from_request(request))

    def _see(self, params: Seen, *, context: ToolContext) -> ToolResult[None]:
        assert context.session is not None
        context.session[Seen].append(params)
        return ToolResult("Seen.")


@pytest.mark.parametrize("kept", [True, False])
def test_the_reviewers_session_goes_on_over_its_requests(kept: bool) -> None:
    """S2-11: optimized once, state accumulates over executes; each conversation is fresh."""
    lengths: list[int] = []
    optimized: list[str] = []

    def reply(request: Any) -> Reply:
        if request.prompt_name == "reviews.optimization/review-workspace-digest":
            optimized.append(request.prompt_name)
            return says("Nothing but Python.")
        assert "Nothing but Python." in request.system
        lengths.append(len(request.turns))
        return calls(("c1", "see", '{"path": "x"}')) if request.turn == 1 else GOOD

    with Ledger.open("memory://") as ledger, TemporaryDirectory() as folder:
        loop = Reviewer(
            adapter=ScriptedAdapter(reply),
            bus=InProcessEventBus(),
            ledger=ledger if kept else None,
            resources={"workspace": SnapshotableFilesystem(folder)},
        )
        for count, path in enumerate(("a.py", "b.py", "c.py"), start=1):
            response, session = loop.execute(ReviewRequest(path))
            assert response.output == ReviewResult("good")
            assert session[Seen].all() == (Seen("x"),) * count
        assert lengths == [1, 3] * 3
        assert len(optimized) == 1
        kinds = [
            next(r.event.kind for r in ledger.read(info.run_id) if r.run_id == info.run_id)  # type: ignore[union-attr]
            for info in ledger.runs()
        ]
        assert sorted(kinds) == (["continuation", "continuation", "run"] if kept else [])


# --- With progressive disclosure ---------------------------------------------------------


@dataclass(frozen=True)
class Output:
    answer: str


class DisclosingLoop(MainLoop[ReviewRequest, Output]):
    def create_session(self) -> Session:
        return Session(bus=self._bus)

    def create_prompt(self, request: ReviewRequest) -> Prompt[Output]:
        return Prompt(PromptTemplate[Output](
            ns="agent",
            key="task",
            sections=[
                MarkdownSection[ReviewParams](
                    title="Reference",
                    template="...",
                    summary="Reference available.",
                    visibility=SectionVisibility.SUMMARY,
                    key="reference",
                ),
            ],
        )).bind(ReviewParams.from_request(request))  # fmt: skip


class PrintedExecute(DisclosingLoop):
    """The printed `execute`; the request's limits are none here."""

    _effective_budget: Budget | None = Budget(max_total_tokens=10000)
    _effective_deadline: Deadline | None = None

    def execute(  # type: ignore[override]
        self, request: ReviewRequest
    ) -> tuple[PromptResponse[Output], Session]:
        session = self.create_session()
        prompt = self.create_prompt(request)
        budget_tracker = (
            BudgetTracker(budget=self._effective_budget) if self._effective_budget else None
        )

        while True:
            try:
                response = self._adapter.evaluate(
                    prompt,
                    session=session,
                    deadline=self._effective_deadline,
                    budget_tracker=budget_tracker,
                )
                return response, session
            except VisibilityExpansionRequired as e:
                for path, visibility in e.requested_overrides.items():
                    session[VisibilityOverrides].apply(
                        SetVisibilityOverride(path=path, visibility=visibility)
                    )


@pytest.mark.parametrize("kind", [DisclosingLoop, PrintedExecute])
def test_the_progressive_disclosure_example_runs(kind: type[DisclosingLoop]) -> None:
    """S2-8, S2-11: summarised, opened by the model, evaluated again; also by the printed loop."""
    seen: list[str] = []

    def reply(request: Any) -> Reply:
        seen.append(request.system)
        if len(seen) == 1:
            opened = '{"section_keys": ["reference"], "reason": "to know"}'
            return calls(("o1", "open_sections", opened))
        return says('{"answer": "yes"}')

    loop = kind(adapter=ScriptedAdapter(reply), bus=InProcessEventBus())
    response, session = loop.execute(ReviewRequest("a.py"))
    assert response.output == Output("yes")
    assert "Reference available." in seen[0]
    assert seen[1].startswith("## Reference\n\n...")
    shown = session[VisibilityOverrides].latest()
    assert shown is not None
    assert dict(shown.overrides) == {"reference": SectionVisibility.FULL}


# --- Idempotent tool handlers ------------------------------------------------------------


@dataclass(frozen=True)
class SendEmailParams:
    idempotency_key: str


class SentEmails:
    """The slice of what was sent."""


@dataclass(frozen=True)
class SentEmail:
    key: str


sent: list[str] = []


def send_email(params: SendEmailParams) -> None:
    sent.append(params.idempotency_key)


def send_email_handler(params: SendEmailParams, *, context: ToolContext) -> ToolResult:  # type: ignore[type-arg]
    # Check if already sent (idempotency key in session)
    sent_emails = context.session[SentEmails].all()  # type: ignore[index]
    if params.idempotency_key in {e.key for e in sent_emails}:
        return ToolResult(message="Email already sent", success=True)

    # Send and record
    send_email(params)
    context.session[SentEmails].append(SentEmail(key=params.idempotency_key))  # type: ignore[index]
    return ToolResult(message="Email sent", success=True)


class Mailing(Planner):
    """Sends the same mail three times over; the process dies in the second call."""

    def create_prompt(self, request: Goal) -> Prompt[Answer]:
        def handler(params: SendEmailParams, *, context: ToolContext) -> ToolResult:  # type: ignore[type-arg]
            self.in_tool(context)
            return send_email_handler(params, context=context)

        tool: Any = Tool(name="send_email", description="Send.", handler=handler)
        section = MarkdownSection[Goal](
            title="Task", template="Mail ${text}.", key="task", tools=[tool]
        )
        template = PromptTemplate[Answer](ns="mails", key="mail", sections=[section])
        return Prompt(template).bind(request)


MAIL = '{"idempotency_key": "k1"}'
MAILS = [calls((name, "send_email", MAIL)) for name in ("c1", "c2", "c3")]


@pytest.mark.parametrize("stored", ["ledger", "files"])
def test_the_send_email_handler_sends_once(stored: str, tmp_path: Path) -> None:
    """S2-24: in one run with several calls, and after a crash in another process's session."""
    sent.clear()
    with Ledger.open("memory://") as ledger:
        options: dict[str, Any] = {"ledger": ledger}
        if stored == "files":
            backend = FilesystemCheckpointBackend(root=tmp_path)
            options = {"recovery": RecoveryConfig(backend=backend)}
        crashing = Mailing([*MAILS, says('{"steps": 3}')], **options)

        def die(context: ToolContext) -> None:
            if context.call_id == "c2":
                raise Crash

        crashing.in_tool = die
        with pytest.raises(Crash):
            crashing.execute(Goal())
        loop = Mailing([*MAILS, says('{"steps": 3}')], **options)
        (run,) = loop.list_recoverable()
        _, session = loop.recover(run)
        assert sent == ["k1"]
        told = [m.content for m in session[InnerMessage].all() if m.role == "tool"]
        assert told == ["Email sent", "Email already sent", "Email already sent"]
        session.install(SentEmail)  # until then its values are JSON with attributes
        assert session[SentEmails].all() == (SentEmail("k1"),)  # type: ignore[comparison-overlap]


def test_a_tool_sees_what_it_recorded_itself() -> None:
    """S2-24: within one call, before anything is committed."""
    sent.clear()

    def twice(params: SendEmailParams, *, context: ToolContext) -> ToolResult:  # type: ignore[type-arg]
        first = send_email_handler(params, context=context)
        again = send_email_handler(params, context=context)
        return ToolResult(message=f"{first.message}. {again.message}.", success=False)

    tool: Any = Tool(name="send_email", description="Send.", handler=twice)
    section: Any = MarkdownSection(title="Task", template="Mail.", key="task", tools=[tool])
    session = Session()
    response = ScriptedAdapter([MAILS[0], says("ok")]).evaluate(
        Prompt(PromptTemplate(ns="mails", key="mail", sections=[section])), session=session
    )
    assert [one.result.message for one in response.tool_results] == [
        "Email sent. Email already sent."
    ]
    assert session[SentEmails].all() == ()  # a tool that failed leaves no trace


# --- Restart Recovery --------------------------------------------------------------------


@dataclass(slots=True)
class PrintedFilesystemCheckpointBackend:
    """Checkpoint backend using local filesystem."""

    root: Path

    def save(self, run_id: UUID, checkpoint: Checkpoint) -> None:
        path = self.root / f"{run_id}.checkpoint.json"
        path.write_text(checkpoint.to_json())

    def load(self, run_id: UUID) -> Checkpoint | None:
        path = self.root / f"{run_id}.checkpoint.json"
        if not path.exists():
            return None
        return Checkpoint.from_json(path.read_text())

    def delete(self, run_id: UUID) -> None:
        path = self.root / f"{run_id}.checkpoint.json"
        path.unlink(missing_ok=True)

    def list_incomplete(self) -> Sequence[UUID]:
        return [
            UUID(p.stem.replace(".checkpoint", ""))
            for p in self.root.glob("*.checkpoint.json")
            if Checkpoint.from_json(p.read_text()).phase != CheckpointPhase.COMPLETED
        ]


class PrintedRecover(Planner):
    """The printed `recover`; the names that it takes for granted are below it."""

    def recover(self, run_id: UUID) -> tuple[PromptResponse[Answer], Session]:  # type: ignore[override]
        checkpoint = self._recovery.backend.load(run_id)  # type: ignore[union-attr]
        if checkpoint is None:
            raise RecoveryError(f"No checkpoint found for run {run_id}")

        age = datetime.now(UTC) - checkpoint.created_at
        if age > self._recovery.max_resume_age:  # type: ignore[union-attr]
            raise RecoveryError(f"Checkpoint too old: {age}")

        # Deserialize request
        request = deserialize(checkpoint.request_payload, checkpoint.request_type)

        # Create fresh session and restore state
        session = self.create_session()
        execution_state = ExecutionState(session=session, resources=self._build_resources())
        execution_state.restore(checkpoint.composite_snapshot)

        # Recreate prompt (must be deterministic)
        prompt = self.create_prompt(request)

        # Resume evaluation
        return self._execute_with_state(
            request=request,
            run_id=run_id,
            execution_state=execution_state,
            prompt=prompt,
            resume_from=checkpoint,
        )

    def create_session(self) -> Session:
        session = super().create_session()
        session.install(InnerMessage)
        return session

    def _build_resources(self) -> dict[str, Any]:
        return {}

    def _execute_with_state(
        self, *, execution_state: ExecutionState, prompt: Prompt[Answer], **known: Any
    ) -> tuple[PromptResponse[Answer], Session]:
        response = self._adapter.evaluate(prompt, execution_state=execution_state, resume=True)
        return response, execution_state.session


def deserialize(payload: bytes, name: str) -> Goal:
    assert name == "Goal"
    return Goal(**json.loads(payload))


log = logging.getLogger(__name__)
request_with_tool_calls = request = Goal()
expected_output = Answer(3)


@pytest.fixture(
    params=["files", "ledger", "ledger given as backend", "ledger and files", "printed files"]
)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A backend, and how a loop with it is made."""
    files: Any = FilesystemCheckpointBackend(root=tmp_path / "checkpoints")
    if request.param == "printed files":
        files = PrintedFilesystemCheckpointBackend(root=tmp_path)
    with Ledger.open("memory://") as ledger:
        own = LedgerCheckpointBackend(ledger)
        backend: Any = files if "files" in request.param else own

        def new(**config: Any) -> Planner:
            given = backend if request.param != "ledger" else None
            recovery = RecoveryConfig(backend=given, **config)
            book = ledger if request.param in ("ledger", "ledger and files") else None
            return Planner(recovery=recovery, ledger=book)

        yield backend, new


@pytest.fixture
def backend(made: tuple[Any, Any]) -> CheckpointBackend:
    found: CheckpointBackend = made[0]
    return found


@pytest.fixture
def new_loop(made: tuple[Any, Any]) -> Callable[..., Planner]:
    """Another loop with the same backend: another process, as it were."""
    found: Callable[..., Planner] = made[1]
    return found


@pytest.fixture
def loop(new_loop: Callable[..., Planner]) -> Planner:
    return new_loop()


@pytest.fixture
def simulate_crash_after_n_tools(loop: Planner) -> Any:
    """Dies in the tool after the n-th."""

    @contextmanager
    def crashing(n: int) -> Iterator[None]:
        def die(context: Any) -> None:
            if len(loop.ran) == n:
                raise Crash

        loop.in_tool = die
        try:
            yield
        except Crash:
            loop.in_tool = lambda context: None
        else:
            raise AssertionError("nothing crashed")

    return crashing


def old(run_id: UUID, created_at: datetime) -> Checkpoint:
    return Checkpoint(
        run_id=run_id,
        created_at=created_at,
        request_id=uuid4(),
        composite_snapshot=CompositeSnapshot(session=Session().snapshot(), resources={}),
        request_payload=b'{"text": "tidy up"}',
        request_type="Goal",
        tool_calls_completed=0,
        phase=CheckpointPhase.INITIALIZED,
        adapter_state=None,
    )


# --- the seed's words ------------------------------------------------------------------


def test_checkpoint_created_after_tool_call(
    new_loop: Callable[..., Planner], backend: CheckpointBackend
) -> None:
    """S2-24, X5: a checkpoint of a run is there after it, if it is not cleaned up."""
    loop: MainLoop[Goal, Answer] = new_loop(cleanup_on_success=False)
    run_id = uuid4()
    loop.execute(request_with_tool_calls, run_id=run_id)

    # Checkpoint was created during execution
    assert backend.load(run_id) is not None


def test_recovery_restores_state(
    loop: MainLoop[Goal, Answer], simulate_crash_after_n_tools: Any
) -> None:
    """S2-24: after a crash the state and the answer are those of a run that did not crash."""
    run_id = uuid4()

    # Execute partway, then simulate crash
    with simulate_crash_after_n_tools(n=2):
        loop.execute(request, run_id=run_id)

    # Recover and verify state
    response, session = loop.recover(run_id)
    assert session[Plan].latest() is not None
    assert response.output == expected_output
    assert session[Plan].all() == (Plan("c1"), Plan("c2"), Plan("c3"))


def test_stale_checkpoint_rejected(
    loop: MainLoop[Goal, Answer], backend: CheckpointBackend
) -> None:
    """S2-24, X9: a foreign checkpoint that is two days old is saved, and not recovered."""
    run_id = uuid4()
    old_checkpoint = old(run_id, datetime.now(UTC) - timedelta(days=2))
    backend.save(run_id, old_checkpoint)

    with pytest.raises(CheckpointExpiredError):
        loop.recover(run_id)


def test_checkpoint_deleted_on_success(
    loop: MainLoop[Goal, Answer], backend: CheckpointBackend
) -> None:
    """S2-24, X5: by default a run that succeeded has no checkpoint any more."""
    run_id = uuid4()
    loop.execute(request, run_id=run_id)

    # Checkpoint cleaned up after successful completion
    assert backend.load(run_id) is None


def test_startup_recovery(
    new_loop: Callable[..., Planner],
    loop: Planner,
    backend: CheckpointBackend,
    simulate_crash_after_n_tools: Any,
) -> None:
    """S2-24: at start-up what is recovered is told, and what can't be is abandoned."""
    crashed, stale = uuid4(), uuid4()
    with simulate_crash_after_n_tools(n=1):
        loop.execute(request, run_id=crashed)
    backend.save(stale, old(stale, datetime.now(UTC) - timedelta(days=2)))
    bus, told = InProcessEventBus(), []
    bus.subscribe(MainLoopCompleted, told.append)
    loop = new_loop()

    # On process startup, recover any incomplete runs
    for run_id in loop.list_recoverable():
        try:
            response, session = loop.recover(run_id)
            bus.publish(
                MainLoopCompleted(
                    request_id=run_id.request_id, response=response, session_id=session.session_id
                )
            )
        except RecoveryError as e:
            log.warning(f"Failed to recover run {run_id}: {e}")
            loop.abandon(run_id)

    assert [one.response.output for one in told] == [Answer(3)]
    assert loop.list_recoverable() == []
    assert backend.load(stale) is None


def test_worker_entry_point(
    new_loop: Callable[..., Planner], loop: Planner, simulate_crash_after_n_tools: Any
) -> None:
    """S2-24: a worker first recovers what was interrupted, then takes new work."""
    with simulate_crash_after_n_tools(n=2):
        loop.execute(request)
    results: list[Answer | None] = []
    requests = [Goal("sweep"), None]

    def create_main_loop() -> Planner:
        return new_loop()

    def publish_result(response: Any, session: Session) -> None:
        results.append(response.output)

    def receive_request() -> Goal | None:
        return requests.pop(0)

    def worker_main() -> None:
        """Entry point with automatic recovery."""
        loop = create_main_loop()

        # Phase 1: Recover interrupted work
        for run_id in loop.list_recoverable():
            try:
                response, session = loop.recover(run_id)
                publish_result(response, session)
            except RecoveryError:
                loop.abandon(run_id)

        # Phase 2: Process new work
        while True:
            request = receive_request()
            if request is None:
                return
            new_run_id = uuid4()
            response, session = loop.execute(request, run_id=new_run_id)
            publish_result(response, session)

    worker_main()
    assert results == [Answer(3), Answer(3)]


def test_the_printed_recover_runs(tmp_path: Path) -> None:
    """S2-18: in its order, over our backend, session and adapter, with the same end."""
    recovery = RecoveryConfig(backend=FilesystemCheckpointBackend(root=tmp_path))
    loop, run_id = PrintedRecover(recovery=recovery), uuid4()

    def die(context: Any) -> None:
        if context.call_id == "c3":
            raise Crash

    loop.in_tool = die
    with pytest.raises(Crash):
        loop.execute(request, run_id=run_id)
    loop.in_tool = lambda context: None
    response, session = loop.recover(run_id)
    assert response.output == expected_output
    assert session[Plan].all() == (Plan("c1"), Plan("c2"), Plan("c3"))
    assert loop.ran == ["c1", "c2", "c3"]
    with pytest.raises(RecoveryError, match="No checkpoint"):
        loop.recover(uuid4())


def test_a_fresh_foreign_checkpoint_is_recovered(
    loop: Planner, backend: CheckpointBackend, simulate_crash_after_n_tools: Any
) -> None:
    """X9: a checkpoint from elsewhere is gone on from, and what it holds is not done again."""
    elsewhere = Planner()
    run_id = uuid4()
    session = elsewhere.create_session()
    session[Plan].append(Plan("before"))
    fresh = Checkpoint(
        run_id=run_id,
        created_at=datetime.now(UTC) - timedelta(minutes=5),
        request_id=uuid4(),
        composite_snapshot=CompositeSnapshot(session=session.snapshot(), resources={}),
        request_payload=b'{"text": "tidy up"}',
        request_type="Goal",
        tool_calls_completed=4,
        phase=CheckpointPhase.POST_TOOL,
        adapter_state=b"whatever",
    )
    backend.save(run_id, fresh)
    (found,) = loop.list_recoverable()
    assert (found.run_id, found.phase, found.tool_calls_completed) == (
        run_id,
        CheckpointPhase.POST_TOOL,
        4,
    )

    with simulate_crash_after_n_tools(n=1):
        loop.recover(found)
    (again,) = loop.list_recoverable()
    assert again.tool_calls_completed == 5

    response, session = loop.recover(run_id)
    assert response.output == Answer(3)
    assert [plan.step for plan in session[Plan].all()] == ["before", "c1", "c2", "c3"]
    assert loop.ran == ["c1", "c2", "c3"]
