"""Conversations for tests of wire formats: a request around a history, and histories that grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from turnledger.projections import (
    MediaBlock,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.runtime import Request

PNG = b"\x89PNG\r\n\x1a\n0123"
PDF = b"%PDF-1.7 0123"
WAV = b"RIFF0000WAVE0123"
BLOBS = {"png": PNG, "pdf": PDF, "wav": WAV}

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}
FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "sum",
        "schema": {
            "type": "object",
            "properties": {"total": {"type": "integer"}},
            "required": ["total"],
            "additionalProperties": False,
        },
    },
}


def request(
    history: MessageHistory | None = None, *, system: str = "Be brief.", **more: Any
) -> Request:
    """A request for the next turn of a history; its media are named in `BLOBS`."""
    history = MessageHistory.new() if history is None else history
    said: dict[str, Any] = {
        "evaluation_id": "e",
        "turn": 1,
        "prompt_name": "p",
        "system": system,
        "history": history,
        "model": "gpt-4o",
        "blob": BLOBS.__getitem__,
    }
    return Request(**said | more)


def begun() -> MessageHistory:
    """A conversation in which only the system spoke."""
    return MessageHistory.new(synthetic_lead=True)


def called(*ids: str, text: str | None = None) -> MessageHistory:
    """A conversation in which the assistant called the tool, and all calls were answered."""
    said = [TextBlock(text)] if text else []
    history = begun().add_assistant(*said, *(ToolUseBlock(one, "add", '{"n":1}') for one in ids))
    return history.add_user(*(ToolResultBlock(one, f"result of {one}") for one in ids))


_texts = st.sampled_from(["hello", "zwei\nZeilen", "🙂", " "])
_ids = st.sampled_from(["call_1", "call_2", "toolu_" + "x" * 60, "an id!", "ä", "3"])
_calls = st.lists(_ids, max_size=3, unique=True)
_media = st.sampled_from(
    [
        MediaBlock("image", url="https://example.org/a.png", prompt_hint="a cat"),
        MediaBlock("image", blob="png"),
        MediaBlock("document", blob="pdf", id="paper"),
        MediaBlock("audio", blob="wav"),
        MediaBlock("video", url="https://example.org/a.mp4"),
    ]
)
_steps = st.one_of(
    st.tuples(st.just("user"), _texts),
    st.tuples(st.just("media"), _media),
    st.tuples(st.just("assistant"), st.tuples(_texts, _calls)),
    st.tuples(st.just("result"), st.booleans()),
)
steps = st.lists(_steps, max_size=12)


def growing(taken: list[Any]) -> Iterator[MessageHistory]:
    """The histories after each step."""
    history = begun()
    yield history
    for kind, given in taken:
        if kind == "user":
            history = history.add_user_text(given)
        elif kind == "media":
            history = history.add_user(given)
        elif kind == "assistant":
            text, ids = given
            asked = (ToolUseBlock(one, f"tool {len(one)}", "{}") for one in ids)
            history = history.add_assistant(TextBlock(text), *asked)
        else:
            results = [ToolResultBlock(one.call_id, "done") for one in history.open_calls]
            history = history.add_user(*(results if given else results[:1]))
        yield history


def plain(value: Mapping[str, Any]) -> Any:
    """An object with attributes, as SDKs give them, of data."""
    return _Thing(value)


class _Thing:
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update({name: _thing(value) for name, value in fields.items()})
        self._fields = fields

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {name: value for name, value in self._fields.items() if value is not None}


def _thing(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Thing(value)
    return [_thing(one) for one in value] if isinstance(value, list) else value
