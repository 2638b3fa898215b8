"""Messages as they are recorded: immutable and independent of providers."""

from __future__ import annotations

from dataclasses import MISSING, Field, field, make_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args
from uuid import UUID

import msgspec

from turnledger.ledger.clock import new_message_id, utc_now
from turnledger.ledger.errors import InvalidEventError, short_repr

# Recorded times have a time zone, so that those of different machines can be compared.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Role = Literal["system", "assistant", "user", "tool"]
ToolCallStatus = Literal["pending", "completed", "failed"]
Modality = Literal["image", "audio", "video", "document"]
ROLES = get_args(Role)
S = TypeVar("S", bound=msgspec.Struct)


class Value(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The base of all that is recorded: immutable, and JSON without fields that are defaults."""


def as_dataclass(kind: type[S]) -> type[S]:
    """Decorate a Struct so that `fields`, `replace` and `asdict` of dataclasses work on it."""

    def given(default: Any) -> Any:
        return MISSING if default is msgspec.NODEFAULT else default

    described = [
        (
            one.name,
            one.type,
            field(default=given(one.default), default_factory=given(one.default_factory)),
        )
        for one in msgspec.structs.fields(kind)
    ]
    twin = make_dataclass(kind.__name__, described, init=False, repr=False, eq=False)
    kind.__dataclass_fields__ = twin.__dataclass_fields__  # type: ignore[attr-defined]
    return kind


@as_dataclass
class ToolCallRecord(Value, frozen=True):
    """A tool call that the assistant requested; `arguments` is JSON text."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    call_id: str
    name: str
    arguments: str
    status: ToolCallStatus = "pending"


@as_dataclass
class TextContent(Value, frozen=True, tag_field="kind", tag="text"):
    """A text part of a message."""

    text: str


@as_dataclass
class MediaContent(Value, frozen=True, tag_field="kind", tag="media"):
    """A media part: an image, audio, video or document, at a `url` or in a `blob`.

    `blob` is the name of bytes in the ledger (see `ledger.events.blobs`).
    """

    modality: Modality
    url: str | None = None
    blob: str | None = None
    mime: str | None = None
    prompt_hint: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if (self.url is None) == (self.blob is None):
            raise InvalidEventError("media has exactly one of url and blob")


@as_dataclass
class InnerMessage(Value, frozen=True):
    """One message of a conversation.

    `sequence` counts from 0 within its evaluation, and `turn` counts the model's replies. The
    fields after `message_id` are for messages with media and options: a tool result's `value`
    and error, beside the text for the model.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    role: Role
    content: str
    evaluation_id: str
    sequence: Count
    tool_calls: tuple[ToolCallRecord, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    turn: Count = 0
    prompt_ns: str = ""
    prompt_key: str = ""
    created_at: Moment = msgspec.field(default_factory=utc_now)
    message_id: UUID = msgspec.field(default_factory=new_message_id)
    parts: tuple[TextContent | MediaContent, ...] = ()
    policy: str = ""
    step_num: int | None = None
    role_hint_for_llm: Role | None = None
    value: Any = None
    is_error: bool = False
    error_type: str | None = None
    error_message: str | None = None
    retryable: bool | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidEventError(
                f"Invalid role {short_repr(self.role)}: expected one of {', '.join(ROLES)}."
            )
