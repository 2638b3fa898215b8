"""Results of option calls: building one that fits its call, and running an option into one.

Whatever an option does, there is a result: arguments that it does not take, an exception and a
value that is no JSON become errors. What is recorded, and when, is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

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
    """Only an option call has a result, and this is none."""

    def __init__(self, found: object) -> None:
        what = f"a message of kind {found.kind!r}" if isinstance(found, Message) else repr(found)
        super().__init__(
            f"A result answers an option call, not {what:.200}. "
            "Hand over builder.last_option_call, or a message whose kind is 'option_call'."
        )


class OptionMismatchError(MessageBuildError):
    """A result can't have another invocation_id or option_name than its call."""

    def __init__(self, field: str, *, expected: str, found: str) -> None:
        self.field, self.expected, self.found = field, expected, found
        super().__init__(
            f"The call's {field} is {expected!r}, and its result can't have {found!r}. "
            "Leave it as it is, or begin with the call that you mean: response_to(call)."
        )


class OptionResultBuilder:
    """Makes the result of one option call: id, name and step are the call's.

    `invocation_id` and `option_name` can be set, but only to what they are: whoever has them
    from elsewhere finds out when they belong to another call.
    """

    def __init__(self, option_call_message: Message) -> None:
        call = getattr(option_call_message, "payload", None)
        if not isinstance(call, OptionCallPayload):
            raise NotAnOptionCallError(option_call_message)
        self._call = call
        self._step_num = option_call_message.step_num

    @classmethod
    def response_to(cls, option_call_message: Message) -> Self:
        """A builder for the result of this call."""
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
        """The option's result. Dataclasses, models and the like become plain JSON."""
        return self._message(self.option_name, result=to_plain(result))

    def error(self, error_type: str, error_message: str, retryable: bool = False) -> Message:
        """The option ran, and failed."""
        return self._failed(self.option_name, error_type, error_message, retryable)

    def runtime_error(
        self,
        error_type: str,
        error_message: str,
        retryable: bool = False,
        *,
        policy: Literal["runtime", "executor"] = RUNTIME_POLICY,
    ) -> Message:
        """The option did not run, or nobody knows: whoever runs options says so, not the option."""
        if policy not in RESERVED_POLICIES:
            raise MessageBuildError(
                f"An error of the runtime has the policy 'runtime' or 'executor', not {policy!r}. "
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
        # An option without a name can be in a record; its results have to come from somebody.
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
    """Call an option with a call's arguments; there is always a result.

    With `arguments_type` (a pydantic model, a dataclass, a msgspec Struct, ...) the option gets
    a value of that type, else a dict. Arguments that don't fit become an error of the runtime,
    "InvalidArguments", that is worth another try; the option is not called then. Its exceptions
    are its errors, but DeadlineExceededError, VisibilityExpansionRequired and what is no
    Exception pass.
    """
    builder = OptionResultBuilder.response_to(option_call_message)
    try:
        arguments = _arguments(option_call_message)
        if arguments_type is not None:
            arguments = decode(arguments_type, arguments)
    except DataDecodeError as error:
        said = f"Invalid arguments for option {builder.option_name!r}: {error}"
        return builder.runtime_error(INVALID_ARGUMENTS, _writable(said), retryable=True)
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
        return builder.error(INVALID_RESULT, _writable(f"The result is no JSON: {error}"))


def _arguments(message: Message) -> Any:
    """A copy of the arguments; DataDecodeError if what the model wrote is no JSON object."""
    if message.record is not None and message.record.raw_arguments is not None:
        parse_arguments(message.record.raw_arguments)
    assert message.option_call is not None
    return to_plain(message.option_call.arguments)


def _writable(text: str) -> str:
    return text.encode(errors="replace").decode()
