"""Strategies for messages of every kind, and for recorded messages, odd ones too."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.unit.ledger.strategies import json_values, of_struct
from turnledger.ledger import InnerMessage, ToolCallRecord, blob_name
from turnledger.runtime.agent.messages.message import (
    MediaPart,
    Message,
    OptionCallPayload,
    OptionResultPayload,
    PartsPayload,
    TextPart,
)

BYTES = b"not really a picture"

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
maybe = st.none() | text
hints = st.sampled_from([None, "user", "assistant", "tool", "system"])
urls = st.builds(
    lambda host, path: f"https://{host}/{path}",
    st.sampled_from(["example.com", "EXAMPLE.com:443", "münchen.de", "ann:secret@localhost:81"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)
places = st.one_of(
    st.fixed_dictionaries({"url": urls}),
    st.fixed_dictionaries({"blob": st.just(blob_name(BYTES))}),
)
media = st.builds(
    lambda where, **more: MediaPart(**where, **more),
    places,
    modality=st.sampled_from(["image", "audio", "video", "document"]),
    mime=maybe,
    prompt_hint=maybe,
    id=maybe,
)
parts = st.builds(
    PartsPayload, parts=st.lists(st.builds(TextPart, text=text) | media, max_size=4).map(tuple)
)
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(text, json_values, max_size=4)
calls = st.builds(OptionCallPayload, invocation_id=text, option_name=text, arguments=objects)
results = st.builds(
    OptionResultPayload,
    invocation_id=text,
    option_name=text,
    result=json_values | text,
    is_error=st.booleans(),
    error_type=maybe,
    error_message=maybe,
    retryable=st.none() | st.booleans(),
)
messages = st.builds(
    Message,
    policy=text.filter(bool),
    role_hint_for_llm=hints,
    step_num=st.none() | st.integers(),
    payload=parts | calls | results,
)

# What models write as arguments: JSON in any spelling, other JSON, and no JSON at all.
written = st.sampled_from(
    ["", "  ", "{}", '{ "a": 1 }', '{"a":1,"a":2}', '{"a":1.0e0}', "[1]", "null", "{'a'", "NaN"]
) | st.text(max_size=12)
tool_calls = st.builds(
    ToolCallRecord,
    call_id=text,
    name=text,
    arguments=written,
    status=st.sampled_from(["pending", "completed", "failed"]),
)
# Any at all, and those that a conversation is mostly made of.
recorded: st.SearchStrategy[InnerMessage] = of_struct(InnerMessage) | st.builds(
    InnerMessage,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=text | st.sampled_from(["null", "The option failed.", '{"a":1}']),
    evaluation_id=text,
    sequence=st.integers(0, 9),
    tool_calls=st.lists(tool_calls, max_size=3).map(tuple),
    tool_call_id=maybe,
    tool_name=maybe,
    policy=st.just("") | text,
    is_error=st.booleans(),
    value=st.none() | json_values,
)
