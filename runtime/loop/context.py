"""`EvaluationContext`: the frozen value that all effect handlers of one evaluation work over.

It holds what is asked and of whom. How far the evaluation is, is folded from the journal: a
handler finds it there, also when another process began the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Event as Flag
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from turnledger.ledger import InnerMessage, MessageAppended, blob_name
from turnledger.ledger.clock import to_datetime
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.agent.models.limits import BudgetTracker, Deadline
from turnledger.runtime.agent.models.request import Reply, Request, Sending, ToolChoice
from turnledger.runtime.agent.models.retry import RetryAdvice, ThrottlePolicy
from turnledger.runtime.agent.overrides.recorded import render_as_recorded, tell_stale
from turnledger.runtime.agent.prompts.override_texts import PromptOverridesStore, RecordedPrompt
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.render import RenderedPrompt
from turnledger.runtime.agent.tools.tool import ToolRegistry
from turnledger.runtime.agent.visibility import VisibilityOverrides
from turnledger.runtime.bus import EventBus
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import EvaluationPhase, PromptEvaluationError, SessionError
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import EvaluationProgress
from turnledger.runtime.loop.events import TextReceived, ToolInvoked
from turnledger.runtime.session.overlay import Overlay
from turnledger.runtime.session.session import Session

OutputT = TypeVar("OutputT")


class Provider(Protocol):
    """A `ProviderAdapter` as an evaluation uses it; it is above the evaluation in the order."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def tool_choice(self) -> ToolChoice: ...
    @property
    def parallel_tools(self) -> int: ...
    @property
    def throttle(self) -> ThrottlePolicy: ...
    @property
    def use_native_response_format(self) -> bool: ...
    @property
    def request_options(self) -> Mapping[str, Any]: ...
    @property
    def stream(self) -> bool: ...
    @property
    def on_delta(self) -> Callable[[TextReceived], None] | None: ...
    @property
    def cancelled(self) -> Flag: ...
    def encode(self, request: Request) -> Any: ...
    @property
    def sends_async(self) -> bool: ...
    def send(self, payload: Any, sending: Sending) -> Any: ...
    async def send_async(self, payload: Any, sending: Sending) -> Any: ...
    def decode(self, raw: Any) -> Reply: ...
    def advise(self, error: Exception) -> RetryAdvice: ...


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """What the caller of `evaluate` asked for besides the prompt."""

    bus: EventBus
    parse_output: bool = True
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    overrides_store: PromptOverridesStore | None = None
    overrides_tag: str = "latest"
    execution_state: ExecutionState | None = None


@dataclass
class ProcessNotes:
    """What only this process knows of an evaluation. Nothing that is decided depends on it."""

    invoked: list[ToolInvoked] = field(default_factory=list)
    # The provider's last answer as data, for PromptResponse and errors.
    payload: dict[str, Any] | None = None
    # What the encoder keeps from one request to the next.
    encoder: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EvaluationContext(Generic[OutputT]):
    """One evaluation of one prompt in one session.

    Attributes:
        deadline: The caller's, or the prompt's; None where effects know no time.
        calls_before: Numbers of the calls that were asked for before this process took part.
        used_before: Tokens that the run had used before this evaluation.
        recorded: The prompt that it was begun with; None if it is begun here.
        base: The state that the prompt is rendered from; None is the present one.
        accepts: The evaluation that this one goes on from under a changed prompt; empty if none.
    """

    evaluation_id: str
    adapter: Provider
    prompt: Prompt[OutputT]
    rendered: RenderedPrompt[OutputT]
    tools: ToolRegistry
    specs: tuple[dict[str, Any], ...]
    session: Session
    options: EvaluationOptions
    deadline: Deadline | None
    calls_before: frozenset[int]
    used_before: Tokens
    recorded: RecordedPrompt | None = None
    base: Known | None = None
    accepts: str = ""
    notes: ProcessNotes = field(default_factory=ProcessNotes)

    @property
    def bus(self) -> EventBus:
        return self.options.bus

    @property
    def journal(self) -> Journal:
        return self.session.journal

    @property
    def progress(self) -> EvaluationProgress:
        """How far the evaluation is; it must have begun."""
        return self._progress_in(self.journal.known)

    def _progress_in(self, known: Known) -> EvaluationProgress:
        found = known.progress.of(self.evaluation_id)
        if found is None:
            raise SessionError(
                f"Another evaluation was begun in {self.session!r} while one of "
                f"{self.prompt.label!r} was under way. Give each a session of its own."
            )
        return found

    @property
    def resources(self) -> ExecutionState | None:
        """The state with its resources; None if there are no resources."""
        state = self.options.execution_state
        return state if state is not None and state.resources else None

    @property
    def wants_output(self) -> bool:
        return self.options.parse_output and self.rendered.output is not None

    def rendering_of(self, prompt: Prompt[OutputT]) -> RenderedPrompt[OutputT]:
        """A prompt as this evaluation renders it."""
        options, recorded = self.options, self.recorded
        return render(self.adapter, prompt, self.session, options, recorded, self.base)

    # --- messages ---

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

    def opening_messages(self) -> list[MessageAppended]:
        """The prompt's own messages; BlobNotFoundError if bytes that they name are missing."""
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

    # --- failing ---

    def failed(
        self,
        message: str,
        phase: EvaluationPhase,
        payload: dict[str, Any] | None = None,
        *,
        step: str = "",
    ) -> PromptEvaluationError:
        """The error that ends the evaluation.

        Args:
            message: What is wrong; secrets are redacted.
            phase: In which phase it went wrong.
            payload: What the provider sent, if it is not its last answer.
            step: `RunFailed.step`.
        """
        return PromptEvaluationError(
            self.journal.ledger.redact_text(message),
            prompt_name=self.prompt.label,
            phase=phase,
            provider_payload=payload or self.notes.payload,
            step=step,
        )


def render(
    adapter: Provider,
    prompt: Prompt[OutputT],
    session: Session,
    options: EvaluationOptions,
    recorded: RecordedPrompt | None = None,
    base: Known | None = None,
    journal: Journal | None = None,
) -> RenderedPrompt[OutputT]:
    """Render a prompt with the session's state and the caller's overrides.

    Args:
        adapter: Says whether the output's format is part of the prompt.
        prompt: The prompt.
        session: Its state decides which sections are open, and sections may show it.
        options: The overrides.
        recorded: The prompt that the evaluation was begun with; its overrides are used again.
        base: An earlier state of the session, to be read instead of the present one.
        journal: The run's journal, if the session is not attached to it.
    """
    journal = journal or session.journal
    native = adapter.use_native_response_format and options.parse_output
    wanted = prompt.template.output is not None
    ledger = journal.ledger

    def rendered(store: PromptOverridesStore | None, tag: str) -> RenderedPrompt[OutputT]:
        with session.scope(Overlay(journal, known=base)):
            return prompt.render(
                overrides_store=store,
                overrides_tag=tag,
                visibility=session[VisibilityOverrides].latest(),
                state=session,
                inject_output_instructions=False if native and wanted else None,
                redact=ledger.redact_text,
            )

    store, tag = options.overrides_store, options.overrides_tag
    if recorded is not None:
        return render_as_recorded(rendered, recorded, store, tag, ledger)
    made = rendered(store, tag)
    tell_stale(made)
    return made
