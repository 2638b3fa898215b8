"""Errors of model requests as they are recorded, and made again as the same class.

Retries and fallbacks of pydantic-ai go by the class of an error and by its fields. No import path
is stored: a class is found by its name among pydantic-ai's own.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, ModelRequestTimeout

from turnledger.adapters.frameworks.pydantic_ai.projection import plain
from turnledger.runtime.steps import OpenStep, StepOutcome
from turnledger.runtime.steps.record.open_step import text_of

# Errors that are made of their text alone.
OF_TEXT: tuple[type[Exception], ...] = (
    exceptions.ModelRetry,
    exceptions.ToolFailed,
    exceptions.ConcurrencyLimitExceeded,
    exceptions.ContentFilterError,
    exceptions.IncompleteToolCall,
    exceptions.UnexpectedModelBehavior,
    exceptions.UsageLimitExceeded,
    exceptions.UserError,
)
# The fields of an API's error that are recorded, as far as it has them. Headers are not.
_FIELDS = (
    "body",
    "hint",
    "in_stream",
    "phase",
    "provider_error_code",
    "provider_error_type",
    "retry_after",
    "setting",
    "suggested_model_id",
    "timeout",
)


def fail(step: OpenStep, error: ModelAPIError) -> StepOutcome:
    """Record the error that a model request ended with."""
    fields = {name: getattr(error, name) for name in _FIELDS if hasattr(error, name)}
    return step.fail_with(
        error_type=type(error).__name__,
        error_message=text_of(error),
        status=error.status_code if isinstance(error, ModelHTTPError) else None,
        value=plain({"model_name": error.model_name, **fields}),
    )


def made_again(outcome: StepOutcome) -> Exception | None:
    """The error of an outcome, if an API gave it; else None."""
    kind, fields = getattr(exceptions, outcome.error_type, None), outcome.value
    if not isinstance(fields, dict) or not isinstance(kind, type):
        return None
    if not issubclass(kind, ModelAPIError):
        return None
    try:
        return _made(kind, outcome, fields)
    except Exception:  # another release's constructor takes something else
        return None


def _made(kind: type[Any], outcome: StepOutcome, fields: dict[str, Any]) -> Exception:
    error: Exception
    if outcome.status is not None:
        category = None if kind is ModelHTTPError else kind
        error = ModelHTTPError.for_category(category, status_code=outcome.status, **fields)
    elif issubclass(kind, ModelRequestTimeout):
        names = ("model_name", "timeout", "setting")
        error = kind(**{name: fields[name] for name in names})
    else:
        error = kind(message=outcome.error_message, **fields)
    return error
