"""Messages with media and option calls, their builders, and conversion to InnerMessages."""

from turnledger.runtime.agent.messages.builder import MessageBuilder, MessageBuildError
from turnledger.runtime.agent.messages.convert import (
    from_inner_message,
    from_inner_messages,
    to_inner_messages,
)
from turnledger.runtime.agent.messages.message import (
    EXECUTOR_POLICY,
    RESERVED_POLICIES,
    RUNTIME_POLICY,
    MediaPart,
    Message,
    OptionCallPayload,
    OptionResultPayload,
    PartsPayload,
    RecordedAs,
    RoleHint,
    TextPart,
)
from turnledger.runtime.agent.messages.results import (
    NotAnOptionCallError,
    OptionMismatchError,
    OptionResultBuilder,
    run_option,
)

__all__ = [
    "EXECUTOR_POLICY",
    "MediaPart",
    "Message",
    "MessageBuildError",
    "MessageBuilder",
    "NotAnOptionCallError",
    "OptionCallPayload",
    "OptionMismatchError",
    "OptionResultBuilder",
    "OptionResultPayload",
    "PartsPayload",
    "RESERVED_POLICIES",
    "RUNTIME_POLICY",
    "RecordedAs",
    "RoleHint",
    "TextPart",
    "from_inner_message",
    "from_inner_messages",
    "run_option",
    "to_inner_messages",
]
