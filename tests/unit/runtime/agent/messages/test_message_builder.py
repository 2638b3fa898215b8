"""Building messages and results: what is filled in, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from msgspec.structs import replace
from pydantic import HttpUrl

from tests.unit.runtime.clocks import StandingClock
from turnledger.ledger import NEW, InvalidInputError, Ledger, MessageAppended, blob_name, new_run_id
from turnledger.runtime import DataEncodeError, DeadlineExceededError, ThrottledError
from turnledger.runtime.agent.messages.builder import MessageBuilder, MessageBuildError
from turnledger.runtime.agent.messages.convert import from_inner_messages, to_inner_messages
from turnledger.runtime.agent.messages.message import MediaPart, Message, PartsPayload, TextPart
from turnledger.runtime.agent.messages.results import (
    NotAnOptionCallError,
    OptionMismatchError,
    OptionResultBuilder,
    run_option,
)

URL = "https://example.com/hat.png"


def said(policy: str = "planner", step_num: int | None = 4, hint: Any = "assistant") -> Message:
    payload = PartsPayload(parts=(TextPart(text="Let me see."),))
    return Message(policy=policy, role_hint_for_llm=hint, step_num=step_num, payload=payload)


def called(arguments: Any = None) -> Message:
    builder = MessageBuilder.continue_step(said(), clock=StandingClock())
    return builder.add_option_call("search_web", arguments or {"query": "hats"}).last_option_call


@pytest.mark.parametrize(
    ("last", "following", "same"),
    [
        (None, 1, None),
        (0, 1, 0),
        (7, 8, 7),
        (said(step_num=4), 5, 4),
        (said(step_num=None), 1, None),
    ],
)
def test_a_step_is_continued_or_followed_by_the_next(last: Any, following: int, same: Any) -> None:
    """S1-11: of a message, a number or nothing; the first step is 1."""
    assert MessageBuilder.next_step(last).add_text("a").to_message().step_num == following
    assert MessageBuilder.continue_step(last).add_text("a").to_message().step_num == same
    call = MessageBuilder.next_step(last).add_option_call("o").last_option_call
    assert call.step_num == following


@pytest.mark.parametrize("wrong", ["1", True, 1.5, object()])
def test_what_is_no_step_can_not_be_followed(wrong: Any) -> None:
    """S1-11: a typed error says what to hand over."""
    with pytest.raises(MessageBuildError, match="expected a Message, an integer or None"):
        MessageBuilder.next_step(wrong)
    with pytest.raises(MessageBuildError, match="expected a Message, an integer or None"):
        MessageBuilder.continue_step(wrong)


def test_all_media_and_text_become_one_message_in_order() -> None:
    """S1-12: every modality, with its label and address."""
    builder = MessageBuilder.next_step(None)
    builder.add_text("Look:").add_image("a hat", URL).add_audio("a tune", URL, mime="audio/ogg")
    builder.add_video("a film", HttpUrl(URL)).add_document("a letter", URL).add_text("Well?")
    message = builder.to_message()
    assert message.text == "Look:\n\nWell?"
    media = [part for part in message.parts if isinstance(part, MediaPart)]
    assert [part.modality for part in media] == ["image", "audio", "video", "document"]
    assert [part.prompt_hint for part in media] == ["a hat", "a tune", "a film", "a letter"]
    assert [part.mime for part in media] == [None, "audio/ogg", None, None]
    assert {str(part.url) for part in media} == {URL}
    assert builder.to_message() == message
    assert builder.blobs == {}


def test_nothing_to_build_is_an_error() -> None:
    """S1-12: option calls are no text, and the error says where they are."""
    builder = MessageBuilder.next_step(None)
    with pytest.raises(MessageBuildError, match="message is empty"):
        builder.to_message()
    builder.add_option_call("search_web", {})
    with pytest.raises(MessageBuildError, match="option_calls"):
        builder.to_message()


def test_a_builder_without_calls_has_no_last_one() -> None:
    """S1-12: a typed error, and an empty tuple of calls."""
    builder = MessageBuilder.next_step(None).add_text("a")
    assert builder.option_calls == ()
    with pytest.raises(MessageBuildError, match="add_option_call"):
        _ = builder.last_option_call


def test_bytes_are_named_in_the_message_and_kept_beside_it() -> None:
    """X26: the ledger takes both together, and gives both back."""
    png = b"\x89PNG..."
    builder = MessageBuilder.next_step(None)
    message = builder.add_image("a hat", data=png, mime="image/png").to_message()
    (part,) = message.parts
    assert isinstance(part, MediaPart)
    assert (part.url, part.blob, part.mime) == (None, blob_name(png), "image/png")
    assert builder.blobs == {blob_name(png): png}
    with Ledger.open("memory://") as ledger:
        run_id = new_run_id()
        (inner,) = to_inner_messages([message], evaluation_id="e1")
        ledger.append(run_id, MessageAppended(message=inner), NEW, blobs=builder.blobs.values())
        assert ledger.blob(part.blob or "") == png


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "exactly one of url and data"),
        ({"url": URL, "data": b"x"}, "exactly one of url and data"),
        ({"url": "hat.png"}, "add_image: url"),
        ({"data": "text"}, "expected bytes, got str"),
        ({"url": URL, "prompt_hint": "\ud800"}, "surrogate"),
    ],
)
def test_media_that_is_nowhere_is_refused_and_leaves_the_builder_as_it_was(
    arguments: Any, reason: str
) -> None:
    """S1-12, X26: a typed error that is a ValueError too."""
    builder = MessageBuilder.next_step(None).add_text("a")
    with pytest.raises(MessageBuildError, match=reason) as caught:
        builder.add_image(**arguments)
    assert isinstance(caught.value, InvalidInputError)
    assert isinstance(caught.value, ValueError)
    assert builder.to_message().parts == (TextPart(text="a"),)
    assert builder.blobs == {}


def test_media_ids_are_the_same_when_the_same_is_built_again() -> None:
    """S1-14: they follow from what is shown, and the same thing shown twice has two."""

    def ids() -> list[str | None]:
        builder = MessageBuilder.next_step(None).add_image("a hat", URL).add_image("again", URL)
        builder.add_video("a hat that moves", URL).add_image("bytes", data=b"x")
        return [part.id for part in builder.to_message().parts if isinstance(part, MediaPart)]

    assert ids() == ids()
    assert len(set(ids())) == 4
    first, second, film, _ = ids()
    assert second == f"{first}-2"
    assert not str(film).startswith(str(first))


def test_every_option_call_is_kept_as_a_message_of_its_own_with_an_id_of_its_own() -> None:
    """S1-14: in the order in which they were added; none is in the parts message."""
    builder = MessageBuilder.continue_step(said()).add_text("Both at once.")
    for query in ("hats", "hats", "dresses"):
        builder.add_option_call("search_web", {"query": query})
    calls = [call.option_call for call in builder.option_calls]
    assert [call.arguments for call in calls if call] == [
        {"query": "hats"},
        {"query": "hats"},
        {"query": "dresses"},
    ]
    assert len({call.invocation_id for call in calls if call}) == 3
    assert builder.last_option_call is builder.option_calls[-1]
    assert builder.to_message().parts == (TextPart(text="Both at once."),)


def test_ids_come_from_the_clock_that_is_handed_in() -> None:
    """S1-14: so that a test, or a replay, has the same ids every time."""
    assert called() == called()
    made = MessageBuilder.next_step(None).add_option_call("o").last_option_call
    assert made != MessageBuilder.next_step(None).add_option_call("o").last_option_call


@pytest.mark.parametrize(
    ("last", "given", "policy", "hint"),
    [
        (None, {}, "user", "user"),
        (3, {}, "user", "user"),
        (said(), {}, "planner", "assistant"),
        (said(hint=None), {}, "planner", None),
        (said(), {"policy": "critic"}, "critic", "assistant"),
        (said(), {"role_hint_for_llm": None}, "planner", None),
        (None, {"policy": "critic", "role_hint_for_llm": "system"}, "critic", "system"),
    ],
)
def test_policy_and_role_hint_are_the_last_messages_unless_given(
    last: Any, given: Any, policy: str, hint: Any
) -> None:
    """S1-14: else "user" and "user"; an option call is the assistant's, by the same policy."""
    for begin in (MessageBuilder.next_step, MessageBuilder.continue_step):
        builder = begin(last, **given).add_text("a").add_option_call("o")
        message, call = builder.to_message(), builder.last_option_call
        assert (message.policy, message.role_hint_for_llm) == (policy, hint)
        assert (call.policy, call.role_hint_for_llm) == (policy, "assistant")


def test_an_option_can_not_have_a_reserved_name() -> None:
    """S1-2: its results would look like the runtime's."""
    for name in ("runtime", "executor"):
        with pytest.raises(MessageBuildError, match="reserved for results of the runtime"):
            MessageBuilder.next_step(None).add_option_call(name, {})


def test_arguments_of_a_program_become_json_and_what_can_not_be_is_refused() -> None:
    """S1-12: with a typed error that names the place."""

    @dataclass
    class Query:
        words: tuple[str, ...]

    call = called({"query": Query(("a", "b"))}).option_call
    assert call is not None
    assert call.arguments == {"query": {"words": ["a", "b"]}}
    with pytest.raises(DataEncodeError, match=r"x\[1\]"):
        called({"x": [1, object()]})
    with pytest.raises(MessageBuildError, match="arguments"):
        called([1])


# --- results -----------------------------------------------------------------------


def test_a_result_has_its_calls_id_name_and_step() -> None:
    """S1-13, S1-2: its policy is the option that ran, its role hint "tool"."""
    call = called()
    message = OptionResultBuilder.response_to(call).success([1, None])
    result = message.option_result
    assert result is not None
    assert call.option_call is not None
    assert result.invocation_id == call.option_call.invocation_id
    assert (result.option_name, message.step_num) == ("search_web", 4)
    assert (message.policy, message.role_hint_for_llm) == ("search_web", "tool")
    assert (result.result, result.is_error, result.error_type) == ([1, None], False, None)


def test_an_error_is_a_result_that_says_what_went_wrong() -> None:
    """S1-13: it is not worth another try unless that is said."""
    builder = OptionResultBuilder.response_to(called())
    message = builder.error("Timeout", "too slow")
    result = message.option_result
    assert result is not None
    assert (result.is_error, result.result) == (True, None)
    assert (result.error_type, result.error_message, result.retryable) == (
        "Timeout",
        "too slow",
        False,
    )
    assert message.policy == "search_web"
    again = builder.error("Timeout", "too slow", retryable=True).option_result
    assert again is not None
    assert again.retryable is True


def test_an_error_of_the_runtime_is_under_a_reserved_name() -> None:
    """S1-2: still the call's result, by its id and name."""
    builder = OptionResultBuilder.response_to(called())
    first = builder.runtime_error("Cancelled", "the run was stopped")
    second = builder.runtime_error("Lost", "the worker died", True, policy="executor")
    assert (first.policy, second.policy) == ("runtime", "executor")
    assert first.option_result is not None
    assert first.option_result.option_name == "search_web"
    with pytest.raises(MessageBuildError, match="'runtime' or 'executor'"):
        builder.runtime_error("E", "m", policy="search_web")  # type: ignore[arg-type]


def test_setting_another_id_or_name_raises() -> None:
    """S1-13: setting the same is harmless, and the builder goes on with the call's."""
    builder = OptionResultBuilder.response_to(called())
    builder.invocation_id, builder.option_name = builder.invocation_id, "search_web"
    before = builder.success(1)
    with pytest.raises(OptionMismatchError, match="another") as caught:
        builder.invocation_id = "another"
    assert (caught.value.field, caught.value.found) == ("invocation_id", "another")
    with pytest.raises(OptionMismatchError, match=r"'another'.*'search_web'"):
        builder.option_name = "another"
    assert builder.success(1) == before
    assert issubclass(OptionMismatchError, InvalidInputError)


@pytest.mark.parametrize(
    "wrong", [said(), OptionResultBuilder.response_to(called()).success(1), None, "call"]
)
def test_only_an_option_call_has_a_result(wrong: Any) -> None:
    """S1-13: anything else is a typed error that says what was found."""
    with pytest.raises(NotAnOptionCallError, match="last_option_call"):
        OptionResultBuilder.response_to(wrong)


# --- running -----------------------------------------------------------------------


class Search(pydantic.BaseModel):
    query: str
    limit: int = 3


@dataclass
class SearchDataclass:
    query: str


class Spy:
    """An option that notes how it was called."""

    def __init__(self, returns: Any = None) -> None:
        self.calls: list[Any] = []
        self.returns = returns

    def __call__(self, arguments: Any) -> Any:
        self.calls.append(arguments)
        if isinstance(self.returns, BaseException):
            raise self.returns
        return self.returns


@pytest.mark.parametrize("arguments", [{"query": 3}, {}, {"query": "a", "limit": "many"}])
def test_bad_arguments_become_an_error_and_the_option_is_not_invoked(arguments: Any) -> None:
    """S1-10: the error names the field, is the runtime's, and is worth another try."""
    option = Spy()
    builder = MessageBuilder.next_step(None).add_option_call("search_web", arguments)
    message = run_option(builder.last_option_call, option, arguments_type=Search)
    assert option.calls == []
    result = message.option_result
    assert result is not None
    assert (result.is_error, result.error_type, result.retryable) == (
        True,
        "InvalidArguments",
        True,
    )
    assert message.policy == "runtime"
    assert "limit" in (result.error_message or "") or "query" in (result.error_message or "")


def test_a_call_whose_text_was_no_json_is_not_run_with_empty_arguments() -> None:
    """S1-10: read from a ledger its arguments are {}, and the option would take them."""
    (recorded,) = to_inner_messages([called()], evaluation_id="e1")
    broken = replace(recorded.tool_calls[0], arguments='{"query": "ha')
    (call,) = from_inner_messages([replace(recorded, tool_calls=(broken,))])
    option = Spy()
    result = run_option(call, option).option_result
    assert option.calls == []
    assert result is not None
    assert result.error_type == "InvalidArguments"


def test_good_arguments_reach_the_option_as_a_value_of_its_type() -> None:
    """S1-10: or as a dict that it may change; the call's stays as it was."""
    call = called({"query": "hats"})
    option = Spy(returns=Search(query="found"))
    message = run_option(call, option, arguments_type=Search)
    run_option(call, option, arguments_type=SearchDataclass)
    run_option(call, option)
    assert option.calls == [Search(query="hats"), SearchDataclass("hats"), {"query": "hats"}]
    option.calls[2]["query"] = "changed"
    assert call.option_call is not None
    assert call.option_call.arguments == {"query": "hats"}
    assert message.option_result is not None
    assert message.option_result.result == {"query": "found", "limit": 3}
    assert message.policy == "search_web"


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("raised", "said_by", "retryable"),
    [
        (KeyError("hat"), "'hat'", False),
        (ThrottledError("slow down"), "slow down", True),
        (ValueError("half \ud800"), "half ?", False),
        (SilentError(), "(it can't say why)", False),
    ],
)
def test_an_exception_of_the_option_is_its_error(
    raised: Exception, said_by: str, retryable: bool
) -> None:
    """S1-10: in words that can be stored."""
    message = run_option(called(), Spy(returns=raised))
    result = message.option_result
    assert result is not None
    assert (result.is_error, result.error_type) == (True, type(raised).__name__)
    assert (result.error_message, result.retryable) == (said_by, retryable)
    assert message.policy == "search_web"


def test_a_result_that_is_no_json_is_an_error() -> None:
    """S1-10: there is always a result."""
    result = run_option(called(), Spy(returns={"a": object()})).option_result
    assert result is not None
    assert (result.is_error, result.error_type) == (True, "InvalidResult")
    assert "object" in (result.error_message or "")


def test_what_has_to_end_the_evaluation_passes_an_option() -> None:
    """S1-10, S4-15: time is up, or an interrupt; and what is no call is not run."""
    for error in (DeadlineExceededError(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            run_option(called(), Spy(returns=error))
    option = Spy()
    with pytest.raises(NotAnOptionCallError):
        run_option(said(), option)
    assert option.calls == []
