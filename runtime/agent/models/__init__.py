"""Requests to a model: options, retries, deadline and budget."""

from turnledger.runtime.agent.models.limits import (
    Budget,
    BudgetTracker,
    Deadline,
    RunningTime,
    deadline_for,
    deadline_provider_payload,
)
from turnledger.runtime.agent.models.request import Reply, Request, Sending, ToolCall, ToolChoice
from turnledger.runtime.agent.models.retry import (
    FailedAttempt,
    RetryAdvice,
    RetryCancelledError,
    ThrottlePolicy,
    call_with_retries,
    retry_advice,
)

__all__ = [
    "Budget",
    "BudgetTracker",
    "Deadline",
    "FailedAttempt",
    "Reply",
    "Request",
    "RetryAdvice",
    "RetryCancelledError",
    "RunningTime",
    "Sending",
    "ThrottlePolicy",
    "ToolCall",
    "ToolChoice",
    "call_with_retries",
    "deadline_for",
    "deadline_provider_payload",
    "retry_advice",
]
