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
    ├── ChatTurnRefusedError (ValueError)
    └── RecoveryError (RuntimeError)
        ├── CheckpointNotFoundError
        ├── CheckpointExpiredError
        ├── CheckpointCorruptedError
        ├── AgentMismatchError
        └── RequestTypeMismatchError

`MessageBuildError` and its subclasses are InvalidInputErrors of the ledger, in `agent.messages`;
`OverridesFileError` is a PromptError, in `overrides`; `ApprovalRefusedError` and its subclasses are
InvalidInputErrors too, in `recovery.approvals`. `VisibilityExpansionRequired` is under the
root too, but is a control signal and not a failure: it is in `runtime.agent.visibility`.
`DecisionRequiredError` is deliberately not a RecoveryError: a worker that abandons what can't be
recovered must not abandon a run that waits for a person's decision.

Some messages end up in events, and a replay compares them with what was recorded: those of
SchemaError, PromptRenderError, DeadlineExceededError,
BudgetExceededError and TurnLimitExceededError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class PromptDifference:
    """What differs between a recorded prompt and the program's.

    Attributes:
        text: The diff of the system texts, line by line; empty if they are the same.
        tools_added: The names of tools that the record does not have.
        tools_removed: The names of recorded tools that the program does not have.
        tools_changed: The names of tools with another description or schema.
        tools: The diff of these descriptions and schemas; empty if the record lacks them.
    """

    text: str = ""
    tools_added: tuple[str, ...] = ()
    tools_removed: tuple[str, ...] = ()
    tools_changed: tuple[str, ...] = ()
    tools: str = ""

    @property
    def summary(self) -> str:
        """One line: how much of the text differs, and which tools."""
        parts = []
        if self.text:
            lines = self.text.splitlines()[2:]  # after the two of the heading
            new, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
            parts.append(f"{new} lines of text added, {gone} removed")
        for what, names in (
            ("added", self.tools_added),
            ("removed", self.tools_removed),
            ("changed", self.tools_changed),
        ):
            if names:
                parts.append(f"tools {what}: {', '.join(names)}")
        return "; ".join(parts) or "another output type, opening messages or order of tools"

    def __str__(self) -> str:
        parts = (self.text, f"{self.summary[:1].upper()}{self.summary[1:]}.", self.tools)
        return "\n\n".join(filter(None, parts))


class PromptMismatch(TurnledgerError, ValueError):  # noqa: N818 - the seed's name
    """The prompt differs from the one that the conversation began with.

    Attributes:
        what: What differs: "name", "digest" or "tools".
        recorded: The recorded one.
        found: The one that the program has.
        run_id: The run that was to be recovered; empty for a conversation outside of a loop.
        difference: The difference of the texts and tools; None if it is not known.
    """

    def __init__(
        self,
        what: str,
        *,
        recorded: str,
        found: str,
        run_id: str = "",
        difference: PromptDifference | None = None,
    ) -> None:
        self.what, self.recorded, self.found = what, recorded, found
        self.run_id, self.difference = run_id, difference
        began = f"Run {run_id}" if run_id else "The conversation"
        differs = f"its {what} is recorded as {recorded!r} and is now {found!r}"
        if difference is not None and what != "name":
            differs = difference.summary
        super().__init__(f"{began} began with another prompt: {differs}. {self._ways_on()}")

    def _ways_on(self) -> str:
        if not self.run_id:
            return "Resume with the same prompt, or begin a new conversation."
        command = f"turnledger recover {self.run_id} --app MODULE:AGENT"
        accept = f'{command} --accept-prompt, or recover(prompt="accept")'
        if self.what == "tools":
            return (
                "So it can't go on with its recorded text, which offers these tools. Put them "
                f"back, or go on with the new prompt: {accept}."
            )
        return (
            f"Go on with the recorded text: {command} --recorded-prompt, or "
            f'recover(prompt="recorded"). Or with the new prompt: {accept}. Or not at all: '
            f"turnledger abandon {self.run_id}."
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
    """A run waits for a person: to approve tool calls, or to decide about calls in doubt.

    Attributes:
        call_ids: All calls that it waits for.
        approvals: Those of them that need approval before they run.
    """

    def __init__(
        self, run_id: str, call_ids: Sequence[str] = (), *, approvals: Sequence[str] = ()
    ) -> None:
        self.run_id, self.call_ids, self.approvals = run_id, tuple(call_ids), tuple(approvals)
        doubted = [call for call in self.call_ids if call not in self.approvals]
        told: list[str] = []
        if doubted or not approvals:
            told.append(
                f"Run {run_id} waits for a decision about {', '.join(doubted) or 'a call'}, which "
                "may or may not have happened. Find out, then run "
                f"`turnledger resolve {run_id} {doubted[0] if doubted else 'CALL_ID'}` with "
                "--completed JSON, --failed TEXT or --retry."
            )
        if approvals:
            told.append(
                f"Run {run_id} waits for approval of {', '.join(approvals)}. Look with "
                f"`turnledger pending {run_id}`, then run "
                f"`turnledger resolve {run_id} {approvals[0]} --approve`, or with --deny TEXT or "
                "--edit JSON."
            )
        super().__init__(" ".join(told))


class ChatTurnRefusedError(TurnledgerError, ValueError):
    """A run can't be continued by another turn of the chat: it has not ended, or not cleanly.

    `status` is the run's; `call_ids` are calls of it that are open.
    """

    def __init__(
        self, run_id: str, *, status: str, worker: str | None = None, call_ids: Sequence[str] = ()
    ) -> None:
        self.run_id, self.status, self.call_ids = run_id, status, tuple(call_ids)
        recover = f"`turnledger recover {run_id} --app MODULE:AGENT`"
        first = {
            "running": f"It was interrupted: go on with it first, with {recover}.",
            "waiting": f"Decide first: `turnledger pending {run_id}` shows about what.",
            "failed": f"It failed with calls open ({', '.join(call_ids)}): recover it first, with "
            f"{recover}; `turnledger pending {run_id}` shows what a person has to decide.",
            "parked": f"Find the cause with `turnledger log {run_id}`; then continue the run "
            "before it, or a fork of it at an earlier version.",
            "abandoned": "Continue the run before it, or begin a new chat.",
        }[status]
        if status == "running" and worker is not None:
            first = f"The worker {worker} has it: wait until it has ended."
        super().__init__(
            f"Run {run_id} is {status}, and only a run that has ended can be continued. {first}"
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
