"""One evaluation: decide, perform, evolve, until there is an answer.

Here are its beginning and the loop; the handlers that perform what `decide` names are in
`runtime.loop.perform`. Nothing here asks whether the evaluation is fresh or resumed, live or a
replay: the state folded by the journal decides what comes next, and the effects how it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from turnledger.ledger import (
    BlobNotFoundError,
    EvaluationStarted,
    InnerMessage,
    InvalidInputError,
    MessageAppended,
)
from turnledger.runtime.agent.models.limits import BudgetTracker, Deadline
from turnledger.runtime.agent.models.request import ToolCall
from turnledger.runtime.agent.overrides.recorded import with_recorded_prompt
from turnledger.runtime.agent.prompts.difference import difference_of
from turnledger.runtime.agent.prompts.override_texts import PromptOverridesStore, RecordedPrompt
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.render import RenderedPrompt
from turnledger.runtime.agent.run_control import check_cancelled
from turnledger.runtime.agent.schema.values import read_json, to_plain
from turnledger.runtime.agent.tools.tool import ToolRegistry
from turnledger.runtime.bus import EventBus
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import (
    ConversationNotFound,
    PromptError,
    PromptEvaluationError,
    PromptMismatch,
    SchemaError,
    SessionError,
)
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import EvaluationProgress
from turnledger.runtime.loop.context import (
    EvaluationContext,
    EvaluationOptions,
    Provider,
    render,
)
from turnledger.runtime.loop.decide import (
    AskApproval,
    Begin,
    CallModel,
    Doubt,
    Finish,
    RunTools,
    Settle,
    Wait,
    decide,
)
from turnledger.runtime.loop.effects import Effects
from turnledger.runtime.loop.events import PromptRendered, PromptResponse
from turnledger.runtime.loop.perform.call_model import call_model
from turnledger.runtime.loop.perform.finish import finish
from turnledger.runtime.loop.perform.prepare import prepare_resources
from turnledger.runtime.loop.perform.tool_in_doubt import doubt, settle, wait_for_decision
from turnledger.runtime.session.overlay import scope_of
from turnledger.runtime.session.session import Session

OutputT = TypeVar("OutputT")


class Evaluate(Protocol):
    """`ProviderAdapter.evaluate`, as far as running a run needs it."""

    def __call__(
        self,
        prompt: Prompt[Any],
        /,
        *,
        bus: EventBus,
        execution_state: ExecutionState,
        deadline: Deadline | None,
        budget_tracker: BudgetTracker | None,
        overrides_store: PromptOverridesStore | None,
        overrides_tag: str,
        resume: bool,
    ) -> PromptResponse[Any]: ...


def evaluate_with(effects: Effects, adapter: Provider) -> Evaluate:
    """`adapter.evaluate` with other effects than live ones."""

    def evaluate(
        prompt: Prompt[Any],
        /,
        *,
        execution_state: ExecutionState,
        resume: bool,
        **options: Any,
    ) -> PromptResponse[Any]:
        asked = EvaluationOptions(execution_state=execution_state, **options)
        session = execution_state.session
        return Evaluation(adapter, prompt, session, asked, effects).run(resume=resume)

    return evaluate


class Evaluation(Generic[OutputT]):
    """An evaluation of one prompt in one session."""

    def __init__(
        self,
        adapter: Provider,
        prompt: Prompt[OutputT],
        session: Session,
        options: EvaluationOptions,
        effects: Effects,
        journal: Journal | None = None,
    ) -> None:
        """Make one.

        Args:
            adapter: The provider.
            prompt: The prompt.
            session: The session.
            options: What the caller asked for besides the prompt.
            effects: How effects come about.
            journal: The run's journal, if the session is not attached to it.
        """
        self._adapter = adapter
        self._prompt = prompt
        self._session = session
        self._options = options
        self._effects = effects
        self._given_journal = journal

    @property
    def _journal(self) -> Journal:
        return self._given_journal or self._session.journal

    def bring(self, messages: Sequence[InnerMessage], pending: Iterable[ToolCall] = ()) -> None:
        """Add the messages of a conversation that the journal lacks, if it is one of the prompt.

        InvalidInputError if a pending call is not one of its open calls. Those that are open are
        run, as of any conversation that goes on.
        """
        _check_pending(messages, pending)
        journal = self._session.journal
        known = {entry.message_id for entry in journal.state.conversation.messages}
        lacking = [message for message in messages if message.message_id not in known]
        added = journal.add(*(MessageAppended(message=message) for message in lacking))
        try:
            self._resumed()
        except (ConversationNotFound, PromptMismatch):
            journal.withdraw(added)
            raise

    def run(self, *, resume: bool = False) -> PromptResponse[OutputT]:
        """Go on until there is an answer; a new conversation unless `resume`."""
        if scope_of(self._session) is not None:
            raise InvalidInputError(
                "A tool can't evaluate a prompt in the session that it runs in. Give the prompt "
                "a session of its own: Session(), or context.session.clone()."
            )
        if resume:
            context = self._resumed()
        else:
            recorded = self._journal.recorded_prompt()
            context = self._context(None, self._render(recorded), recorded)
        self._record_resources()
        self._publish(context.rendered)
        effects = self._effects
        context = effects.begin(context)
        try:
            return self._run(context, effects)
        except Exception:
            raise
        except BaseException:
            # Ctrl-C and the like. A tool that has ended is not left in doubt by them.
            with suppress(Exception):
                context.journal.commit_outcomes()
            raise

    def _run(
        self, context: EvaluationContext[OutputT], effects: Effects
    ) -> PromptResponse[OutputT]:
        policies = {tool.name: tool.on_interrupt for tool in context.tools}
        asking = frozenset(tool.name for tool in context.tools if tool.needs_approval is not False)
        while True:
            check_cancelled()
            context.journal.check_claim()
            effect = decide(context.journal.known, context.evaluation_id, policies, asking)
            match effect:
                case Begin():
                    _begin(context)
                case CallModel():
                    effects.check_limits(context, "request", reserve=1)
                    call_model(context, effects, effect)
                case Doubt():
                    doubt(context, effect.calls)
                case AskApproval():
                    effects.ask_approval(context, effect.calls)
                case Settle():
                    settle(context, effect.calls)
                case RunTools():
                    effects.run_tools(context, effect.calls)
                case Wait():
                    wait_for_decision(context, effect.calls)
                case Finish():
                    response = finish(context, effects)
                    if response is not None:
                        return response

    def _render(
        self, recorded: RecordedPrompt | None, base: Known | None = None
    ) -> RenderedPrompt[OutputT]:
        journal = self._journal
        try:
            return render(
                self._adapter, self._prompt, self._session, self._options, recorded, base, journal
            )
        except PromptError as error:
            raise PromptEvaluationError(
                journal.ledger.redact_text(str(error)),
                prompt_name=self._prompt.label,
                phase="request",
            ) from error

    def mismatch(self) -> PromptMismatch | None:
        """What differs from the prompt of the latest conversation; None if it is the same."""
        return self._compared(self._latest())[1]

    def recorded_prompt(self) -> RenderedPrompt[OutputT]:
        """The prompt of the latest conversation; PromptMismatch if the tools do not allow it."""
        found = self._latest()
        rendered, mismatch = self._compared(found)
        return rendered if mismatch is None else self._with_recorded(found, rendered, mismatch)

    def _latest(self) -> EvaluationProgress:
        found = self._journal.progress.evaluation
        if found is None or not found.goes_on:
            raise ConversationNotFound
        return found

    def _compared(
        self, found: EvaluationProgress
    ) -> tuple[RenderedPrompt[OutputT], PromptMismatch | None]:
        """The prompt as it is now, made from the same state, and what differs."""
        journal = self._journal
        was, now = f"{found.prompt_ns}/{found.prompt_key}", self._prompt.template.path
        # The recorded overrides are those of the recorded prompt.
        recorded = found.recorded if was == now else None
        rendered = self._render(recorded, self._base_of(found))
        what = "name"
        if was == now:
            what, was, now = "digest", found.prompt_digest, rendered.digest
        if was in ("", now):
            return rendered, None
        return rendered, PromptMismatch(
            what,
            recorded=was,
            found=now,
            run_id=str(journal.run_id) if journal.claim or self._given_journal else "",
            difference=(
                difference_of(found.recorded, rendered, journal.ledger.blob)
                if found.recorded is not None
                else None
            ),
        )

    def _base_of(self, found: EvaluationProgress) -> Known | None:
        """The state that its prompt is made from: a restored conversation has no beginning."""
        return self._journal.known.evaluation_base if found.started is not None else None

    def _resumed(self) -> EvaluationContext[OutputT]:
        """The context of the latest conversation, if it is one of this prompt.

        If it is not, the last resume of the run may say how it goes on all the same.
        """
        journal = self._journal
        journal.refresh()
        found, choice = self._latest(), journal.progress.prompt_choice
        if choice == "accepted":
            recorded = journal.recorded_prompt()
            return self._context(found, self._render(recorded), recorded, accepts=True)
        if choice == "recorded":
            rendered = self.recorded_prompt()
        else:
            rendered, mismatch = self._compared(found)
            if mismatch is not None:
                raise mismatch
        return self._context(found, rendered, found.recorded, self._base_of(found))

    def _with_recorded(
        self, found: EvaluationProgress, rendered: RenderedPrompt[OutputT], mismatch: PromptMismatch
    ) -> RenderedPrompt[OutputT]:
        """The recorded prompt in place of the rendered one, where the tools allow it."""
        recorded = found.recorded
        ledger = self._journal.ledger
        made = None if recorded is None else with_recorded_prompt(rendered, recorded, ledger)
        if made is None:
            was = recorded.tools if recorded is not None else ()
            raise PromptMismatch(
                "tools",
                recorded=", ".join(tool.name for tool in was),
                found=", ".join(tool.name for tool in rendered.offered),
                run_id=mismatch.run_id,
                difference=mismatch.difference,
            )
        return replace(made, ns=found.prompt_ns, key=found.prompt_key)

    def _context(
        self,
        found: EvaluationProgress | None,
        rendered: RenderedPrompt[OutputT],
        recorded: RecordedPrompt | None,
        base: Known | None = None,
        *,
        accepts: bool = False,
    ) -> EvaluationContext[OutputT]:
        """The context of the evaluation that goes on, or of one that is to be begun.

        A new id is not in the journal yet, and so `decide` says that it begins. With `accepts`,
        one is begun that goes on from the one that was found.
        """
        journal, tools = self._journal, ToolRegistry(rendered.tools)
        pending = journal.state.tools.pending() if found is not None else ()
        known = found.evaluation_id if found is not None else ""
        return EvaluationContext(
            evaluation_id=known if known and not accepts else journal.new_evaluation_id(),
            adapter=self._adapter,
            prompt=self._prompt,
            rendered=rendered,
            tools=tools,
            specs=tuple(tools.specs()),
            session=self._session,
            options=self._options,
            deadline=self._options.deadline or rendered.deadline,
            calls_before=frozenset(call.number for call in pending if call.evaluation_id == known),
            used_before=journal.state.usage.total,
            recorded=recorded,
            base=base,
            accepts=known if accepts else "",
        )

    def _record_resources(self) -> None:
        """Have it on record what they are, so that a tool that fails can be undone.

        In a run of a loop they are on record already.
        """
        state, journal = self._options.execution_state, self._session.journal
        recorded = journal.known.session.resources
        if state is not None and any(name not in recorded for name in state.resources):
            prepare_resources(self._prompt, state)
            state.record(journal)

    def _publish(self, rendered: RenderedPrompt[OutputT]) -> None:
        self._options.bus.publish(
            PromptRendered(
                ns=rendered.ns,
                key=rendered.key,
                name=rendered.name,
                adapter=self._adapter.name,
                session_id=self._session.session_id,
                inputs=tuple(_plain_or_text(one) for one in rendered.params),
                text=rendered.text,
            )
        )


def _check_pending(messages: Sequence[InnerMessage], pending: Iterable[ToolCall]) -> None:
    asked = {
        call.call_id: (call.name, _read(call.arguments))
        for message in messages
        for call in message.tool_calls
    }
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    for call in pending:
        if asked.get(call.call_id) != (call.name, _read(call.arguments)):
            wrong = "no message of conversation_prefix asks for it"
        elif call.call_id in answered:
            wrong = "conversation_prefix has its result"
        else:
            continue
        raise InvalidInputError(
            f"Invalid pending tool call {call.name!r} ({call.call_id!r}): {wrong}. Leave it out "
            "of pending_tool_calls, or complete the prefix."
        )


def _read(arguments: str) -> Any:
    try:
        return read_json(arguments)
    except SchemaError:
        return arguments  # as the model wrote it: the tool refuses it


def _begin(context: EvaluationContext[Any]) -> None:
    """Record what is asked: the prompt's text is the system message."""
    rendered, progress = context.rendered, context.journal.progress
    accepts, after = context.accepts, context.accepts or progress.goes_on_from
    if after and not accepts and not context.prompt.messages and _answered(context, after):
        raise context.failed(
            "A chat turn needs a user's message, and the prompt has none: the model would be "
            "asked to go on from its own answer. Use prompt.with_messages(...).",
            "request",
        )
    started = EvaluationStarted(
        evaluation_id=context.evaluation_id,
        prompt_ns=rendered.ns,
        prompt_key=rendered.key,
        prompt_name=rendered.name or "",
        prompt_digest=rendered.digest,
        tools_digest=rendered.tools_digest,
        adapter=context.adapter.name,
        tools=rendered.offered,
        overrides=rendered.overrides,
        after=after,
        accepted=bool(accepts),
        accepted_by=progress.prompt_by if accepts else "",
    )
    try:
        context.journal.add(
            started,
            context.later_message("system", rendered.text),
            *(context.opening_messages() if not accepts else ()),
            blobs=[*context.prompt.blobs, *rendered.specs],
        )
    except (InvalidInputError, SessionError, BlobNotFoundError) as error:
        raise context.failed(f"The prompt can't be recorded: {error}", "request") from error


def _answered(context: EvaluationContext[Any], evaluation_id: str) -> bool:
    """Whether an evaluation's conversation ends with the model's answer."""
    last = context.journal.state.conversation.history(evaluation_id).last
    return last is not None and last.role == "assistant"


def _plain_or_text(value: Any) -> Any:
    try:
        return to_plain(value)
    except SchemaError:
        return repr(value)
