"""Opening messages of a prompt: media and earlier messages that a conversation begins with.

`Prompt.with_messages` adds them. They are recorded when the evaluation begins, right after the
system text, and are part of the prompt's digest. Imports pydantic, so it is imported late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnledger.projections.digests import canonical
from turnledger.runtime.agent.messages.builder import MessageBuilder
from turnledger.runtime.agent.messages.convert import role_of
from turnledger.runtime.agent.messages.message import MediaPart, Message
from turnledger.runtime.errors import PromptRenderError


def opening_messages(
    given: Iterable[Message | MessageBuilder], prompt: str
) -> tuple[tuple[Message, ...], tuple[bytes, ...]]:
    """Return the messages, and the bytes that their builders hold; checks their types."""
    messages: list[Message] = []
    blobs: list[bytes] = []
    for one in given:
        if isinstance(one, MessageBuilder):
            blobs += one.blobs.values()
            one = one.to_message()
        if not isinstance(one, Message):
            raise PromptRenderError(
                f"invalid message of type {type(one).__name__}: expected a Message or a "
                "MessageBuilder",
                prompt=prompt,
            )
        messages.append(one.without_record())
    return tuple(messages), tuple(blobs)


def check_opening(messages: Sequence[Message], prompt: str) -> None:
    """PromptRenderError if no model request can follow these messages."""
    problem = _problem(messages)
    if problem:
        raise PromptRenderError(problem, prompt=prompt)


def _problem(messages: Sequence[Message]) -> str:
    asked: list[str] = []
    for message in messages:
        if role_of(message) == "system":
            return "the system text is the prompt's own: put it into a section, not into a message"
        if message.option_call is not None:
            asked.append(message.option_call.invocation_id)
        elif message.option_result is not None:
            if message.option_result.invocation_id not in asked:
                return f"{message.option_result.option_name!r} has a result and was not called"
            asked.remove(message.option_result.invocation_id)
    if asked:
        return f"the calls {', '.join(asked)} have no result: add it, or leave the call out"
    if messages and role_of(messages[-1]) == "assistant":
        return "the last message is the assistant's own: nothing would be asked"
    return ""


def blobs_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the names of the blobs in these messages."""
    return tuple(
        part.blob
        for message in messages
        for part in message.parts
        if isinstance(part, MediaPart) and part.blob is not None
    )


def digest_text(messages: Iterable[Message]) -> bytes:
    """Return what a prompt's digest covers of its messages: everything but invocation ids.

    An invocation id pairs a call with its result, and is a new one each time that a program
    builds the messages; so it is replaced by a number.
    """
    plains, numbers = [], dict[str, int]()
    for message in messages:
        plain = message.model_dump(mode="json", exclude={"record"}, exclude_none=True)
        invocation = plain["payload"].get("invocation_id")
        if invocation is not None:
            plain["payload"]["invocation_id"] = numbers.setdefault(invocation, len(numbers))
        plains.append(plain)
    return canonical(plains)
