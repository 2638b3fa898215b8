"""Messages in the vocabulary of options: text and media, calls of options, and their results.

This is what policies and programs speak; adapters turn it into what a provider wants, and
`messages.convert` into what a ledger records, both ways without loss. Messages are made
by hand or with the builders of `messages.builder`.
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
from turnledger.runtime.agent.schema.frozen import checked_text, frozen_json

RoleHint: TypeAlias = Literal["user", "assistant", "tool", "system"]

# Whoever runs options speaks under these names, where no option spoke.
RUNTIME_POLICY: Final = "runtime"
EXECUTOR_POLICY: Final = "executor"
RESERVED_POLICIES = frozenset({RUNTIME_POLICY, EXECUTOR_POLICY})

Text: TypeAlias = Annotated[StrictStr, AfterValidator(checked_text)]
Json: TypeAlias = Annotated[Any, AfterValidator(frozen_json)]
JsonObject: TypeAlias = Annotated[dict[StrictStr, Any], AfterValidator(frozen_json)]

_URL = TypeAdapter(HttpUrl)


class _Value(BaseModel):
    """A value: can't be changed, and has no fields that nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextPart(_Value):
    """A piece of text."""

    kind: Literal["text"] = "text"
    text: Text


class MediaPart(_Value):
    """An image, sound, film or document: exactly one of `url` and `blob` says where it is.

    `blob` is the name of bytes in the ledger itself ("sha256:" and 64 digits, see
    `ledger.blob_name`). `mime` is as good as it is known, `prompt_hint` a label for the model
    that means nothing to the framework, and `id` tells media apart.
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
                "media has exactly one of url and blob: an address, or the name of bytes in "
                "the ledger (MessageBuilder makes one from data=...)"
            )
        # Writing an address escapes what is in it, which can make it one that nobody reads.
        if self.url is not None and _URL.validate_python(str(self.url)) != self.url:
            raise ValueError("the url, once written down, is read as another one")
        return self


Part: TypeAlias = Annotated[TextPart | MediaPart, Field(discriminator="kind")]


class PartsPayload(_Value):
    """What was said or seen: text and media, in order."""

    kind: Literal["parts"] = "parts"
    parts: tuple[Part, ...]


class OptionCallPayload(_Value):
    """An option that a policy chose. Whether it takes these arguments is found out later.

    `arguments` is an object of JSON values. It is copied in, and can't be changed to the last
    level; `to_plain(arguments)` is a copy that can.
    """

    kind: Literal["option_call"] = "option_call"
    invocation_id: Text
    option_name: Text
    arguments: JsonObject


class OptionResultPayload(_Value):
    """What came of a call with the same `invocation_id`: a result, or an error.

    `result` is a JSON value, copied in and frozen like a call's arguments. The error's fields
    are used when `is_error`.
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
    """Where in a ledger a message stands, and what of the record its Messages can't say.

    One recorded message can be several Messages (text and two calls are three): `place` counts
    them from 0 and `count` says how many they are. `said` is the digest of what the Message
    said when it was read: one that was changed since is another message.

    `status` and `raw_arguments` are a call's; the latter is there only if writing the arguments
    again would give another text, or if the text is no JSON object at all. `unsaid` has the
    other fields of the record that can't be told from the Messages, by name, as one JSON text;
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
    """The unit that flows through the system; what it is depends on its payload's `kind`.

    `policy` is who made it: on an option_call the caller, on an option_result the option that
    ran, or "runtime" or "executor" where none did. `role_hint_for_llm` is for adapters and
    means nothing else. `step_num` groups what belongs to one decision; the order of messages
    is the ledger's, whatever their steps.

    `record` is there only on messages that were read from a ledger, and is needed to give the
    very record back. It says where a message stands and not what it says, so messages that
    differ only in it are equal: what was recorded equals what is read.
    """

    policy: Annotated[Text, Field(min_length=1)]
    role_hint_for_llm: RoleHint | None = None
    step_num: StrictInt | None = None
    payload: Payload
    record: RecordedAs | None = Field(default=None, repr=False)

    __hash__ = None  # type: ignore[assignment]  # JSON values have none

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
        """Which of the three kinds this is."""
        return self.payload.kind

    @property
    def parts(self) -> tuple[TextPart | MediaPart, ...]:
        """The text and media of a parts message; nothing on the other kinds."""
        return self.payload.parts if isinstance(self.payload, PartsPayload) else ()

    @property
    def text(self) -> str:
        """The text of a parts message, its pieces a blank line apart; without media."""
        return "\n\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def option_call(self) -> OptionCallPayload | None:
        """The payload of an option_call; None on the other kinds."""
        return self.payload if isinstance(self.payload, OptionCallPayload) else None

    @property
    def option_result(self) -> OptionResultPayload | None:
        """The payload of an option_result; None on the other kinds."""
        return self.payload if isinstance(self.payload, OptionResultPayload) else None

    def without_record(self) -> Message:
        """The same message as if nobody had recorded it yet."""
        return self if self.record is None else self.model_copy(update={"record": None})
