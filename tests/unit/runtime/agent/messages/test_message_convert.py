"""Messages to records and back: nothing is lost, whichever way one goes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.runtime.clocks import BEGIN, StandingClock
from tests.unit.runtime.option_messages import BYTES, messages, recorded
from turnledger.ledger import (
    ANY,
    InnerMessage,
    InvalidInputError,
    Ledger,
    Limits,
    MediaContent,
    MessageAppended,
    TextContent,
    ToolCallRecord,
    blob_name,
    new_run_id,
)
from turnledger.projections.history.blocks import (
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.message_history import blocks_of
from turnledger.runtime.agent.messages.builder import MessageBuilder
from turnledger.runtime.agent.messages.convert import (
    from_inner_message,
    from_inner_messages,
    to_inner_messages,
)
from turnledger.runtime.agent.messages.message import (
    MediaPart,
    Message,
    OptionCallPayload,
    OptionResultPayload,
    PartsPayload,
    TextPart,
)
from turnledger.runtime.agent.messages.results import OptionResultBuilder


def stored(*inner: InnerMessage, limits: Limits | None = None) -> list[InnerMessage]:
    """What a ledger gives back of these."""
    run_id = new_run_id()
    with Ledger.open("memory://", limits=limits, redactor=None) as ledger:
        for one in inner:
            ledger.append(run_id, MessageAppended(message=one), ANY, blobs=[BYTES])
        return [
            record.event.message
            for record in ledger.read(run_id)
            if isinstance(record.event, MessageAppended)
        ]


def plain(role: Any, content: str, **more: Any) -> InnerMessage:
    """A message as a prompt's evaluation records it."""
    return InnerMessage(
        role=role,
        content=content,
        evaluation_id="e1",
        sequence=2,
        turn=1,
        prompt_ns="shop",
        prompt_key="hats",
        created_at=datetime(2025, 3, 1, tzinfo=UTC),
        message_id=UUID(int=7, version=4),
        **more,
    )


def back(inner: InnerMessage) -> InnerMessage:
    """What comes of a record that is read and recorded again."""
    (again,) = to_inner_messages(from_inner_message(inner))
    return again


def recording(message: Message) -> InnerMessage:
    (inner,) = to_inner_messages([message], evaluation_id="e1")
    return inner


def result(value: Any, **more: Any) -> Message:
    payload = OptionResultPayload(invocation_id="i1", option_name="o", result=value, **more)
    return Message(policy="o", role_hint_for_llm="tool", payload=payload)


# --- both ways, whatever it is -----------------------------------------------------


@given(messages)
@example(result(None))
@example(result(None, is_error=True))
@example(result("", is_error=True, error_type="", error_message=""))
@example(result({"a": [1, 1.0, True, -0.0, 1e22, 2**64 - 1]}))
@example(Message(policy="user", payload=PartsPayload(parts=())))
@example(Message(policy="user", payload=PartsPayload(parts=(TextPart(text=""),))))
def test_a_message_is_read_from_its_record_as_it_was(message: Message) -> None:
    """Through a ledger, to the last digit, whatever it holds."""
    (again,) = from_inner_messages(stored(*to_inner_messages([message], evaluation_id="e1")))
    assert again == message
    assert again.without_record().model_dump_json() == message.model_dump_json()


@given(recorded)
def test_a_record_is_given_back_by_its_messages_as_it_was(inner: InnerMessage) -> None:
    """Whatever can be in a ledger, odd records too; also when the Messages were JSON meanwhile."""
    read = from_inner_message(inner)
    (again,) = to_inner_messages(read)
    assert again == inner
    assert repr(again.value) == repr(inner.value)
    written = [message.model_dump_json() for message in read]
    parsed = [Message.model_validate_json(text) for text in written]
    assert to_inner_messages(parsed) == [inner]


@given(recorded)
def test_what_a_ledger_holds_is_given_back_by_its_messages_as_it_is(inner: InnerMessage) -> None:
    """Appended, read, turned into Messages and back; but for blobs that nobody handed in."""
    kept = [part for part in inner.parts if getattr(part, "blob", None) is None]
    (held,) = stored(replace(inner, parts=tuple(kept)))
    assert back(held) == held
    assert stored(back(held)) == [held]


@given(st.lists(recorded, max_size=4, unique_by=lambda inner: inner.message_id))
def test_records_in_a_row_are_given_back_in_a_row(inner: list[InnerMessage]) -> None:
    """Messages of one record find together, those of others stay apart."""
    assert to_inner_messages(from_inner_messages(inner)) == inner


@given(st.lists(messages, min_size=1, max_size=4))
def test_the_order_of_messages_is_the_ledgers_whatever_their_steps(many: list[Message]) -> None:
    """S1-16: steps may go up, down or be missing; nothing is sorted by them."""
    inner = to_inner_messages(many, evaluation_id="e1", sequence=5)
    assert [one.sequence for one in inner] == list(range(5, 5 + len(many)))
    read = from_inner_messages(stored(*inner))
    assert read == many
    assert [one.step_num for one in read] == [one.step_num for one in many]


def test_a_value_that_is_deeper_than_messages_allow_is_still_given_back() -> None:
    """A ledger can be opened with other limits; the Message tells what the model was told."""
    deep: Any = 0
    for _ in range(150):
        deep = [deep]
    limits = Limits(max_json_depth=200)
    (inner,) = stored(plain("tool", "very deep", tool_call_id="c1", value=deep), limits=limits)
    (message,) = from_inner_message(inner)
    assert message.option_result is not None
    assert message.option_result.result == "very deep"
    assert back(inner) == inner


# --- what is recorded --------------------------------------------------------------


def test_one_text_stands_in_the_content_once() -> None:
    """And is what a conversation shows."""
    inner = recording(MessageBuilder.next_step(None).add_text("Hi").to_message())
    assert (inner.content, inner.parts) == ("Hi", ())
    assert (inner.role, inner.policy, inner.role_hint_for_llm) == ("user", "user", "user")
    assert inner.step_num == 1
    assert blocks_of(inner) == (TextBlock("Hi"),)


def test_text_and_media_are_recorded_as_parts_with_a_content_for_people() -> None:
    """Media is named there by its label."""
    builder = MessageBuilder.next_step(None).add_image("a hat", "https://example.com/hat.png")
    builder.add_text("Nice?").add_document(data=b"letter", mime="text/plain")
    inner = recording(builder.to_message())
    assert inner.content == "[image: a hat]\n\nNice?\n\n[document]"
    assert [type(part) for part in inner.parts] == [MediaContent, TextContent, MediaContent]
    image, text, document = blocks_of(inner)
    assert isinstance(image, MediaBlock)
    assert (image.url, image.prompt_hint) == ("https://example.com/hat.png", "a hat")
    assert image.id is not None
    assert text == TextBlock("Nice?")
    assert isinstance(document, MediaBlock)
    assert (document.blob, document.mime) == (blob_name(b"letter"), "text/plain")


@pytest.mark.parametrize(
    ("hint", "role"),
    [
        (None, "user"),
        ("tool", "user"),
        ("user", "user"),
        ("assistant", "assistant"),
        ("system", "system"),
    ],
)
def test_the_role_of_text_follows_from_the_hint(hint: Any, role: str) -> None:
    """Which is recorded beside it, so that it can be told again."""
    payload = PartsPayload(parts=(TextPart(text="Hi"),))
    inner = recording(Message(policy="p", role_hint_for_llm=hint, payload=payload))
    assert (inner.role, inner.role_hint_for_llm) == (role, hint)


@pytest.mark.parametrize("hint", [None, "user", "assistant", "tool", "system"])
def test_the_role_of_a_call_and_a_result_follows_from_their_kind(hint: Any) -> None:
    """S1-3: a hint is never semantic."""
    call = OptionCallPayload(invocation_id="i1", option_name="o", arguments={"n": [1, None]})
    inner = recording(Message(policy="p", role_hint_for_llm=hint, payload=call))
    assert (inner.role, inner.role_hint_for_llm) == ("assistant", hint)
    assert inner.tool_calls == (ToolCallRecord("i1", "o", '{"n":[1,null]}', "pending"),)
    assert blocks_of(inner) == (ToolUseBlock("i1", "o", '{"n":[1,null]}'),)
    payload = OptionResultPayload(invocation_id="i1", option_name="o", result=1)
    inner = recording(Message(policy="o", role_hint_for_llm=hint, payload=payload))
    assert (inner.role, inner.role_hint_for_llm) == ("tool", hint)


@pytest.mark.parametrize(
    ("message", "content", "is_error"),
    [
        (result("as it is"), "as it is", False),
        (result({"b": 1, "a": [None]}), '{"b":1,"a":[null]}', False),
        (result(None), "null", False),
        (result(None, is_error=True, error_type="E", error_message="m"), "E: m", True),
        (result(None, is_error=True, error_type="E"), "E", True),
        (result(None, is_error=True, error_message="m"), "m", True),
        (result(None, is_error=True), "The option failed.", True),
        (result({"a": 1}, is_error=True, error_message="m"), "m", True),
    ],
)
def test_a_result_is_recorded_with_the_text_that_the_model_is_told(
    message: Message, content: str, is_error: bool
) -> None:
    """S1-9: text as it is, anything else as JSON, an error in its own words."""
    inner = recording(message)
    payload = message.option_result
    assert payload is not None
    assert (inner.content, inner.is_error, inner.value) == (content, is_error, payload.result)
    assert (inner.tool_call_id, inner.tool_name) == ("i1", "o")
    assert (inner.error_type, inner.error_message) == (payload.error_type, payload.error_message)
    assert blocks_of(inner) == (ToolResultBlock("i1", content, is_error),)


def test_new_messages_are_numbered_and_the_assistants_begin_a_turn() -> None:
    """S0-4: what the assistant says in one go is one reply, and its results share the turn."""
    builder = MessageBuilder.next_step(None, policy="planner").add_text("Hi")
    user = builder.to_message()
    builder.add_option_call("a").add_option_call("b")
    results = [OptionResultBuilder.response_to(call).success(1) for call in builder.option_calls]
    last = Message(policy="planner", role_hint_for_llm="assistant", payload=user.payload)
    inner = to_inner_messages(
        [user, *builder.option_calls, *results, last],
        evaluation_id="e1",
        sequence=3,
        turn=1,
        prompt_ns="shop",
        prompt_key="hats",
        clock=StandingClock(),
    )
    assert [(one.sequence, one.turn) for one in inner] == [
        (3, 1),
        (4, 2),
        (5, 2),
        (6, 2),
        (7, 2),
        (8, 3),
    ]
    assert {(one.prompt_ns, one.prompt_key) for one in inner} == {("shop", "hats")}
    assert {one.created_at for one in inner} == {BEGIN}
    assert [one.message_id for one in inner] == [UUID(int=number) for number in range(1, 7)]


def test_new_messages_need_an_evaluation() -> None:
    """A typed error says so."""
    with pytest.raises(InvalidInputError, match="evaluation_id="):
        to_inner_messages([result(1)])


# --- how records are read ----------------------------------------------------------


def test_text_and_calls_of_one_record_are_messages_of_their_own() -> None:
    """In the order of the record, all with its step."""
    calls = (
        ToolCallRecord("c1", "search", '{"q": "hats"}', "completed"),
        ToolCallRecord("c2", "buy", "{}", "failed"),
    )
    inner = plain("assistant", "One moment.", tool_calls=calls, policy="planner", step_num=4)
    text, first, second = from_inner_message(inner)
    assert text.text == "One moment."
    assert first.payload == OptionCallPayload(
        invocation_id="c1", option_name="search", arguments={"q": "hats"}
    )
    assert second.payload == OptionCallPayload(invocation_id="c2", option_name="buy", arguments={})
    assert {(one.policy, one.step_num) for one in (text, first, second)} == {("planner", 4)}
    assert first.record is not None
    assert second.record is not None
    assert (first.record.status, second.record.status) == ("completed", "failed")
    assert first.record.raw_arguments == '{"q": "hats"}'
    assert second.record.raw_arguments is None
    assert back(inner) == inner


@pytest.mark.parametrize(
    ("inner", "policy", "hint"),
    [
        (plain("system", "Be kind."), "system", "system"),
        (plain("user", "Hi"), "user", "user"),
        (plain("assistant", "Hello"), "assistant", "assistant"),
        (plain("tool", "3", tool_call_id="c1", tool_name="add"), "add", "tool"),
        (plain("tool", "3", tool_call_id="c1"), "runtime", "tool"),
    ],
)
def test_a_record_without_a_policy_is_read_as_its_roles(
    inner: InnerMessage, policy: str, hint: str
) -> None:
    """What a prompt's evaluation records has neither policy nor hint."""
    (message,) = from_inner_message(inner)
    assert (message.policy, message.role_hint_for_llm) == (policy, hint)
    assert back(inner) == inner


def test_a_tools_message_without_a_value_is_read_as_what_the_model_was_told() -> None:
    """A prompt's evaluation keeps the value elsewhere; an error is in words then too."""
    done = plain("tool", "It is sunny.", tool_call_id="c1", tool_name="weather")
    (message,) = from_inner_message(done)
    assert message.option_result is not None
    assert message.option_result.result == "It is sunny."
    failed = replace(done, content="It failed: no sky.", is_error=True)
    (message,) = from_inner_message(failed)
    assert message.option_result is not None
    assert (message.option_result.result, message.option_result.is_error) == (None, True)
    assert message.option_result.error_message == "It failed: no sky."
    assert (back(done), back(failed)) == (done, failed)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ('{ "a": 1 }', {"a": 1}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"a": "ha', {}),
        ("[1]", {}),
        ("NaN", {}),
        ('{"a":' + "[" * 100 + "]" * 100 + "}", {}),
    ],
)
def test_arguments_in_any_spelling_are_read_and_kept_as_they_were_written(
    text: str, arguments: Any
) -> None:
    """S1-8: what is no JSON object does not raise, and is no reason to lose it."""
    inner = plain("assistant", "", tool_calls=(ToolCallRecord("c1", "search", text),))
    (message,) = from_inner_message(inner)
    assert message.option_call is not None
    assert message.option_call.arguments == arguments
    assert message.record is not None
    assert message.record.raw_arguments == text
    assert back(inner) == inner


def test_media_at_an_odd_address_is_read_and_given_back() -> None:
    """An address in another spelling is media; what is no web address is named in words."""
    spelled = MediaContent("image", url="HTTPS://EXAMPLE.com", prompt_hint="a hat")
    local = MediaContent("audio", url="file:///tmp/tune.ogg", prompt_hint="a tune")
    inner = plain("user", "", parts=(spelled, local))
    (message,) = from_inner_message(inner)
    image, words = message.parts
    assert isinstance(image, MediaPart)
    assert str(image.url) == "https://example.com/"
    assert words == TextPart(text="[audio: a tune] file:///tmp/tune.ogg")
    assert back(inner) == inner


def test_a_message_that_was_read_equals_the_one_that_was_recorded() -> None:
    """S1-1: where a message stands is not what it says; without_record() leaves it out."""
    message = MessageBuilder.next_step(None).add_text("Hi").to_message()
    (read,) = from_inner_message(recording(message))
    assert message.record is None
    assert read.record is not None
    assert read == message
    assert "record" not in repr(read)
    assert read.without_record().record is None
    assert message.without_record() is message


# --- when a record still counts ----------------------------------------------------


def test_new_messages_are_numbered_after_those_that_were_recorded() -> None:
    """A conversation that is read and goes on."""
    before = plain("assistant", "Hello")
    new = MessageBuilder.next_step(None).add_text("Bye").to_message()
    first, second = to_inner_messages([*from_inner_message(before), new], evaluation_id="e1")
    assert first == before
    assert (second.sequence, second.turn, second.content) == (3, 1, "Bye")


@pytest.mark.parametrize("change", [{"a": 2}, {"a": True}, {"a": 1.0}])
def test_a_message_that_was_changed_is_a_new_one(change: Any) -> None:
    """It has an id of its own, and nothing of the record that is no longer true."""
    inner = plain("assistant", "", tool_calls=(ToolCallRecord("c1", "o", '{"a": 1}', "failed"),))
    (message,) = from_inner_message(inner)
    payload = OptionCallPayload(invocation_id="c1", option_name="o", arguments=change)
    changed = message.model_copy(update={"payload": payload})
    with pytest.raises(InvalidInputError, match="new or changed"):
        to_inner_messages([changed])
    (again,) = to_inner_messages([changed], evaluation_id="e1")
    assert again.message_id != inner.message_id
    (call,) = again.tool_calls
    assert call.status == "pending"
    assert from_inner_message(again) == (changed,)


def test_messages_of_a_record_of_which_some_are_missing_are_new_ones() -> None:
    """Half of a record under its id would be another message under the same id."""
    call = ToolCallRecord("c1", "o", "{")
    inner = plain("assistant", "One moment.", tool_calls=(call, replace(call, call_id="c2")))
    text, first, second = from_inner_message(inner)
    for some in ([text], [first], [text, second], [second, first, text]):
        again = to_inner_messages(some, evaluation_id="e1")
        assert [from_inner_message(one)[0] for one in again] == some
        assert inner.message_id not in {one.message_id for one in again}
    (alone,) = to_inner_messages([first], evaluation_id="e1")
    assert alone.tool_calls == (call,)


def test_messages_of_two_records_are_not_taken_for_one() -> None:
    """However well their places fit together."""
    call = (ToolCallRecord("c1", "o", "{}"),)
    one = plain("assistant", "One moment.", tool_calls=call)
    other = replace(one, message_id=UUID(int=8, version=4))
    mixed = [from_inner_message(one)[0], from_inner_message(other)[1]]
    assert len(to_inner_messages(mixed, evaluation_id="e1")) == 2


def test_messages_can_be_taken_into_another_evaluation() -> None:
    """They are new there, each by itself, and what a model wrote stays as it was written."""
    calls = (ToolCallRecord("c1", "o", '{ "a": 1 }', "completed"),)
    inner = plain("assistant", "One moment.", tool_calls=calls)
    read = from_inner_message(inner)
    text, call = to_inner_messages(read, evaluation_id="e2")
    assert (text.evaluation_id, text.sequence, call.sequence) == ("e2", 0, 1)
    assert inner.message_id not in {text.message_id, call.message_id}
    assert call.tool_calls == (ToolCallRecord("c1", "o", '{ "a": 1 }', "pending"),)
    assert (*from_inner_message(text), *from_inner_message(call)) == read


def test_a_record_that_can_not_be_read_is_a_typed_error() -> None:
    """Messages that come as JSON may hold anything."""
    (message,) = from_inner_message(plain("user", "Hi"))
    assert message.record is not None
    for broken in ("{", '{"role":"king"}'):
        record = message.record.model_copy(update={"unsaid": broken})
        with pytest.raises(InvalidInputError, match="without_record"):
            to_inner_messages([message.model_copy(update={"record": record})])
