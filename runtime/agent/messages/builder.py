"""MessageBuilder: builds messages, filling in step, ids and policy.

A `MessageBuilder` makes one parts message and any number of option calls; results of calls are
built in `runtime.agent.messages.results`. Nothing is recorded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from hashlib import sha256
from typing import Any, Self, TypeVar

from pydantic import HttpUrl, ValidationError

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.clock import Clock, SystemClock
from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.events.blobs import blob_name
from turnledger.ledger.events.messages import Modality
from turnledger.runtime.agent.messages.message import (
    RESERVED_POLICIES,
    MediaPart,
    Message,
    OptionCallPayload,
    PartsPayload,
    RoleHint,
    TextPart,
)
from turnledger.runtime.agent.schema.values import to_plain

T = TypeVar("T")


class MessageBuildError(InvalidInputError):
    """A message can't be built from these values."""


class _Unsaid(Enum):
    """The default of a role hint: None is a valid hint."""

    UNSAID = "unsaid"


_UNSAID = _Unsaid.UNSAID


@explain_methods()
class MessageBuilder:
    """Builds the messages of one step from text, media and option calls.

    `to_message()` returns all text and media as one message; every option call is a message of
    its own, in `option_calls`. Bytes that were added are in `blobs` by their names: append them
    with the message, `append(..., blobs=builder.blobs.values())`.
    """

    def __init__(
        self,
        *,
        step_num: int | None = None,
        policy: str = "user",
        role_hint_for_llm: RoleHint | None = "user",
        clock: Clock | None = None,
    ) -> None:
        """Make a builder; `next_step` and `continue_step` take the arguments from a message.

        Args:
            step_num: The step of the messages.
            policy: The author of the messages.
            role_hint_for_llm: The role that adapters use.
            clock: Makes the ids of option calls; by default the system's.
        """
        self.step_num = step_num
        self.policy = policy
        self.role_hint_for_llm = role_hint_for_llm
        self.blobs: dict[str, bytes] = {}
        self._clock = clock or SystemClock()
        self._parts: list[TextPart | MediaPart] = []
        self._calls: list[Message] = []
        self._media: dict[str, int] = {}

    @classmethod
    def next_step(
        cls,
        last_message_or_step: Message | int | None = None,
        *,
        policy: str | None = None,
        role_hint_for_llm: RoleHint | _Unsaid | None = _UNSAID,
        clock: Clock | None = None,
    ) -> Self:
        """Make a builder for the next step; the first is 1.

        Policy and role hint are those of the last message unless they are given.
        """
        made = cls.continue_step(
            last_message_or_step, policy=policy, role_hint_for_llm=role_hint_for_llm, clock=clock
        )
        made.step_num = (made.step_num or 0) + 1
        return made

    @classmethod
    def continue_step(
        cls,
        last_message_or_step: Message | int | None = None,
        *,
        policy: str | None = None,
        role_hint_for_llm: RoleHint | _Unsaid | None = _UNSAID,
        clock: Clock | None = None,
    ) -> Self:
        """Make a builder for the same step; arguments as for `next_step`."""
        last, step, hint = last_message_or_step, _step_of(last_message_or_step), role_hint_for_llm
        if policy is None:
            policy = last.policy if isinstance(last, Message) else "user"
        if isinstance(hint, _Unsaid):
            hint = last.role_hint_for_llm if isinstance(last, Message) else "user"
        return cls(step_num=step, policy=policy, role_hint_for_llm=hint, clock=clock)

    # --- text and media ---

    def add_text(self, text: str) -> Self:
        """Add text."""
        self._parts.append(made("add_text", TextPart, text=text))
        return self

    def add_image(
        self,
        prompt_hint: str | None = None,
        url: str | HttpUrl | None = None,
        *,
        data: bytes | None = None,
        mime: str | None = None,
    ) -> Self:
        """Add an image: `add_image("a hat", data=png)`.

        Args:
            prompt_hint: A label for the model.
            url: A web address; either this or `data`.
            data: The bytes.
            mime: The media type, if it is known.
        """
        return self._add_media("image", prompt_hint, url, data, mime)

    def add_audio(
        self,
        prompt_hint: str | None = None,
        url: str | HttpUrl | None = None,
        *,
        data: bytes | None = None,
        mime: str | None = None,
    ) -> Self:
        """Add audio, with the arguments of `add_image`."""
        return self._add_media("audio", prompt_hint, url, data, mime)

    def add_video(
        self,
        prompt_hint: str | None = None,
        url: str | HttpUrl | None = None,
        *,
        data: bytes | None = None,
        mime: str | None = None,
    ) -> Self:
        """Add a video, with the arguments of `add_image`."""
        return self._add_media("video", prompt_hint, url, data, mime)

    def add_document(
        self,
        prompt_hint: str | None = None,
        url: str | HttpUrl | None = None,
        *,
        data: bytes | None = None,
        mime: str | None = None,
    ) -> Self:
        """Add a document, with the arguments of `add_image`."""
        return self._add_media("document", prompt_hint, url, data, mime)

    def _add_media(
        self,
        modality: Modality,
        prompt_hint: str | None,
        url: str | HttpUrl | None,
        data: bytes | None,
        mime: str | None,
    ) -> Self:
        method = f"add_{modality}"
        if (url is None) == (data is None):
            raise MessageBuildError(f"{method}: expected exactly one of url and data.")
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):
            raise MessageBuildError(
                f"{method}: invalid data: expected bytes, got {type(data).__name__}."
            )
        content = None if data is None else bytes(data)
        blob = None if content is None else blob_name(content)
        part = made(
            method,
            MediaPart,
            modality=modality,
            url=url,
            blob=blob,
            mime=mime,
            prompt_hint=prompt_hint,
        )
        # Derived from the content, so that building the same message again gives the same ids.
        name = sha256(f"{modality} {part.blob or part.url}".encode()).hexdigest()[:12]
        self._media[name] = times = self._media.get(name, 0) + 1
        media_id = f"media-{name}" if times == 1 else f"media-{name}-{times}"
        self._parts.append(part.model_copy(update={"id": media_id}))
        if blob is not None and content is not None:
            self.blobs[blob] = content
        return self

    def to_message(self) -> Message:
        """Return all text and media that was added, as one message."""
        if not self._parts:
            hint = " Option calls are messages of their own: option_calls." if self._calls else ""
            raise MessageBuildError(f"The message is empty: add text or media first.{hint}")
        return made(
            "to_message",
            Message,
            policy=self.policy,
            role_hint_for_llm=self.role_hint_for_llm,
            step_num=self.step_num,
            payload=PartsPayload(parts=tuple(self._parts)),
        )

    # --- option calls ---

    def add_option_call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Self:
        """Add a call of an option, with a new invocation id.

        Dataclasses and models in the arguments become plain JSON.
        """
        if name in RESERVED_POLICIES:
            raise MessageBuildError(
                f"Invalid option name {name!r}: it is reserved for results of the runtime."
            )
        payload = made(
            "add_option_call",
            OptionCallPayload,
            invocation_id=self._clock.new_id(),
            option_name=name,
            arguments=to_plain({} if arguments is None else arguments),
        )
        call = made(
            "add_option_call",
            Message,
            policy=self.policy,
            role_hint_for_llm="assistant",
            step_num=self.step_num,
            payload=payload,
        )
        self._calls.append(call)
        return self

    @property
    def option_calls(self) -> tuple[Message, ...]:
        """The option calls that were added, in order, each as a message."""
        return tuple(self._calls)

    @property
    def last_option_call(self) -> Message:
        """The option call that was added last."""
        if not self._calls:
            raise MessageBuildError("There is no option call yet: add_option_call(name, args).")
        return self._calls[-1]


def _step_of(last: object) -> int | None:
    found = last.step_num if isinstance(last, Message) else last
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    raise MessageBuildError(
        f"Invalid last message or step {last!r:.200}: expected a Message, an integer or None."
    )


def made(what: str, kind: type[T], /, **fields: Any) -> T:
    """Make a model; a MessageBuildError names the method and the invalid fields."""
    try:
        return kind(**fields)
    except ValidationError as error:
        found = [
            ": ".join(filter(None, [".".join(map(str, one["loc"])), one["msg"]]))
            for one in error.errors(include_url=False)
        ]
        raise MessageBuildError(f"{what}: {'; '.join(found)}.") from error
