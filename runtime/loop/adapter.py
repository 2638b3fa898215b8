"""`ProviderAdapter`: base class of providers, and `evaluate`.

A provider overrides three functions: `encode` makes its payload of a request, `send` is the only
one that touches the world (`send_async` does the same for asyncio), and `decode` makes a reply of
what came back. Everything else (tools, limits, retries, recording, resuming) is the loop's and the
same for every provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any, ClassVar, Generic, TypeVar

from turnledger.ledger import InnerMessage, InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.runtime.agent.models.limits import BudgetTracker, Deadline
from turnledger.runtime.agent.models.request import Reply, Request, Sending, ToolCall, ToolChoice
from turnledger.runtime.agent.models.retry import RetryAdvice, ThrottlePolicy, retry_advice
from turnledger.runtime.agent.prompts.override_texts import PromptOverridesStore
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.bus import EventBus
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.loop.context import EvaluationOptions
from turnledger.runtime.loop.evaluation import Evaluation
from turnledger.runtime.loop.events import PromptResponse, TextReceived
from turnledger.runtime.loop.live_effects import LiveEffects
from turnledger.runtime.loop.optimize import Caller, optimize
from turnledger.runtime.session.session import Session
from turnledger.runtime.workspace.digest import OptimizationResult, OptimizationScope

OutputT = TypeVar("OutputT")


@dataclass(frozen=True, slots=True)
class AdapterResumeState:
    """A conversation to go on from, where the session does not hold it itself.

    All calls of the prefix that have no result are run. `pending_tool_calls` names them; a call
    that the prefix did not ask for, or has a result of, is an InvalidInputError.
    """

    conversation_prefix: tuple[InnerMessage, ...] = ()
    pending_tool_calls: tuple[ToolCall, ...] = ()


@explain_methods()
class ProviderAdapter(Generic[OutputT]):
    """A provider. It keeps no state of a conversation: every request holds all of it.

    A subclass overrides `encode`, `send` and `decode`; or `evaluate` alone, for a test double or
    a wrapper of another adapter.
    """

    name: ClassVar[str] = "provider"

    def __init__(
        self,
        *,
        model: str = "",
        tool_choice: ToolChoice = "auto",
        parallel_tools: int = 1,
        throttle: ThrottlePolicy | None = None,
        use_native_response_format: bool = False,
        request_options: Mapping[str, Any] | None = None,
        stream: bool = False,
        on_delta: Callable[[TextReceived], None] | None = None,
    ) -> None:
        if parallel_tools < 1:
            raise InvalidInputError(
                f"Invalid parallel_tools {parallel_tools!r}: expected 1 or more."
            )
        self.model = model
        self.tool_choice = tool_choice
        self.parallel_tools = parallel_tools
        self.throttle = throttle or ThrottlePolicy()
        self.use_native_response_format = use_native_response_format
        self.request_options = dict(request_options or {})
        # Whether text is wanted as it comes, and a callback for it besides the bus.
        self.stream = stream or on_delta is not None
        self.on_delta = on_delta
        # Set to end a wait between two attempts: the run stays resumable.
        self.cancelled = Flag()

    # --- for providers ---

    def encode(self, request: Request) -> Any:
        """The provider's payload for a request. Pure."""
        raise self._incomplete()

    def send(self, payload: Any, sending: Sending) -> Any:
        """Send a payload and return the provider's answer. The only one that touches the world.

        A provider that streams calls `sending.on_text` with the text as it comes, and returns
        the whole answer all the same.
        """
        raise self._incomplete()

    async def send_async(self, payload: Any, sending: Sending) -> Any:
        """Like `send`, awaited on the caller's event loop; an adapter may do without it.

        It is used for runs of an event loop: when one is cancelled, so is this task, which has to
        close its connection. Without it, `send` is called in a thread that is left behind.
        """
        raise self._incomplete()

    @property
    def sends_async(self) -> bool:
        """Whether there is a `send_async`, and no `send` that overrides what it stands for."""
        for kind in type(self).__mro__:
            if "send_async" in vars(kind):
                return kind is not ProviderAdapter
            if "send" in vars(kind):
                return False
        return False

    def decode(self, raw: Any) -> Reply:
        """The reply in the provider's answer. Pure."""
        raise self._incomplete()

    def _incomplete(self) -> InvalidInputError:
        missing = [name for name in _OVERRIDDEN if _is_missing(self, name)]
        return InvalidInputError(
            f"Invalid adapter {type(self).__name__}: it has no {', '.join(missing)}. Override "
            f"{', '.join(_OVERRIDDEN)}, or evaluate alone."
        )

    def advise(self, error: Exception) -> RetryAdvice:
        """Whether a call that failed like this may be made again, and when."""
        return retry_advice(error)

    # --- for callers ---

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *params: Any,
        parse_output: bool = True,
        bus: EventBus | None = None,
        session: Session | None = None,
        execution_state: ExecutionState | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
        resume: bool = False,
        resume_from: AdapterResumeState | None = None,
    ) -> PromptResponse[OutputT]:
        """Ask the model, run the tools it calls, and return its answer.

        The state is a `session`, or an `execution_state` that has one. With `resume` the
        session's latest conversation goes on where it stopped. A failure is a
        PromptEvaluationError; VisibilityExpansionRequired, ConversationNotFound,
        PromptMismatch and DecisionRequiredError pass as they are, and so does what ends the
        process's part in a run: a cancelled wait, a ledger that refuses or is not there.
        """
        if any(_is_missing(self, name) for name in _OVERRIDDEN):
            raise self._incomplete()
        if (session is None) == (execution_state is None):
            raise InvalidInputError("evaluate takes exactly one of session and execution_state.")
        if execution_state is not None:
            session = execution_state.session
        assert session is not None
        evaluation = Evaluation(
            self,
            prompt.bind(*params) if params else prompt,
            session,
            EvaluationOptions(
                parse_output=parse_output,
                bus=session.bus if bus is None else bus,
                deadline=deadline,
                budget_tracker=budget_tracker,
                overrides_store=overrides_store,
                overrides_tag=overrides_tag,
                execution_state=execution_state,
            ),
            LiveEffects(),
        )
        if resume_from is not None:
            evaluation.bring(resume_from.conversation_prefix, resume_from.pending_tool_calls)
        return evaluation.run(resume=resume or resume_from is not None)

    def optimize(
        self,
        prompt: Prompt[Any],
        *,
        store_scope: OptimizationScope = OptimizationScope.SESSION,
        session: Session | None = None,
        execution_state: ExecutionState | None = None,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str | None = None,
        optimization_session: Session | None = None,
    ) -> OptimizationResult:
        """Have the model write a digest of the prompt's workspace, and store it.

        That is a run of its own: it has a session, a bus and a copy of the workspace that the
        caller's tools never see. PromptEvaluationError if the prompt has no workspace section or
        no digest section, if GLOBAL has no store and tag (phase "request", before anything
        runs), and if the model's answer is empty (phase "response").

        Args:
            prompt: Has a WorkspaceDigestSection, and a VfsToolsSection or PodmanSandboxSection.
            store_scope: SESSION sets the digest in the session. GLOBAL stores it in the
                overrides store, as the text of the digest section, and clears the session's.
            session: The caller's session. The run is recorded in the ledger that it records in.
            execution_state: The same with its resources: the workspace is copied from there.
                Without them it begins with the section's mounts.
            overrides_store: Has texts for the optimization's own prompt, `{ns}.optimization`.
            overrides_tag: Which of the store's texts; by default "latest".
            optimization_session: Used, with its bus, instead of a new session.
        """
        return optimize(
            self,
            prompt,
            Caller.of(session, execution_state),
            scope=store_scope,
            overrides_store=overrides_store,
            overrides_tag=overrides_tag,
            optimization_session=optimization_session,
        )


_OVERRIDDEN = ("encode", "send", "decode")


def _is_missing(adapter: ProviderAdapter[Any], name: str) -> bool:
    return getattr(type(adapter), name) is getattr(ProviderAdapter, name)
