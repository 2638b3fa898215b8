"""Errors of the runtime: prompts, tools, limits, sessions, resuming and recovery.

All are under TurnledgerError; the errors of the ledger are in `ledger.errors`. A message says
what is wrong, what was expected and what to do; attributes hold the same for programs. The tree:

    TurnledgerError
    ├── PromptError (ValueError)
    │   ├── PromptDefinitionError
    │   ├── PromptRenderError
    │   └── TemplateTextError
    ├── ToolDefinitionError (ValueError)
    ├── SchemaError (ValueError)
    │   ├── UnsupportedTypeError
    │   ├── DataDecodeError
    │   ├── DataEncodeError
    │   └── OutputParseError
    ├── PromptEvaluationError (RuntimeError)
    ├── DeadlineExceededError
    ├── BudgetExceededError
    ├── TurnLimitExceededError
    ├── ThrottledError
    ├── ConversationNotFound (ValueError)
    ├── PromptMismatch (ValueError)
    ├── SnapshotRestoreError (ValueError)
    ├── SessionError
    │   ├── ReducerNotFoundError (LookupError)
    │   ├── ReducerFailedError (RuntimeError)
    │   ├── ScopeClosedError (RuntimeError)
    │   └── ResourceSnapshotError (ValueError)
    ├── DecisionRequiredError
    └── RecoveryError (RuntimeError)
        ├── CheckpointNotFoundError
        ├── CheckpointExpiredError
        ├── CheckpointCorruptedError
        └── RequestTypeMismatchError

`MessageBuildError` and its subclasses are InvalidInputErrors of the ledger, in `agent.messages`;
`OverridesFileError` is a PromptError, in `overrides`. `VisibilityExpansionRequired` is under the
root too, but is a control signal and not a failure: it is in `runtime.agent.visibility`.
`DecisionRequiredError` is deliberately not a RecoveryError: a worker that abandons what can't be
recovered must not abandon a run that waits for a person's decision.

Some messages end up in events, and a replay compares them with what was recorded: those of
SchemaError, PromptRenderError, DeadlineExceededError,
BudgetExceededError and TurnLimitExceededError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from turnledger.ledger.errors import TurnledgerError

EvaluationPhase = Literal["request", "response", "tool", "budget"]


class PromptError(TurnledgerError, ValueError):
    """A prompt, or one of its sections, is invalid.

    Attributes:
        prompt: "ns/key"; empty for a section that is not part of a prompt yet.
        section: The dotted path of the section's keys.
    """

    def __init__(self, message: str, *, prompt: str = "", section: str = "") -> None:
        self.prompt, self.section = prompt, section
        where = f"Prompt {prompt!r}" if prompt else ""
        if section:
            where += f", section {section!r}" if where else f"Section {section!r}"
        super().__init__(f"{where}: {message}" if where else message)


class PromptDefinitionError(PromptError):
    """A prompt template is invalid: a bad name, or a duplicate key or tool name."""


class PromptRenderError(PromptError):
    """A prompt can't be rendered with the parameters bound to it."""


class TemplateTextError(PromptError):
    """A text is not a template, or has a placeholder without a field."""


class ToolDefinitionError(TurnledgerError, ValueError):
    """A tool definition is invalid: its name, handler or types."""

    def __init__(self, message: str, *, tool: str = "") -> None:
        self.tool = tool
        super().__init__(f"Tool {tool!r}: {message}" if tool else message)


class SchemaError(TurnledgerError, ValueError):
    """A type or value does not fit JSON; `path` says where ("items[2].name")."""

    def __init__(self, message: str, *, path: str = "") -> None:
        self.path = path
        self.reason = message
        super().__init__(f"{path}: {message}" if path else message)


class UnsupportedTypeError(SchemaError):
    """No JSON schema can be made for a type."""


class DataDecodeError(SchemaError):
    """JSON data does not fit the type that it is decoded as."""


class DataEncodeError(SchemaError):
    """A value can't be encoded as JSON."""


class OutputParseError(SchemaError):
    """A model's answer is not the structured output that the prompt asks for."""


class PromptEvaluationError(TurnledgerError, RuntimeError):
    """An evaluation failed; has the phase, the prompt's name and what the provider sent."""

    def __init__(
        self,
        message: str,
        *,
        prompt_name: str,
        phase: EvaluationPhase,
        provider_payload: Mapping[str, Any] | None = None,
        step: str = "",
    ) -> None:
        self.message, self.prompt_name, self.phase = message, prompt_name, phase
        # As `RunFailed.step`: what could not be done, where the phase does not tell it.
        self.step = step
        self.provider_payload = None if provider_payload is None else dict(provider_payload)
        super().__init__(f"{prompt_name} ({phase}): {message}" if prompt_name else message)


class DeadlineExceededError(TurnledgerError):
    """The deadline has passed. A tool's handler may raise it too, to end the evaluation."""

    def __init__(
        self, message: str = "The deadline has passed.", *, expires_at: datetime | None = None
    ) -> None:
        self.expires_at = expires_at
        super().__init__(message)


class BudgetExceededError(TurnledgerError):
    """The token budget is exceeded; `limit` is the name of the Budget's field."""

    def __init__(self, limit: str, *, allowed: int, used: int) -> None:
        self.limit, self.allowed, self.used = limit, allowed, used
        super().__init__(
            f"The budget's {limit} is {allowed}, and {used} are used. "
            f"Give the request a Budget with a higher {limit}, or ask for less."
        )


class TurnLimitExceededError(TurnledgerError):
    """The run has as many replies of the model as its `max_turns` allows."""

    def __init__(self, *, allowed: int, used: int, run_id: str = "") -> None:
        self.allowed, self.used, self.run_id = allowed, used, run_id
        super().__init__(
            f"max_turns is {allowed}, and the model has replied {used} times. Look at what it "
            "repeats. To let the run go on, recover it with a higher max_turns: "
            f"turnledger recover {run_id or 'RUN'} --app MODULE:FACTORY --max-turns {2 * used}"
        )


class ThrottledError(TurnledgerError):
    """The provider throttles; `retry_after` is in seconds, None if it did not say."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, attempts: int = 0
    ) -> None:
        self.retry_after, self.attempts = retry_after, attempts
        super().__init__(message)


class ConversationNotFound(TurnledgerError, ValueError):  # noqa: N818 - the seed's name
    """The session has no conversation to resume."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "The session has no conversation to resume. "
            "Evaluate without resume=True to begin one."
        )


class PromptMismatch(TurnledgerError, ValueError):  # noqa: N818 - the seed's name
    """The prompt differs from the one that the conversation began with."""

    def __init__(self, what: str, *, recorded: str, found: str) -> None:
        self.what, self.recorded, self.found = what, recorded, found
        super().__init__(
            f"The conversation began with another prompt: its {what} is recorded as "
            f"{recorded!r} and is now {found!r}. Resume with the same prompt, or begin a new "
            "conversation."
        )


class SnapshotRestoreError(TurnledgerError, ValueError):
    """A snapshot can't be read or restored; nothing was changed."""


class SessionError(TurnledgerError):
    """A session can't be changed, or read, like this; nothing was recorded."""


class ReducerNotFoundError(SessionError, LookupError):
    """No reducer is registered for events of this type on that slice."""

    def __init__(self, slice_type: str, event_type: str) -> None:
        self.slice_type, self.event_type = slice_type, event_type
        super().__init__(
            f"The slice {slice_type} has no reducer for {event_type}. Register one with "
            f"session[{slice_type}].register({event_type}, reducer), or mark a method of "
            f"{slice_type} with @reducer(on={event_type})."
        )


class ReducerFailedError(SessionError, RuntimeError):
    """A reducer raised, or returned what a slice can't hold."""

    def __init__(self, slice_type: str, event_type: str, reducer: str, why: str) -> None:
        self.slice_type, self.event_type, self.reducer = slice_type, event_type, reducer
        super().__init__(
            f"The reducer {reducer} of the slice {slice_type} failed on a {event_type}: {why}. "
            "A reducer is a pure function from a tuple of values and an event to a tuple."
        )


class ScopeClosedError(SessionError, RuntimeError):
    """A tool call has ended, or this thread is not the tool's: the session is not changed."""


class ResourceSnapshotError(SessionError, ValueError):
    """A resource can't be snapshotted; `path` is the file that prevents it."""

    def __init__(self, message: str, *, path: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


class DecisionRequiredError(TurnledgerError):
    """A run waits for a person's decision about tool calls in doubt."""

    def __init__(self, run_id: str, call_ids: Sequence[str] = ()) -> None:
        self.run_id, self.call_ids = run_id, tuple(call_ids)
        named = ", ".join(call_ids) or "a call"
        super().__init__(
            f"Run {run_id} waits for a decision about {named}, which may or may not have "
            f"happened. Find out, then run `turnledger resolve {run_id} CALL_ID` with "
            "--completed JSON, --failed TEXT or --retry."
        )


class RecoveryError(TurnledgerError, RuntimeError):
    """A run can't be recovered."""

    def __init__(self, message: str, *, run_id: str = "") -> None:
        self.run_id = run_id
        super().__init__(message)


class CheckpointNotFoundError(RecoveryError):
    """The run has no checkpoint, or its checkpoints were cleared."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"Run {run_id} has no checkpoint. It never began, it was completed and cleaned up, "
            "or it was abandoned.",
            run_id=run_id,
        )


class CheckpointExpiredError(RecoveryError):
    """The run's checkpoint is older than `max_resume_age`."""

    def __init__(self, run_id: str, *, age: timedelta, limit: timedelta) -> None:
        self.age, self.limit = age, limit
        super().__init__(
            f"The checkpoint of run {run_id} is {age} old; at most {limit} is accepted. "
            "Abandon the run, or recover with RecoveryConfig(max_resume_age=...).",
            run_id=run_id,
        )


class CheckpointCorruptedError(RecoveryError):
    """A checkpoint can't be decoded."""


class AgentMismatchError(RecoveryError):
    """The run belongs to an agent of another name than this loop has."""

    def __init__(self, run_id: str, *, expected: str, found: str) -> None:
        self.expected, self.found = expected, found
        whose = f"belongs to the agent {found!r}" if found else "belongs to a loop without a name"
        mine = f"this one is {expected!r}" if expected else "this loop has no name"
        super().__init__(
            f"Run {run_id} {whose}; {mine}. Use the agent that began the run"
            + (f": the one with name={found!r}." if found else "."),
            run_id=run_id,
        )


class RequestTypeMismatchError(RecoveryError):
    """The run's request has another type than this loop takes."""

    def __init__(self, run_id: str, *, expected: str, found: str) -> None:
        self.expected, self.found = expected, found
        super().__init__(
            f"Run {run_id} has a request of type {found!r}; this loop takes {expected!r}. "
            "Recover the run with the loop that began it.",
            run_id=run_id,
        )
