"""Events of older programs, with the fields that today's programs write.

The only place that reads the text of recorded messages. A program before catalogue 2 told in
words alone why a run failed; what a replay needs of that is read from the words here.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from turnledger.ledger import Event, ModelCallFailed, RunFailed

EventT = TypeVar("EventT", bound=Event)

# Programs before catalogue 2 wrote these words, for ever.
_UNUSABLE_REPLIES = ("EmptyReplyError", "BadReplyError")
_NOT_ENCODED = ": The request can't be made: "


def with_failure_fields(event: EventT, catalogue: int) -> EventT:
    """The event with `step` or `reply_error`, if its writer's catalogue had no such field."""
    if catalogue >= 2:
        return event
    match event:
        case RunFailed() if event.phase == "request":
            label, found, _ = event.error_message.partition(_NOT_ENCODED)
            if found and label.endswith("(request)"):
                return replace(event, step="encode")
        case ModelCallFailed() if event.error_type in _UNUSABLE_REPLIES:
            wrong = event.error_message.removeprefix(f"{event.error_type}: ")
            return replace(event, reply_error=wrong)
    return event
