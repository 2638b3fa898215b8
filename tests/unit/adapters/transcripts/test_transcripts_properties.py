"""Whatever conversation is exported comes back the same, and its provider takes it.

What a format can't say, and is therefore not compared, is what `as_told` takes away: no more.
"""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers import anthropic_messages, gemini_contents, openai_chat, openai_responses
from tests.servers.serving import Wire
from turnledger.adapters.providers.registry import wire_of
from turnledger.adapters.providers.wire import WireFormat, arguments_object
from turnledger.adapters.transcripts import (
    FORMATS,
    Plan,
    Transcript,
    Wanted,
    export_transcript,
    import_transcripts,
    plan_of,
    reader_of,
)
from turnledger.ledger import Ledger, blob_name
from turnledger.projections import (
    ChatTurn,
    Conversation,
    MediaBlock,
    MessageHistory,
    PendingTools,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    fold,
)
from turnledger.projections.history.blocks import STUB_TEXT

PNG = b"\x89PNG\r\n\x1a\n pixels"
PDF = b"%PDF-1.4 pages"
BLOBS = {blob_name(content): content for content in (PNG, PDF)}
SERVERS: dict[str, tuple[Wire, str, str, dict[str, str]]] = {
    "openai-chat": (
        openai_chat.OpenAIChat(),
        "/v1/chat/completions",
        "gpt-4o",
        {"authorization": "Bearer sk-test"},
    ),
    "openai-responses": (
        openai_responses.OpenAIResponses(),
        "/v1/responses",
        "gpt-4o",
        {"authorization": "Bearer sk-test"},
    ),
    "anthropic": (
        anthropic_messages.AnthropicMessages(),
        "/v1/messages",
        "claude-sonnet-4-5",
        {"x-api-key": "sk-test", "anthropic-version": "2023-06-01"},
    ),
    "gemini": (
        gemini_contents.GeminiContents(),
        "/v1beta/models/gemini-3-pro:generateContent",
        "gemini-3-pro",
        {"x-goog-api-key": "sk-test"},
    ),
}

# --- conversations -----------------------------------------------------------------------

words = st.sampled_from(["hi", "ja \n nein", "é😀", " spaced ", "Media 1: mine", STUB_TEXT, "[x]"])
texts = words.map(TextBlock)
media = st.sampled_from(
    [
        MediaBlock("image", blob=blob_name(PNG), mime="image/png"),
        MediaBlock("image", blob=blob_name(PNG), mime="image/png", prompt_hint="a cat:\n1"),
        MediaBlock("document", blob=blob_name(PDF), mime="application/pdf", id="paper"),
        MediaBlock("image", url="https://example.com/a.png", prompt_hint="b"),
    ]
)
ids = st.sampled_from(["a", "b", "c", "call 1", "x" * 70])
names = st.sampled_from(["look", "find_it", "späh aus", "9"])
arguments = st.sampled_from(["{}", '{"n": 1, "é": ["x"]}', "", "not json", "[1]", '{"f":1.5}'])
calls = st.builds(ToolUseBlock, ids, names, arguments)
outcomes = st.sampled_from(["ok", "", "  ", "two\nlines", '{"output": 1}'])
results = st.builds(ToolResultBlock, ids, outcomes, st.booleans())
turns = st.one_of(
    st.builds(
        ChatTurn,
        st.just("user"),
        st.lists(st.one_of(results, results, texts, media), max_size=4).map(tuple),
    ),
    st.builds(
        ChatTurn, st.just("assistant"), st.lists(st.one_of(texts, calls), max_size=4).map(tuple)
    ),
)
systems = st.sampled_from(["", "Be kind.", "Two\n\nparts"])


@st.composite
def histories(draw: st.DrawFn) -> MessageHistory:
    history = MessageHistory.new(draw(systems), synthetic_lead=True)
    for turn in draw(st.lists(turns, max_size=8)):
        history = history.add(turn)
    return history


def plan_for(history: MessageHistory) -> Plan:
    return plan_of(
        Transcript(
            format="openai-chat",
            system=history.system,
            turns=tuple(turn for turn in history.to_list() if not turn.synthetic),
            blobs=BLOBS,
        )
    )


def exported(history: MessageHistory, wire: str, **wishes: Any) -> dict[str, Any]:
    """A history as a run, and the run as a request's body."""
    with Ledger.open("memory://") as ledger:
        (run,) = import_transcripts(ledger, [plan_for(history)])
        return export_transcript(ledger, run.run_id, Wanted(format=wire, **wishes))


# --- what a format can't say ----------------------------------------------------------------


def as_told(turns: tuple[ChatTurn, ...], wire: WireFormat) -> list[Any]:
    """Turns without what is lost on the way through a format, which is exactly this:

    - ids of calls (they may have to be made fit, and Gemini is sent none): compared by number;
    - OpenAI's chat: text of the assistant's after a call stands before it;
    - names that the provider refuses: compared as they are made fit;
    - how arguments are spelled where the provider wants an object; empty ones are `{}`;
    - OpenAI's: whether a result is an error; Anthropic's: results and ends of only spaces;
    - media: the id, and at a URL the type, which Gemini is always told.
    """
    numbers: dict[str, int] = {}
    count = 0
    told: list[Any] = []
    for place, turn in enumerate(turns):
        said: list[Any] = []
        if turn.role == "assistant":
            numbers = {}
        for block in turn.blocks:
            match block:
                case ToolUseBlock():
                    count += 1
                    numbers[block.call_id] = count
                    said.append((count, fit(block.name, wire), spelled(block.arguments, wire)))
                case ToolResultBlock():
                    said.append((numbers[block.call_id], *outcome(block, wire)))
                case MediaBlock():
                    mime = None if block.url else block.mime
                    said.append(msgspec.structs.replace(block, id=None, mime=mime))
                case TextBlock():
                    last = place == len(turns) - 1 and block is turn.blocks[-1]
                    stripped = last and turn.role == "assistant" and wire.name == "anthropic"
                    said.append(block.text.rstrip() if stripped else block.text)
        if wire.name == "openai-chat":
            said.sort(key=lambda one: isinstance(one, tuple) and turn.role == "assistant")
        told.append((turn.role, turn.synthetic, said))
    return told


def fit(name: str, wire: WireFormat) -> str:
    if wire.name_pattern.fullmatch(name):
        return name
    changed = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]
    return changed if wire.name_pattern.fullmatch(changed) else "_" + changed[:63]


def spelled(text: str, wire: WireFormat) -> Any:
    if wire.name.startswith("openai"):
        return text or "{}"
    return arguments_object(text)


def outcome(result: ToolResultBlock, wire: WireFormat) -> tuple[str, bool | None]:
    content, failed = result.content, result.is_error
    if wire.name.startswith("openai"):
        return content, None
    if wire.name == "anthropic" and not content.strip():
        return "The tool failed and said nothing." if failed else "", failed
    return content, failed


# --- the properties ------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=100, deadline=None)
@given(history=histories())
def test_what_is_exported_comes_back_the_same(name: str, history: MessageHistory) -> None:
    """Through every format, and nothing has to be repaired on the way back."""
    if not history.system and len(history) == history.has_synthetic_lead:
        return
    wire = wire_of(name)
    body = json.loads(json.dumps(exported(history, name)))
    read = reader_of(name)(body)
    back = plan_of(read)
    assert back.history.system == history.system
    sent, came = as_told(history.for_send(), wire), as_told(back.history.for_send(), wire)
    assert came == sent
    assert back.notes == ()
    assert {repair.kind for repair in back.repairs} <= {"empty_message"}
    assert set(read.blobs) <= set(BLOBS)
    again = plan_of(reader_of(name)(json.loads(json.dumps(exported(back.history, name)))))
    assert again.history == back.history


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=100, deadline=None)
@given(history=histories(), incomplete=st.sampled_from(["stub", "skip"]))
def test_what_is_exported_is_taken(name: str, history: MessageHistory, incomplete: str) -> None:
    """A strict server of the provider takes every export, once the user has the last word."""
    if len(history) == history.has_synthetic_lead:
        return
    server, path, model, headers = SERVERS[name]
    if history.last is not None and history.last.role == "assistant" and not history.open_calls:
        history = history.add_user_text("Go on.")
    if len(MessageHistory.from_list(history.for_send("skip"))) == history.has_synthetic_lead:
        return
    body = exported(history, name, model=model, incomplete=incomplete)
    if history.for_send("skip")[-1].role == "assistant" and incomplete == "skip":
        return
    headers = {"content-type": "application/json", **headers}
    server.check("POST", path, headers, json.loads(json.dumps(body)))


@settings(max_examples=100, deadline=None)
@given(history=histories())
def test_what_is_recorded_is_the_history(history: MessageHistory) -> None:
    """The run's events fold to the history that was planned, and only its open calls wait."""
    if not history.system and len(history) == history.has_synthetic_lead:
        return
    plan = plan_for(history)
    with Ledger.open("memory://") as ledger:
        (run,) = import_transcripts(ledger, [plan])
        known = fold(ledger.read(run.run_id), Conversation())
        waiting = fold(ledger.read(run.run_id), PendingTools()).pending()
        assert known.history() == history == plan.history
        assert [call.call_id for call in waiting] == [c.call_id for c in history.open_calls]
        assert ledger.run(run.run_id).status == ("completed" if plan.ended else "running")
        sequence = [said.sequence for said in known.messages]
        assert sequence == list(range(len(sequence)))
        (again,) = import_transcripts(ledger, [plan])
        assert (again.outcome, again.run_id) == ("already there", run.run_id)
        assert isinstance(again.run_id, UUID)


# --- what a provider wants back --------------------------------------------------------------

said = st.sampled_from(["So.", "\nAnd then?", "é "])
signed = st.sampled_from(["c2lnbg==", "bW9yZQ=="])
thinking = st.one_of(
    st.builds(lambda s: {"type": "thinking", "thinking": "hm", "signature": s}, signed),
    st.builds(lambda s: {"type": "redacted_thinking", "data": s}, signed),
)
asked = {"name": "look", "input": {"n": 1}}
anthropic_answers = st.lists(
    thinking | said.map(lambda s: {"type": "text", "text": s}) | st.just({"type": "tool_use"}),
    min_size=1,
    max_size=5,
).filter(lambda parts: parts[-1]["type"] in ("text", "tool_use"))
gemini_answers = st.lists(
    st.builds(
        lambda part, signature: {**part, **signature},
        st.one_of(
            said.map(lambda s: {"text": s}),
            st.just({"functionCall": {"name": "look", "args": {"n": [1]}}}),
        ),
        st.just({}) | signed.map(lambda s: {"thoughtSignature": s}),
    ),
    min_size=1,
    max_size=5,
)


def sent_back(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """A transcript's body after it was imported and exported again."""
    with Ledger.open("memory://") as ledger:
        (run,) = import_transcripts(ledger, [plan_of(reader_of(name)(body))])
        return export_transcript(ledger, run.run_id, Wanted(format=name, model="gemini-2.5-pro"))


@settings(max_examples=100, deadline=None)
@given(answer=anthropic_answers)
def test_thinking_goes_back_as_it_came(answer: list[dict[str, Any]]) -> None:
    """Anthropic gets its thinking back unchanged, and where it stood among texts and calls."""
    content = [
        {**part, "id": f"toolu_{place}", **asked} if part["type"] == "tool_use" else part
        for place, part in enumerate(answer)
    ]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Think."}]},
        {"role": "assistant", "content": content},
        {
            "role": "user",
            "content": [
                *(
                    {"type": "tool_result", "tool_use_id": part["id"], "content": "1"}
                    for part in content
                    if part["type"] == "tool_use"
                ),
                {"type": "text", "text": "Go on."},
            ],
        },
    ]
    assert sent_back("anthropic", {"messages": messages})["messages"] == messages


@settings(max_examples=100, deadline=None)
@given(answer=gemini_answers, with_ids=st.booleans())
def test_signatures_go_back_as_they_came(answer: list[dict[str, Any]], with_ids: bool) -> None:
    """Gemini gets each signature and id back with the part that it came with."""
    parts = [
        {**part, "functionCall": {**part["functionCall"], "id": f"fc{place}"}}
        if with_ids and "functionCall" in part
        else part
        for place, part in enumerate(answer)
    ]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    results = [
        {"functionResponse": {"name": "look", "response": {"output": "1"}, **_id_of(call)}}
        for call in calls
    ]
    contents = [
        {"role": "user", "parts": [{"text": "Think."}]},
        {"role": "model", "parts": parts},
        {"role": "user", "parts": [*results, {"text": "Go on."}]},
    ]
    assert sent_back("gemini", {"contents": contents})["contents"] == contents


def _id_of(call: dict[str, Any]) -> dict[str, Any]:
    return {"id": call["id"]} if "id" in call else {}


@settings(max_examples=100, deadline=None)
@given(kinds=st.lists(st.sampled_from(["message", "call"]), min_size=1, max_size=4))
def test_reasoning_goes_back_as_it_came(kinds: list[str]) -> None:
    """OpenAI gets its sealed reasoning back, each right before what it led to."""
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "Think."}]
    outputs: list[dict[str, Any]] = []
    for place, kind in enumerate(kinds):
        sealed = {"id": f"rs_{place}", "summary": [], "encrypted_content": "gAAA"}
        items.append({"type": "reasoning", **sealed})
        if kind == "message":
            text = f"So {place}. "
            items.append({"type": "message", "role": "assistant", "content": text})
        else:
            call = {"call_id": f"c{place}", "name": "look", "arguments": '{"n": 1}'}
            items.append({"type": "function_call", **call})
            outputs.append({"type": "function_call_output", "call_id": f"c{place}", "output": "1"})
    assert sent_back("openai-responses", {"input": items + outputs})["input"] == items + outputs
