"""Gemini's format by itself: what a conversation looks like in it, and what is read from answers.

Nothing is sent here. That the strict server takes what is written is in test_gemini_adapter.py.
"""

from __future__ import annotations

from base64 import b64decode
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.gemini_rules import check_rules
from tests.servers.gemini_shapes import shaped
from turnledger.adapters.providers.gemini.contents import GeminiContents
from turnledger.adapters.providers.gemini.signatures import NO_SIGNATURE
from turnledger.adapters.providers.gemini.stream import GeminiStream
from turnledger.adapters.providers.media import UnsupportedMediaError
from turnledger.adapters.providers.retry import InterruptedStreamError
from turnledger.ledger import TokenUsage
from turnledger.projections import (
    ChatTurn,
    MediaBlock,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.runtime import Reply, Request, ToolCall

PNG = b"\x89PNG\r\n\x1a\n\xff\xfe\xfb"
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA}}
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA},
}


def request_of(history: MessageHistory, **more: Any) -> Request:
    return Request(
        evaluation_id="e", turn=1, prompt_name="p", system=history.system, history=history, **more
    )


def encoded(history: MessageHistory, model: str = "gemini-3-pro", **more: Any) -> dict[str, Any]:
    return GeminiContents(model=model).encode(request_of(history, **more))


def contents(history: MessageHistory, model: str = "gemini-3-pro", **more: Any) -> list[Any]:
    found: list[Any] = encoded(history, model, **more)["contents"]
    return found


def asked(*calls: ToolUseBlock, text: str = "") -> MessageHistory:
    """A conversation whose last turn is the assistant's."""
    said = (TextBlock(text),) if text else ()
    return MessageHistory.new("Be brief.").add_user_text("Go.").add_assistant(*said, *calls)


def call(call_id: str = "c1", name: str = "add", arguments: str = '{"n": 1}') -> ToolUseBlock:
    return ToolUseBlock(call_id, name, arguments)


def part(name: str = "add", **more: Any) -> dict[str, Any]:
    """A call as Gemini makes it."""
    return {"functionCall": {"name": name, "args": {"n": 1}}, **more}


def answer(*parts: Any, finish: str | None = "STOP", **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **more}


def decoded(*parts: Any, **more: Any) -> Reply:
    return GeminiContents().decode(answer(*parts, **more))


def sent_back(reply: Reply, model: str = "gemini-3-pro", turn: ChatTurn | None = None) -> list[Any]:
    """The parts of a reply's turn in the next request; its calls have ids of the loop's."""
    text = (TextBlock(reply.text),) if reply.text else ()
    uses = tuple(
        ToolUseBlock(one.call_id or f"loop_{at}", one.name, one.arguments)
        for at, one in enumerate(reply.tool_calls)
    )
    turn = turn or ChatTurn("assistant", (*text, *uses))
    history = MessageHistory.new().add_user_text("Go.").add(turn)
    parts: list[Any] = contents(history, model, provider_data={2: reply.provider_data})[1]["parts"]
    return parts


# --- requests ------------------------------------------------------------------------------


def test_a_request_is_spelled_as_the_rest_api_spells_it() -> None:
    """System text, tools and choice stand beside the contents; calls and results have names."""
    history = asked(call(), text="Adding.").add_user(ToolResultBlock("c1", "2"))
    assert encoded(history, "gemini-2.5-flash", tools=(TOOL,)) == {
        "contents": [
            {"role": "user", "parts": [{"text": "Go."}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Adding."},
                    {"functionCall": {"name": "add", "args": {"n": 1}}},
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "add", "response": {"output": "2"}}}],
            },
        ],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "add", "description": "Adds.", "parametersJsonSchema": SCHEMA}
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    }


def test_what_is_empty_is_left_out() -> None:
    """Without system text, tools and options there are only the contents."""
    assert encoded(MessageHistory.new().add_user_text("Go.")).keys() == {"contents"}


def test_the_turn_that_nobody_said_is_sent() -> None:
    """X18: Gemini wants a user before it calls a function."""
    history = MessageHistory.new("Go.", synthetic_lead=True).add_assistant(call())
    assert [one["role"] for one in contents(history)] == ["user", "model", "user"]


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (
            {"type": "function", "function": {"name": "add"}},
            {"mode": "ANY", "allowedFunctionNames": ["add"]},
        ),
    ],
)
def test_a_tool_choice_is_a_function_calling_mode(choice: Any, config: Any) -> None:
    """One forced tool is any of a list of one."""
    history = MessageHistory.new().add_user_text("Go.")
    payload = encoded(history, tools=(TOOL,), tool_choice=choice)
    assert payload["toolConfig"] == {"functionCallingConfig": config}


def test_an_unknown_tool_choice_is_refused() -> None:
    """A word that means nothing is not sent."""
    with pytest.raises(ValueError, match="'sometimes'"):
        encoded(MessageHistory.new(), tools=(TOOL,), tool_choice="sometimes")


def test_a_tool_whose_name_gemini_refuses_is_an_error_that_says_so() -> None:
    """A declared name can't be changed: nobody would know which tool a call of it means."""
    tool = {**TOOL, "function": {**TOOL["function"], "name": "2nd"}}  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'2nd': a name begins with a letter"):
        encoded(MessageHistory.new(), tools=(tool,))


@pytest.mark.parametrize(
    ("name", "sent"), [("look up!", "look_up_"), ("9lives", "_9lives"), ("a.b-c", "a.b-c")]
)
def test_a_name_that_a_model_made_up_is_made_fit(name: str, sent: str) -> None:
    """The call and its result have the same name, whatever that was."""
    history = asked(call(name=name)).add_user(ToolResultBlock("c1", "no", is_error=True))
    _, model, user = contents(history)
    assert model["parts"][0]["functionCall"]["name"] == sent
    assert user["parts"] == [{"functionResponse": {"name": sent, "response": {"error": "no"}}}]


def test_results_come_first_and_in_the_order_of_their_calls() -> None:
    """However they came in, and whatever else the user said before them."""
    history = asked(call("a", "one"), call("b", "two")).add_user(
        TextBlock("Well?"), ToolResultBlock("b", "2"), ToolResultBlock("a", "1")
    )
    parts = contents(history)[2]["parts"]
    assert [one.get("functionResponse", {}).get("name") for one in parts] == ["one", "two", None]


def test_arguments_that_are_no_object_are_sent_in_one() -> None:
    """A model of another provider may have written anything."""
    history = asked(call(arguments="[1"))
    args = contents(history)[1]["parts"][0]["functionCall"]["args"]
    assert args == {"unreadable_arguments": "[1"}


def test_options_are_fields_of_the_request_or_of_its_generation_config() -> None:
    """What the caller adds goes where the REST API has it, and takes nothing away."""
    options = {
        "temperature": 0,
        "thinking_config": {"thinkingLevel": "LOW"},
        "generationConfig": {"seed": 7},
        "tools": [{"googleSearch": {}}],
        "safety_settings": [],
    }
    history = MessageHistory.new().add_user_text("Go.")
    payload = encoded(history, options=options, tools=(TOOL,), response_format=FORMAT)
    assert payload["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
        "temperature": 0,
        "thinkingConfig": {"thinkingLevel": "LOW"},
        "seed": 7,
    }
    assert [list(one) for one in payload["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert payload["safetySettings"] == []


@pytest.mark.parametrize(
    ("model", "tools", "native"),
    [
        ("gemini-3-pro-preview", (TOOL,), True),
        ("gemini-4-flash", (TOOL,), True),
        ("gemini-flash-latest", (TOOL,), True),
        ("gemini-2.5-flash", (), True),
        ("gemini-2.5-flash", (TOOL,), False),
        ("models/gemini-1.5-pro-002", (TOOL,), False),
        ("publishers/google/models/gemini-live-2.5-flash", (TOOL,), False),
    ],
)
def test_a_schema_is_enforced_or_asked_for(model: str, tools: Any, native: bool) -> None:
    """Models before Gemini 3 refuse a JSON type beside functions: they are told the schema."""
    history = MessageHistory.new("Be brief.").add_user_text("Go.")
    payload = encoded(history, model, tools=tools, response_format=FORMAT)
    said = payload["systemInstruction"]["parts"][0]["text"]
    assert ("responseJsonSchema" in payload.get("generationConfig", {})) is native
    assert ('"total"' in said) is not native
    assert said.startswith("Be brief.")


# --- media -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "sent"),
    [
        (MediaBlock("image", url="https://x.org/a.PNG?b=c.gif"), "image/png"),
        (MediaBlock("image", url="https://x.org/a"), "image/jpeg"),
        (MediaBlock("audio", url="https://x.org/a.wav"), "audio/wav"),
        (MediaBlock("video", url="https://www.youtube.com/watch?v=x"), "video/mp4"),
        (MediaBlock("video", url="gs://films/a.mov"), "video/quicktime"),
        (MediaBlock("document", url="https://x.org/a.csv"), "text/csv"),
        (MediaBlock("document", url="https://x.org/a"), "application/pdf"),
        (MediaBlock("image", url="https://x.org/a.png", mime="image/heic"), "image/heic"),
    ],
)
def test_media_at_a_url_is_sent_with_a_type(block: MediaBlock, sent: str) -> None:
    """Gemini wants to be told: by the caller, the URL's ending, or what is usual."""
    parts = contents(MessageHistory.new().add_user(block))[0]["parts"]
    assert parts == [
        {"text": "Media 1:"},
        {"fileData": {"mimeType": sent, "fileUri": block.url}},
    ]


def test_bytes_are_sent_as_base64_after_their_label() -> None:
    """S1-15: every piece of media has its number and its hint before it."""
    history = MessageHistory.new().add_user(
        TextBlock("Look."), MediaBlock("image", blob="b1", prompt_hint="A cat.")
    )
    parts = contents(history, blob=lambda name: PNG)[0]["parts"]
    assert parts[:2] == [{"text": "Look."}, {"text": "Media 1: A cat."}]
    assert parts[2]["inlineData"]["mimeType"] == "image/png"
    assert b64decode(parts[2]["inlineData"]["data"]) == PNG


def test_an_image_of_a_type_that_gemini_refuses_is_not_sent() -> None:
    """It is an error before anything is sent, or a line of text if that is wanted."""
    history = MessageHistory.new().add_user(MediaBlock("image", blob="b1"))
    request = request_of(history, blob=lambda name: b"GIF89a")
    with pytest.raises(UnsupportedMediaError, match="image/gif"):
        GeminiContents().encode(request)
    hinting = GeminiContents(unsupported_media="hint").encode(request)
    assert [list(one) for one in hinting["contents"][0]["parts"]] == [["text"]]


def test_media_that_the_model_itself_showed_is_told_as_text() -> None:
    """In the model's turns there are texts and calls only."""
    history = asked().add_assistant(MediaBlock("image", url="https://x.org/a.png"))
    (shown,) = contents(history)[1]["parts"]
    assert shown == {"text": "Media 1: (image at https://x.org/a.png)"}


# --- signatures and ids ------------------------------------------------------------------


def test_signatures_go_back_with_the_parts_that_they_came_with() -> None:
    """Parts keep their order and bounds; thoughts go back only where they are signed."""
    parts = (
        {"text": "Hm.", "thought": True},
        {"text": "So.", "thought": True, "thoughtSignature": "czA="},
        {"text": "First", "thoughtSignature": "czE="},
        {"text": " this."},
        part(thoughtSignature="czI="),
        part("other"),
        {"text": "", "thoughtSignature": "czM="},
    )
    reply = decoded(*parts)
    assert reply.text == "First this."
    assert sent_back(reply) == list(parts[1:])


def test_a_reply_without_signatures_and_ids_keeps_nothing() -> None:
    """The turn itself says it all."""
    assert decoded({"text": "Hm.", "thought": True}, {"text": "Yes."}).provider_data is None


@pytest.mark.parametrize(
    "turn",
    [
        ChatTurn("assistant", (TextBlock("More."), call())),
        ChatTurn("assistant", (call(), call("c2"))),
        ChatTurn("assistant", (call(arguments='{"n":2}'),)),
        ChatTurn("assistant", (call(), MediaBlock("image", url="https://x.org/a.png"))),
    ],
)
def test_a_turn_that_is_not_what_the_reply_was_is_not_signed(turn: ChatTurn) -> None:
    """A signature stands for what was said: nothing else bears it."""
    reply = decoded(part(thoughtSignature="czA="))
    sent = sent_back(reply, "gemini-2.5-flash", turn)
    assert not any("thoughtSignature" in one for one in sent)


def test_blanks_beside_a_call_do_not_cost_its_signature() -> None:
    """A history leaves out text that nobody can see; the reply is still the same."""
    reply = decoded({"text": "\n"}, part(thoughtSignature="czA="))
    assert sent_back(reply) == [part(thoughtSignature="czA=")]


@pytest.mark.parametrize(
    ("model", "signed"),
    [("gemini-3-pro", True), ("gemini-flash-latest", True), ("gemini-2.5-pro", False)],
)
def test_calls_of_other_providers_bear_the_signature_that_stands_for_none(
    model: str, signed: bool
) -> None:
    """Gemini 3 refuses a first call that bears none; its older models never asked for one."""
    first, second = contents(asked(call("toolu_1"), call("toolu_2")), model)[1]["parts"]
    assert first.get("thoughtSignature") == (NO_SIGNATURE if signed else None)
    assert "thoughtSignature" not in second


def test_ids_that_gemini_gave_go_back_with_calls_and_results() -> None:
    """And only those: an id of the loop's own is never sent."""
    with_id = {"functionCall": {"id": "g1", "name": "add", "args": {}}}
    reply = decoded(with_id, part())
    assert [one.call_id for one in reply.tool_calls] == ["g1", ""]
    uses = (ToolUseBlock("g1", "add", "{}"), ToolUseBlock("loop", "add", '{"n":1}'))
    history = asked(*uses).add_user(ToolResultBlock("g1", "1"), ToolResultBlock("loop", "2"))
    _, model, user = contents(history, provider_data={2: reply.provider_data})
    assert [one["functionCall"].get("id") for one in model["parts"]] == ["g1", None]
    assert [one["functionResponse"].get("id") for one in user["parts"]] == ["g1", None]


def test_ids_of_other_providers_are_not_sent() -> None:
    """Gemini knows nothing of them."""
    history = asked(call("toolu_1")).add_user(ToolResultBlock("toolu_1", "1"))
    _, model, user = contents(history)
    assert "id" not in model["parts"][0]["functionCall"]
    assert "id" not in user["parts"][0]["functionResponse"]


# --- answers -----------------------------------------------------------------------------------


def test_an_answer_is_text_calls_and_what_they_cost() -> None:
    """Thoughts are no text; they count as output, and by themselves."""
    usage = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 2,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 3,
    }
    reply = decoded(
        {"text": "Hm.", "thought": True},
        {"text": "Wait"},
        {"text": "."},
        {"functionCall": {"name": "add", "args": {"b": None, "a": [1.5, "é"]}}},
        {"functionCall": {"name": "stop"}},
        usageMetadata=usage,
        modelVersion="gemini-3-pro-001",
    )
    assert reply.text == "Wait."
    assert reply.tool_calls == (
        ToolCall("", "add", '{"b":null,"a":[1.5,"é"]}'),
        ToolCall("", "stop", "{}"),
    )
    assert reply.usage == TokenUsage(
        input_tokens=12, output_tokens=8, cached_tokens=4, reasoning_tokens=3
    )
    assert (reply.model, reply.finish_reason) == ("gemini-3-pro-001", "STOP")
    assert reply.payload is not None
    assert reply.payload["modelVersion"] == "gemini-3-pro-001"


def test_the_first_candidate_is_the_answer() -> None:
    """S4-7: others are not looked at."""
    first, second = answer({"text": "One."}), answer({"text": "Two."})
    both = {"candidates": first["candidates"] + second["candidates"]}
    assert GeminiContents().decode(both).text == "One."


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "the prompt was blocked: SAFETY"),
        ({}, "no candidates"),
        ({"candidates": [{"finishReason": "SAFETY", "finishMessage": "No."}]}, "SAFETY, No."),
        ({"candidates": [{"content": {}, "finishReason": "MAX_TOKENS"}]}, "MAX_TOKENS"),
        ("what?", "not a Gemini response but str"),
    ],
)
def test_an_answer_that_is_none_says_why(raw: Any, said: str) -> None:
    """What Google gives as the reason is in the error."""
    with pytest.raises(ValueError, match=said):
        GeminiContents().decode(raw)


def test_text_that_was_cut_off_for_safety_is_a_refusal() -> None:
    """What was said stays; the reason tells that it is not all."""
    reply = decoded({"text": "Once upon"}, finish="SAFETY")
    assert (reply.text, reply.finish_reason) == ("Once upon", "refusal")


# --- streams -----------------------------------------------------------------------------------


def streamed(*chunks: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    heard: list[str] = []
    stream = GeminiStream(heard.append)
    for chunk in chunks:
        stream.add(chunk)
    return stream.whole(), heard


def test_chunks_make_the_answer_that_it_would_have_been() -> None:
    """Texts grow together up to one that is signed; usage is the last that was told."""
    whole, heard = streamed(
        answer({"text": "H", "thought": True}, finish=None, usageMetadata={"promptTokenCount": 1}),
        answer({"text": "m", "thought": True}, finish=None),
        answer({"text": "On"}, finish=None),
        answer({"text": "e"}, {"text": "!", "thoughtSignature": "czI="}, finish=None),
        answer(part(thoughtSignature="czA="), finish=None),
        answer({"text": "", "thoughtSignature": "czE="}, finish=None),
        answer({"text": ""}, usageMetadata={"promptTokenCount": 2}, modelVersion="m"),
    )
    assert whole == answer(
        {"text": "Hm", "thought": True},
        {"text": "One"},
        {"text": "!", "thoughtSignature": "czI="},
        part(thoughtSignature="czA="),
        {"text": "", "thoughtSignature": "czE="},
        usageMetadata={"promptTokenCount": 2},
        modelVersion="m",
    )
    assert heard == ["On", "e", "!"]


def test_a_stream_that_ends_before_its_answer_does_counts_for_nothing() -> None:
    """Without a reason to finish there was more to come."""
    with pytest.raises(InterruptedStreamError):
        streamed(answer({"text": "On"}, finish=None))


def test_a_blocked_prompt_says_so_in_a_stream_too() -> None:
    """It has no candidate, and is no stream that broke off."""
    whole, _ = streamed({"promptFeedback": {"blockReason": "OTHER"}})
    with pytest.raises(ValueError, match="blocked: OTHER"):
        GeminiContents().decode(whole)


# --- any conversation -------------------------------------------------------------------------

ids = st.sampled_from(["a", "b", "c", "toolu_1"])
names = st.sampled_from(["add", "look up", "9lives"])
texts = st.sampled_from(["Yes.", " ", "No."])
said = st.builds(TextBlock, texts)
media = st.builds(MediaBlock, st.just("image"), st.just("https://x.org/a.png"))
uses = st.builds(ToolUseBlock, ids, names, st.sampled_from(["{}", '{"n":1}', "["]))
results = st.builds(ToolResultBlock, ids, texts, st.booleans())
signed = decoded({"text": "Yes."}, part(thoughtSignature="czA=")).provider_data
replied = ChatTurn("assistant", (TextBlock("Yes."), call("a", "add", '{"n":1}')))
messages = st.one_of(
    st.just(replied),
    st.builds(
        lambda role, blocks: ChatTurn(role, tuple(blocks)),
        st.sampled_from(["user", "assistant"]),
        st.lists(st.one_of(said, media, uses, results), max_size=4),
    ),
)


@given(st.lists(messages, max_size=12), st.booleans(), st.sets(st.integers(1, 8)))
def test_what_was_written_before_need_not_be_written_again(
    turns: list[ChatTurn], led: bool, places: set[int]
) -> None:
    """A history that grows is encoded bit by bit to what it is when it is encoded at once."""
    kept: dict[str, Any] = {}
    data = dict.fromkeys(places, signed)
    history = MessageHistory.new("System.", synthetic_lead=led)
    for turn in turns:
        history = history.add(turn)
        grown = GeminiContents().encode(request_of(history, kept=kept, provider_data=data))
        assert grown == GeminiContents().encode(request_of(history, provider_data=data))


@given(st.lists(messages, max_size=12), st.sampled_from(["gemini-2.5-pro", "gemini-3-pro"]))
def test_any_history_is_a_conversation_that_gemini_takes(turns: list[ChatTurn], model: str) -> None:
    """Roles alternate, no content is empty, and results have the names of their calls, in order."""
    history = MessageHistory.new(synthetic_lead=True)
    for turn in turns:
        history = history.add(turn)
    payload = encoded(history, model)
    sent = payload["contents"]
    assert sent[0]["role"] == "user"
    assert all(content["parts"] for content in sent)
    for before, after in pairwise(sent):
        assert before["role"] != after["role"]
        called = [one["functionCall"]["name"] for one in before["parts"] if "functionCall" in one]
        told = [
            one["functionResponse"]["name"] for one in after["parts"] if "functionResponse" in one
        ]
        assert told == called
    if sent[-1]["role"] == "user":
        check_rules(shaped(payload), model)
