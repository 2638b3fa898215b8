"""Message: the option vocabulary of text and media, option calls, and option results.

Policies and programs use these pydantic models; `messages.convert` converts them to what a ledger
records and back, without loss. Messages are made by hand or with `messages.builder`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    model_validator,
)

from turnledger.ledger.events.messages import Modality, ToolCallStatus
from turnledger.runtime.agent.schema.frozen import frozen_json
from turnledger.runtime.agent.schema.values import checked_text

RoleHint: TypeAlias = Literal["user", "assistant", "tool", "system"]

# The policies of results that the runtime made itself, because no option ran.
RUNTIME_POLICY: Final = "runtime"
EXECUTOR_POLICY: Final = "executor"
RESERVED_POLICIES = frozenset({RUNTIME_POLICY, EXECUTOR_POLICY})

Text: TypeAlias = Annotated[StrictStr, AfterValidator(checked_text)]
Json: TypeAlias = Annotated[Any, AfterValidator(frozen_json)]
JsonObject: TypeAlias = Annotated[dict[StrictStr, Any], AfterValidator(frozen_json)]

_URL = TypeAdapter(HttpUrl)


class _Value(BaseModel):
    """An immutable pydantic model that rejects undeclared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextPart(_Value):
    """A piece of text."""

    kind: Literal["text"] = "text"
    text: Text


class MediaPart(_Value):
    """An image, audio, video or document, by exactly one of `url` and `blob`.

    Attributes:
        modality: Image, audio, video or document.
        url: A web address.
        blob: The name of bytes in the ledger ("sha256:" and 64 digits, see `ledger.blob_name`).
        mime: The media type, if it is known.
        prompt_hint: A label for the model.
        id: Distinguishes media of one message.
    """

    kind: Literal["media"] = "media"
    modality: Modality
    url: HttpUrl | None = None
    blob: Annotated[StrictStr, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    mime: Text | None = None
    prompt_hint: Text | None = None
    id: Text | None = None

    @model_validator(mode="after")
    def _is_somewhere(self) -> MediaPart:
        if (self.url is None) == (self.blob is None):
            raise ValueError(
                "expected exactly one of url and blob: an address, or the name of bytes in the "
                "ledger (MessageBuilder makes one from data=...)"
            )
        # Writing a URL escapes characters, which can make it another one.
        if self.url is not None and _URL.validate_python(str(self.url)) != self.url:
            raise ValueError("the url does not round-trip: encoded and parsed again, it is another")
        return self


Part: TypeAlias = Annotated[TextPart | MediaPart, Field(discriminator="kind")]


class PartsPayload(_Value):
    """Text and media, in order."""

    kind: Literal["parts"] = "parts"
    parts: tuple[Part, ...]


class OptionCallPayload(_Value):
    """A call of an option by a policy; the arguments are validated when it runs.

    `arguments` is an object of JSON values, an immutable copy at all levels;
    `to_plain(arguments)` is a mutable one.
    """

    kind: Literal["option_call"] = "option_call"
    invocation_id: Text
    option_name: Text
    arguments: JsonObject


class OptionResultPayload(_Value):
    """The result, or error, of the call with the same `invocation_id`.

    `result` is a JSON value, an immutable copy like a call's arguments. The error's fields are
    used if `is_error`.
    """

    kind: Literal["option_result"] = "option_result"
    invocation_id: Text
    option_name: Text
    result: Json
    is_error: StrictBool = False
    error_type: Text | None = None
    error_message: Text | None = None
    retryable: StrictBool | None = None


Payload: TypeAlias = Annotated[
    PartsPayload | OptionCallPayload | OptionResultPayload, Field(discriminator="kind")
]


class RecordedAs(_Value):
    """The place of a Message in a ledger, and what is needed to give the identical record back.

    One recorded message can be several Messages (text and two calls are three): `place` numbers
    them from 0, and `count` is how many they are. `said` is the digest of the Message's content
    when it was read: one that was changed since is another message.

    `status` and `raw_arguments` belong to a call; the latter is set only if encoding the
    arguments again would give another text, or if the text is not a JSON object. `unsaid` holds
    the record's other fields that do not follow from the Messages, by name, as one JSON text;
    the first Message has it.
    """

    evaluation_id: Text
    sequence: StrictInt
    turn: StrictInt
    prompt_ns: Text
    prompt_key: Text
    created_at: AwareDatetime
    message_id: UUID
    said: Text
    place: Annotated[StrictInt, Field(ge=0)] = 0
    count: Annotated[StrictInt, Field(ge=1)] = 1
    status: ToolCallStatus = "pending"
    raw_arguments: Text | None = None
    unsaid: Text = ""


class Message(_Value):
    """A message: text and media, an option call, or an option result, by its payload's `kind`.

    Messages that differ only in `record` are equal: what was recorded equals what is read.

    Attributes:
        policy: The author: of an option_call the caller, of an option_result the option that
            ran, or "runtime" or "executor" if none did.
        role_hint_for_llm: The role that adapters use.
        step_num: Groups the messages of one decision; the order is the ledger's.
        payload: The content.
        record: Set on messages that were read from a ledger; needed to give the identical
            record back.
    """

    policy: Annotated[Text, Field(min_length=1)]
    role_hint_for_llm: RoleHint | None = None
    step_num: StrictInt | None = None
    payload: Payload
    record: RecordedAs | None = Field(default=None, repr=False)

    __hash__ = None  # type: ignore[assignment]  # JSON values are not hashable

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (
            self.policy == other.policy
            and self.role_hint_for_llm == other.role_hint_for_llm
            and self.step_num == other.step_num
            and self.payload == other.payload
        )

    @property
    def kind(self) -> Literal["parts", "option_call", "option_result"]:
        """The kind of the payload."""
        return self.payload.kind

    @property
    def parts(self) -> tuple[TextPart | MediaPart, ...]:
        """The text and media of a parts message; empty for the other kinds."""
        return self.payload.parts if isinstance(self.payload, PartsPayload) else ()

    @property
    def text(self) -> str:
        """The text parts of a parts message, joined by blank lines."""
        return "\n\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def option_call(self) -> OptionCallPayload | None:
        """The payload of an option_call; None for the other kinds."""
        return self.payload if isinstance(self.payload, OptionCallPayload) else None

    @property
    def option_result(self) -> OptionResultPayload | None:
        """The payload of an option_result; None for the other kinds."""
        return self.payload if isinstance(self.payload, OptionResultPayload) else None

    def without_record(self) -> Message:
        """Return the message without its record, as a new one."""
        return self if self.record is None else self.model_copy(update={"record": None})
