"""What only the strict server for Chat Completions does: choices, refusals, the end of a stream."""

from __future__ import annotations

from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_chat_cases import SAID, TOOL, asks
from tests.servers.openai_shared import call_id
from tests.servers.sdks import Chat, connected
from tests.servers.serving import Answer, Asked, Call

SEVERAL = Answer("the first", others=("the second", "a third that is longer"))


def test_a_whole_reply() -> None:
    """A reply has what OpenAI's has: id, object, model, and calls with ids."""
    with connected(Chat, Answer("I look", (Call("weather", '{"a": 1}'),))) as sdk:
        completion = sdk.reply()
    assert completion.id.startswith("chatcmpl-")
    assert (completion.object, completion.model) == ("chat.completion", "gpt-test")
    (choice,) = completion.choices
    assert choice.message.content == "I look"
    assert choice.message.tool_calls[0].id == call_id(1, 0)


def test_a_refusal_has_no_content_and_goes_back() -> None:
    """A refusal stands beside a content that is null, and is taken as a turn."""
    with connected(Chat, Answer(refusal="no"), Answer("done")) as sdk:
        reply = sdk.reply(SAID)
        message = reply.choices[0].message
        assert (message.content, message.refusal) == (None, "no")
        assert sdk.text(sdk.reply(SAID, *sdk.following(reply), tools=[TOOL])) == "done"


def test_other_choices_come_after_the_first() -> None:
    """Other choices have their own index, and come although one was asked for."""
    with connected(Chat, SEVERAL) as sdk:
        choices, chunks = sdk.reply().choices, sdk.events()
    assert [(choice.index, choice.message.content) for choice in choices] == [
        *enumerate([SEVERAL.text, *SEVERAL.others])
    ]
    assert [chunk.choices[0].index for chunk in chunks][:4] == [0, 1, 2, 0]


def test_a_stream_comes_in_pieces() -> None:
    """Words and arguments come in several chunks, a role first and the reason last."""
    with connected(Chat, Answer("a longer text", (Call("weather", '{"city": "Bern"}'),))) as sdk:
        chunks = sdk.events()
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert sum(bool(delta.content) for delta in deltas) > 2
    assert sum(bool(delta.tool_calls) for delta in deltas) > 3
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "tool_calls"]
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_of_a_stream_is_asked_for() -> None:
    """Usage comes in a chunk without choices, and only to those who asked for it."""
    with connected(Chat) as sdk:
        *chunks, last = sdk.events(stream_options={"include_usage": True})
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert (last.choices, last.usage.total_tokens) == ([], 18)


def test_a_stream_ends_with_a_word() -> None:
    """The last event of a stream is [DONE]."""
    events = OpenAIChat().stream(Asked(1, 1, asks(stream=True), "", True), Answer("a"))
    assert events[-1] == b"data: [DONE]\n\n"


def test_a_named_call_ends_with_stop() -> None:
    """The reason of a call that the request named is `stop`, as OpenAI gives it."""
    choice = {"type": "function", "function": {"name": "weather"}}
    with connected(Chat, Answer(calls=(Call("weather"),))) as sdk:
        assert sdk.finish(sdk.reply(tools=[TOOL], tool_choice=choice)) == "stop"
