"""Failed model calls: what is recorded of an error, and an error as a record has it.

A replay raises a `RecordedError` where a live loop raised the provider's own. Both are recorded
by the same functions here, so that the two records can be compared field by field.
"""

from __future__ import annotations

from turnledger.ledger import ModelCallFailed
from turnledger.ledger.errors import error_message, error_text
from turnledger.runtime.errors import PromptEvaluationError


class ReplyError(ValueError):
    """A model replied, and the reply can't be used."""


class EmptyReplyError(ReplyError):
    """A model replied with neither text nor calls."""


class BadReplyError(ReplyError):
    """A model replied with something that can't be recorded."""


class RecordedError(Exception):
    """A model call that failed when the run was live, with the fields of its event."""

    def __init__(self, event: ModelCallFailed) -> None:
        super().__init__(event.error_message)
        self.event = event
        self.retryable = event.retryable
        self.status_code = event.status


class RecordedCause(Exception):  # noqa: N818 - it names the cause of a recorded failure
    """Stands for the error behind a recorded failure, of which the record has the type alone."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class EvaluationEnded(Exception):  # noqa: N818 - it carries an error
    """Effects know the error that ended the evaluation: it passes as it is."""

    def __init__(self, error: PromptEvaluationError, cause: RecordedCause) -> None:
        super().__init__(str(error))
        self.error = error
        self.cause = cause


def error_type(error: BaseException) -> str:
    """The name of an error's type, for `error_type` and `cause` of events."""
    if isinstance(error, RecordedError):
        return error.event.error_type
    return error.name if isinstance(error, RecordedCause) else type(error).__name__


def failure_text(error: BaseException) -> str:
    """The type and the message of an error, for `error_message` of events."""
    return error.event.error_message if isinstance(error, RecordedError) else error_text(error)


def reply_error(error: BaseException) -> str:
    """What is wrong with the reply; empty if the call failed without one."""
    if isinstance(error, RecordedError):
        return error.event.reply_error
    if not isinstance(error, ReplyError):
        return ""
    return error_message(error) or error_text(error)
