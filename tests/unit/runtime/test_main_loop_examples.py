"""The seed's examples of a main loop, typed as they stand but for their imports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from turnledger.ledger import Ledger
from turnledger.projections import ReducerContext
from turnledger.runtime import (
    Budget,
    ControlBus,
    Deadline,
    FilesystemCheckpointBackend,
    InProcessEventBus,
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
    Reply,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)


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
class Plan:
    steps: tuple[str, ...]


@dataclass(frozen=True)
class SetupPlan:
    goal: str


def plan_reducer(
    slice_values: tuple[Plan, ...], event: SetupPlan, *, context: ReducerContext
) -> tuple[Plan, ...]:
    return (*slice_values, Plan((f"think about {event.goal}", event.goal)))


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
    assert session[Plan].latest() == Plan(("think about review", "review"))


# --- Code reviewer integration ---------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    path: str


class Reviewer(MainLoop[ReviewRequest, ReviewResult]):
    """One session for all of its requests, and a deadline of five minutes."""

    def __init__(self, *, adapter: Any, bus: Any, ledger: Ledger | None = None) -> None:
        config = MainLoopConfig(
            deadline=Deadline(expires_at=datetime.now(UTC) + timedelta(minutes=5)),
        )
        super().__init__(adapter=adapter, bus=bus, config=config, ledger=ledger)
        self._session_kept = Session(bus=bus)

    def create_session(self) -> Session:
        return self._session_kept

    def create_prompt(self, request: ReviewRequest) -> Prompt[ReviewResult]:
        tool = Tool[Seen, None](name="see", description="See.", handler=self._see)
        section = MarkdownSection[ReviewParams](
            title="Task", template="Review ${path}.", key="task", tools=[tool]
        )
        template = PromptTemplate[ReviewResult](ns="reviews", key="review", sections=[section])
        return Prompt(template).bind(ReviewParams.from_request(request))

    def _see(self, params: Seen, *, context: ToolContext) -> ToolResult[None]:
        assert context.session is not None
        context.session[Seen].append(params)
        return ToolResult("Seen.")


@pytest.mark.parametrize("kept", [True, False])
def test_the_reviewers_session_goes_on_over_its_requests(kept: bool) -> None:
    """S2-11: state accumulates over executes; each conversation is fresh."""
    lengths: list[int] = []

    def reply(request: Any) -> Reply:
        lengths.append(len(request.turns))
        if request.turn == 1:
            return Reply(tool_calls=(ToolCall("c1", "see", '{"path": "x"}'),))
        return GOOD

    with Ledger.open("memory://") as ledger:
        loop = Reviewer(
            adapter=ScriptedAdapter(reply),
            bus=InProcessEventBus(),
            ledger=ledger if kept else None,
        )
        answers: list[PromptResponse[ReviewResult]] = []
        for path in ("a.py", "b.py", "c.py"):
            response, session = loop.execute(ReviewRequest(path))
            answers.append(response)
            assert session[Seen].all() == (Seen("x"),) * len(answers)
        assert lengths == [1, 3] * 3
        kinds = [
            next(r.event.kind for r in ledger.read(info.run_id) if r.run_id == info.run_id)  # type: ignore[union-attr]
            for info in ledger.runs()
        ]
        assert sorted(kinds) == (["continuation", "continuation", "run"] if kept else [])


# --- Idempotent tool handlers ----------------------------------------------------------


@dataclass(frozen=True)
class SendEmailParams:
    idempotency_key: str


@dataclass(frozen=True)
class SentEmail:
    key: str


SentEmails = SentEmail  # the slice of what was sent
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
    assert context.session[SentEmails].latest() == SentEmail(params.idempotency_key)  # type: ignore[index]
    return ToolResult(message="Email sent", success=True)


class Mailing(CodeReviewLoop):
    def create_prompt(self, request: ReviewRequest) -> Prompt[ReviewResult]:
        tool: Any = Tool(name="send_email", description="Send.", handler=send_email_handler)
        section = MarkdownSection[ReviewParams](
            title="Task", template="Mail ${path}.", key="task", tools=[tool]
        )
        template = PromptTemplate[ReviewResult](ns="mails", key="mail", sections=[section])
        return Prompt(template).bind(ReviewParams.from_request(request))


def test_the_send_email_handler_sends_once() -> None:
    """S2-24: what a tool appended is seen by its own next read, and by the next call."""
    sent.clear()
    mail = '{"idempotency_key": "k1"}'
    replies = [
        Reply(tool_calls=(ToolCall("c1", "send_email", mail),)),
        Reply(tool_calls=(ToolCall("c2", "send_email", mail),)),
        GOOD,
    ]
    loop = Mailing(adapter=ScriptedAdapter(replies), bus=InProcessEventBus())
    response, session = loop.execute(ReviewRequest("a.py"))
    assert sent == ["k1"]
    assert [one.result.message for one in response.tool_results] == [
        "Email sent",
        "Email already sent",
    ]
    assert session[SentEmails].all() == (SentEmail("k1"),)
