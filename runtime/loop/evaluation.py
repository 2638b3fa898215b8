"""One evaluation: decide, perform, evolve, until there is an answer.

Here are its beginning and the loop; asking the model, running tools and finishing are in
`runtime.loop.perform`. Nothing here asks whether the evaluation is fresh or resumed: the state
folded by the journal decides what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4

from turnledger.ledger import (
    BlobNotFoundError,
    EvaluationStarted,
    InnerMessage,
    InvalidInputError,
    MessageAppended,
    RunWaiting,
    blob_name,
)
from turnledger.ledger.clock import to_datetime
from turnledger.runtime.agent.models.limits import (
    BudgetTracker,
    Deadline,
    deadline_provider_payload,
)
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.render import PromptOverridesStore, RenderedPrompt
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.agent.tools.tool import ToolRegistry
from turnledger.runtime.agent.visibility import VisibilityOverrides
from turnledger.runtime.bus import EventBus
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import (
    BudgetExceededError,
    ConversationNotFound,
    DeadlineExceededError,
    DecisionRequiredError,
    EvaluationPhase,
    PromptError,
    PromptEvaluationError,
    PromptMismatch,
    SchemaError,
    SessionError,
)
from turnledger.runtime.journal.journal import Journal, Known
from turnledger.runtime.journal.loop_progress import EvaluationProgress
from turnledger.runtime.loop.decide import (
    Begin,
    CallModel,
    Doubt,
    Finish,
    RunTools,
    Settle,
    Wait,
    decide,
)
from turnledger.runtime.loop.events import PromptRendered, PromptResponse, ToolInvoked
from turnledger.runtime.loop.perform.call_model import call_model
from turnledger.runtime.loop.perform.finish import finish
from turnledger.runtime.loop.perform.run_tool import doubt, settle
from turnledger.runtime.loop.perform.run_tools import run_tools
from turnledger.runtime.session.overlay import scope_of
from turnledger.runtime.session.session import Session

if TYPE_CHECKING:
    from turnledger.runtime.loop.adapter import ProviderAdapter
    from turnledger.runtime.loop.effects import Answers

OutputT = TypeVar("OutputT")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the caller of `evaluate` asked for beside the prompt."""

    bus: EventBus
    parse_output: bool = True
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    overrides_store: PromptOverridesStore | None = None
    overrides_tag: str = "latest"
    execution_state: ExecutionState | None = None


class Evaluation(Generic[OutputT]):
    """An evaluation of one prompt in one session."""

    def __init__(
        self,
        adapter: ProviderAdapter[OutputT],
        prompt: Prompt[OutputT],
        session: Session,
        wishes: Wishes,
    ) -> None:
        self.adapter = adapter
        self.prompt = prompt
        self.session = session
        self.wishes = wishes
        self.bus = wishes.bus
        self.evaluation_id: str | None = None
        # Calls that were asked for before this process took part, by number.
        self.calls_before: frozenset[int] = frozenset()
        self.invoked: list[ToolInvoked] = []
        self.payload: dict[str, Any] | None = None
        # What the encoder keeps from one request to the next.
        self.kept: dict[str, Any] = {}
        self.rendered: RenderedPrompt[OutputT] = self._render()
        self.tools = ToolRegistry(self.rendered.tools)
        self.specs = tuple(self.tools.specs())
        self.deadline = wishes.deadline or self.rendered.deadline
        self.used_before = self.journal.state.usage.total
        if self.answers is not None:
            self.answers.begin(self)

    @property
    def journal(self) -> Journal:
        return self.session.journal

    @property
    def answers(self) -> Answers | None:
        """Where answers come from instead of the world; None if it is live."""
        return self.journal.answers

    @property
    def progress(self) -> EvaluationProgress:
        """The evaluation as it stands; it must have begun."""
        return self._progress_in(self.journal.known)

    def _progress_in(self, known: Known) -> EvaluationProgress:
        found = known.progress.of(self.evaluation_id or "")
        if found is None:
            raise SessionError(
                f"Another evaluation was begun in {self.session!r} while one of "
                f"{self.prompt.label!r} was under way. Give each a session of its own."
            )
        return found

    @property
    def resources(self) -> ExecutionState | None:
        """The state with its resources, if there are any."""
        state = self.wishes.execution_state
        return state if state is not None and state.resources else None

    @property
    def wants_output(self) -> bool:
        return self.wishes.parse_output and self.rendered.output is not None

    # --- the loop ---

    def bring(self, messages: Iterable[InnerMessage]) -> None:
        """Add the messages of a conversation that the journal lacks, if it is one of the prompt."""
        known = {said.message_id for said in self.journal.state.conversation.said}
        lacking = [message for message in messages if message.message_id not in known]
        added = self.journal.add(*(MessageAppended(message=message) for message in lacking))
        try:
            self._take_up()
        except (ConversationNotFound, PromptMismatch):
            self.journal.withdraw(added)
            raise

    def run(self, *, resume: bool = False) -> PromptResponse[OutputT]:
        """Go on until there is an answer; a new conversation unless `resume`."""
        if scope_of(self.session) is not None:
            raise InvalidInputError(
                "A tool can't evaluate a prompt in the session that it runs in. Give the prompt "
                "a session of its own: Session(), or context.session.clone()."
            )
        if resume:
            self._take_up()
        self._record_resources()
        self._publish_rendered()
        policies = {tool.name: tool.on_interrupt for tool in self.tools}
        while True:
            effect = decide(self.journal.known, self.evaluation_id, policies)
            match effect:
                case Begin():
                    self._begin()
                case CallModel():
                    self.check_limits("request", reserve=1)
                    call_model(self, effect)
                case Doubt():
                    doubt(self, effect.calls)
                case Settle():
                    settle(self, effect.calls)
                case RunTools() if self.answers is not None:
                    self.answers.run_tools(self, effect.calls)
                case RunTools():
                    run_tools(self, effect.calls)
                case Wait():
                    self._wait(effect)
                case Finish():
                    return finish(self)

    def _render(self) -> RenderedPrompt[OutputT]:
        try:
            return self.rendering_of(self.prompt)
        except PromptError as error:
            raise self.failed(str(error), "request") from error

    def rendering_of(self, prompt: Prompt[OutputT]) -> RenderedPrompt[OutputT]:
        """A prompt as this evaluation renders it."""
        native = self.adapter.use_native_response_format and self.wishes.parse_output
        wanted = prompt.template.output is not None
        return prompt.render(
            overrides_store=self.wishes.overrides_store,
            overrides_tag=self.wishes.overrides_tag,
            visibility=self.session[VisibilityOverrides].latest(),
            inject_output_instructions=False if native and wanted else None,
            redact=self.journal.ledger.redact_text,
        )

    def _take_up(self) -> None:
        """Go on with the latest conversation, if it is one of this prompt."""
        self.journal.refresh()
        found = self.journal.progress.evaluation
        if found is None or found.superseded or not found.sequence:
            raise ConversationNotFound
        recorded, now = f"{found.prompt_ns}/{found.prompt_key}", self.prompt.template.path
        if recorded != now:
            raise PromptMismatch("name", recorded=recorded, found=now)
        if found.prompt_digest and found.prompt_digest != self.rendered.digest:
            raise PromptMismatch("digest", recorded=found.prompt_digest, found=self.rendered.digest)
        self.evaluation_id = found.evaluation_id
        self.calls_before = frozenset(
            call.number
            for call in self.journal.state.tools.pending()
            if call.evaluation_id == found.evaluation_id
        )

    def _record_resources(self) -> None:
        """Have it on record what they are, so that a tool that fails can be undone."""
        state, recorded = self.resources, self.journal.known.session.resources
        if state is not None and any(name not in recorded for name in state.resources):
            state.record(self.journal)

    def _publish_rendered(self) -> None:
        rendered = self.rendered
        self.bus.publish(
            PromptRendered(
                ns=rendered.ns,
                key=rendered.key,
                name=rendered.name,
                adapter=self.adapter.name,
                session_id=self.session.session_id,
                inputs=tuple(_plain_or_text(one) for one in rendered.params),
                text=rendered.text,
            )
        )

    def _begin(self) -> None:
        """Record what is asked: the prompt's text is the system message."""
        rendered = self.rendered
        self.evaluation_id = self.journal.new_evaluation_id()
        started = EvaluationStarted(
            evaluation_id=self.evaluation_id,
            prompt_ns=rendered.ns,
            prompt_key=rendered.key,
            prompt_name=rendered.name or "",
            prompt_digest=rendered.digest,
            tools_digest=rendered.tools_digest,
            adapter=self.adapter.name,
            tools=rendered.offered,
        )
        try:
            self.journal.add(
                started,
                self.later_message("system", rendered.text),
                *self.opening(),
                blobs=self.prompt.blobs,
            )
        except (InvalidInputError, SessionError, BlobNotFoundError) as error:
            raise self.failed(f"The prompt can't be recorded: {error}", "request") from error

    def opening(self) -> list[MessageAppended]:
        """What the prompt's own messages are; BlobNotFoundError if bytes of theirs are nowhere."""
        if not self.prompt.messages:
            return []
        from turnledger.runtime.agent.messages.convert import (
            to_inner_messages,  # and with it pydantic
        )
        from turnledger.runtime.agent.prompts.opening_messages import blobs_of

        given = {blob_name(content) for content in self.prompt.blobs}
        for name in blobs_of(self.prompt.messages):
            if name not in given:
                self.journal.blob(name)
        messages = to_inner_messages(
            self.prompt.messages,
            evaluation_id=self.evaluation_id,
            sequence=1,  # after the system message
            prompt_ns=self.rendered.ns,
            prompt_key=self.rendered.key,
            clock=self.journal.clock,
        )
        return [MessageAppended(message=message) for message in messages]

    def _wait(self, effect: Wait) -> None:
        ids = tuple(call.call_id for call in effect.calls)
        summary = self.journal.state.summary
        if summary.status != "waiting" or summary.waiting_for != ids:
            reason = "nobody knows how these calls ended"
            self.journal.add(RunWaiting(reason=reason, call_ids=ids))
        self.journal.commit()
        raise DecisionRequiredError(str(self.journal.run_id), ids)

    # --- what its parts share ---

    def message(
        self, role: Any, content: str, *, known: Known | None = None, **more: Any
    ) -> MessageAppended:
        """The evaluation's next message, after what is known."""
        progress = self.progress if known is None else self._progress_in(known)
        more.setdefault("created_at", to_datetime(self.journal.clock.micros()))
        more.setdefault("message_id", uuid4())
        return MessageAppended(
            message=InnerMessage(
                role=role,
                content=content,
                evaluation_id=progress.evaluation_id,
                sequence=progress.sequence,
                turn=progress.turn + (role == "assistant"),
                prompt_ns=self.rendered.ns,
                prompt_key=self.rendered.key,
                **more,
            )
        )

    def later_message(
        self, role: Any, content: str, **more: Any
    ) -> Callable[[Known], MessageAppended]:
        """A message that is numbered when it is known what comes before it."""
        more.setdefault("created_at", to_datetime(self.journal.clock.micros()))
        more.setdefault("message_id", uuid4())
        return partial(self._message, role, content, more)

    def _message(
        self, role: Any, content: str, more: dict[str, Any], known: Known
    ) -> MessageAppended:
        return self.message(role, content, known=known, **more)

    def failed(
        self, message: str, phase: EvaluationPhase, payload: dict[str, Any] | None = None
    ) -> PromptEvaluationError:
        return PromptEvaluationError(
            self.journal.ledger.redact_text(message),
            prompt_name=self.prompt.label,
            phase=phase,
            provider_payload=payload or self.payload,
        )

    def check_limits(self, phase: EvaluationPhase, *, reserve: int = 0) -> None:
        """PromptEvaluationError if time or tokens are used up; what was done is on disk then."""
        if self.answers is not None:
            self.answers.check_limits(self, phase)
            return
        try:
            if self.deadline is not None:
                self.deadline.check(before=f"the {phase}")
            if self.wishes.budget_tracker is not None:
                self.wishes.budget_tracker.check(reserve=reserve)
        except DeadlineExceededError as error:
            self.journal.commit()
            payload = deadline_provider_payload(self.deadline)
            raise self.failed(str(error), phase, payload) from error
        except BudgetExceededError as error:
            self.journal.commit()
            raise self.failed(str(error), "budget") from error


def _plain_or_text(value: Any) -> Any:
    try:
        return to_plain(value)
    except SchemaError:
        return repr(value)
