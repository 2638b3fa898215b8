"""OptionResultBuilder and run_option: build the result of an option call.

There is always a result: invalid arguments, an exception and a value that is not JSON become
errors. Nothing is recorded here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import error_message
from turnledger.runtime.agent.messages.builder import MessageBuildError, made
from turnledger.runtime.agent.messages.message import (
    RESERVED_POLICIES,
    RUNTIME_POLICY,
    Message,
    OptionCallPayload,
    OptionResultPayload,
)
from turnledger.runtime.agent.models.retry import retry_advice
from turnledger.runtime.agent.schema.schema import decode
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.agent.tools.call import parse_arguments
from turnledger.runtime.agent.visibility import VisibilityExpansionRequired
from turnledger.runtime.errors import DataDecodeError, DataEncodeError, DeadlineExceededError

INVALID_ARGUMENTS = "InvalidArguments"
INVALID_RESULT = "InvalidResult"


class NotAnOptionCallError(MessageBuildError):
    """A result was to be built for a message that is not an option call."""

    def __init__(self, found: object) -> None:
        what = f"a message of kind {found.kind!r}" if isinstance(found, Message) else repr(found)
        super().__init__(
            f"Invalid option call: got {what:.200}. "
            "Pass builder.last_option_call, or a message whose kind is 'option_call'."
        )


class OptionMismatchError(MessageBuildError):
    """A result was given another invocation_id or option_name than its call's."""

    def __init__(self, field: str, *, expected: str, found: str) -> None:
        self.field, self.expected, self.found = field, expected, found
        super().__init__(
            f"Invalid {field} {found!r}: expected that of the call, {expected!r}. "
            "Leave it out, or start from the other call: response_to(call)."
        )


@explain_methods()
class OptionResultBuilder:
    """Builds the result of one option call, with the call's id, name and step.

    `invocation_id` and `option_name` can be set, but only to the call's: setting them checks
    that a result from elsewhere belongs to this call.
    """

    def __init__(self, option_call_message: Message) -> None:
        call = getattr(option_call_message, "payload", None)
        if not isinstance(call, OptionCallPayload):
            raise NotAnOptionCallError(option_call_message)
        self._call = call
        self._step_num = option_call_message.step_num

    @classmethod
    def response_to(cls, option_call_message: Message) -> Self:
        """Make a builder for the result of this call."""
        return cls(option_call_message)

    @property
    def invocation_id(self) -> str:
        """The call's id."""
        return self._call.invocation_id

    @invocation_id.setter
    def invocation_id(self, value: str) -> None:
        self._check("invocation_id", value)

    @property
    def option_name(self) -> str:
        """The option's name."""
        return self._call.option_name

    @option_name.setter
    def option_name(self, value: str) -> None:
        self._check("option_name", value)

    @property
    def step_num(self) -> int | None:
        """The call's step."""
        return self._step_num

    def success(self, result: Any = None) -> Message:
        """Build the message of a result. Dataclasses and models become plain JSON."""
        return self._message(self.option_name, result=to_plain(result))

    def error(self, error_type: str, error_message: str, retryable: bool = False) -> Message:
        """Build the message of an option that ran and failed."""
        return self._failed(self.option_name, error_type, error_message, retryable)

    def runtime_error(
        self,
        error_type: str,
        error_message: str,
        retryable: bool = False,
        *,
        policy: Literal["runtime", "executor"] = RUNTIME_POLICY,
    ) -> Message:
        """Build the message of an option that did not run, or whose outcome is unknown.

        The message's policy is the runtime's, not the option's.
        """
        if policy not in RESERVED_POLICIES:
            raise MessageBuildError(
                f"Invalid policy {policy!r}: expected 'runtime' or 'executor'. "
                "The option's own errors are error(...)."
            )
        return self._failed(policy, error_type, error_message, retryable)

    def _check(self, field: str, value: str) -> None:
        expected = getattr(self._call, field)
        if value != expected:
            raise OptionMismatchError(field, expected=expected, found=value)

    def _failed(self, policy: str, error_type: str, message: str, retryable: bool) -> Message:
        return self._message(
            policy,
            result=None,
            is_error=True,
            error_type=error_type,
            error_message=message,
            retryable=retryable,
        )

    def _message(self, policy: str, **outcome: Any) -> Message:
        payload = made(
            "The result",
            OptionResultPayload,
            invocation_id=self.invocation_id,
            option_name=self.option_name,
            **outcome,
        )
        # A record can hold an option without a name; a message needs a policy nevertheless.
        return Message(
            policy=policy or RUNTIME_POLICY,
            role_hint_for_llm="tool",
            step_num=self._step_num,
            payload=payload,
        )


def run_option(
    option_call_message: Message,
    option: Callable[[Any], Any],
    *,
    arguments_type: Any = None,
) -> Message:
    """Run an option with a call's arguments; there is always a result.

    Args:
        option_call_message: The call.
        option: Called with the arguments. Its exceptions become its errors.
        arguments_type: A pydantic model, dataclass or msgspec Struct to decode the arguments
            as; without, the option gets a dict. Arguments that do not fit become a retryable
            error of the runtime, "InvalidArguments", and the option is not called.

    Raises:
        DeadlineExceededError, VisibilityExpansionRequired: As the option raised them.
    """
    builder = OptionResultBuilder.response_to(option_call_message)
    try:
        arguments = _arguments(option_call_message)
        if arguments_type is not None:
            arguments = decode(arguments_type, arguments)
    except DataDecodeError as error:
        reason = f"Invalid arguments for option {builder.option_name!r}: {error}"
        return builder.runtime_error(INVALID_ARGUMENTS, _writable(reason), retryable=True)
    try:
        result = option(arguments)
    except (DeadlineExceededError, VisibilityExpansionRequired):
        raise
    except Exception as error:
        retryable = retry_advice(error).retryable
        return builder.error(type(error).__name__, error_message(error), retryable)
    try:
        return builder.success(result)
    except DataEncodeError as error:
        return builder.error(INVALID_RESULT, _writable(f"The result is not JSON: {error}"))


def _arguments(message: Message) -> Any:
    """Copy the arguments; DataDecodeError if the model did not write a JSON object."""
    if message.record is not None and message.record.raw_arguments is not None:
        parse_arguments(message.record.raw_arguments)
    assert message.option_call is not None
    return to_plain(message.option_call.arguments)


def _writable(text: str) -> str:
    return text.encode(errors="replace").decode()
