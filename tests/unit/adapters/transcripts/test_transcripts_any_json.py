"""Any JSON at all is read as a transcript, or refused as none: nothing else ever happens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnledger.adapters.transcripts import (
    FORMATS,
    TranscriptError,
    import_transcripts,
    plan_of,
    reader_of,
)
from turnledger.ledger import Ledger
from turnledger.projections import Conversation, fold

WORDS = re.findall(
    r"\w+",
    """messages input contents system instructions systemInstruction system_instruction request
response output choices candidates message content role type text parts name id tool_calls call_id
function arguments tool_call_id function_call functionCall function_response functionResponse
function_call_output reasoning encrypted_content summary tool_use tool_result tool_use_id thinking
signature data redacted_thinking source base64 url media_type image document inlineData fileData
mimeType fileUri args thought thoughtSignature image_url input_audio file file_data file_id format
input_text output_text input_image input_file refusal user assistant model developer tool custom
is_error custom_tool_call web_search_call body config phase audio transcript""",
)
key = st.sampled_from(WORDS) | st.text(max_size=3)
leaf = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), key, st.text(max_size=9),
    st.sampled_from(["data:image/png;base64,AAAA", "data:,x", "data:x", "AAAA", "\ud800", "%%"]),
)  # fmt: skip
anything = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(key, inner, max_size=5)
)
# Closer to the truth, so that the inner parts are reached too.
part = st.dictionaries(key, anything, max_size=4).flatmap(
    lambda more: st.sampled_from(WORDS).map(lambda kind: {**more, "type": kind})
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "model", "tool", "system"])},
    optional={
        "content": st.lists(part | anything, max_size=3) | anything,
        "parts": st.lists(part | anything, max_size=3) | anything,
        "tool_calls": st.lists(part | anything, max_size=2),
        "tool_call_id": leaf,
    },
)
likely = st.lists(message | part | anything, max_size=4)
bodies = st.one_of(
    anything,
    likely,
    st.dictionaries(st.sampled_from(["messages", "input", "contents", "output"]), likely),
    likely.map(lambda said: {"request": {"messages": said, "input": said, "contents": said}}),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=250, deadline=None)
@given(data=bodies)
def test_any_json_is_read_or_refused(name: str, data: Any) -> None:
    """A reader gives a transcript or a TranscriptError, and a transcript can be recorded."""
    try:
        plan = plan_of(reader_of(name)(data))
    except TranscriptError:
        return
    with Ledger.open("memory://") as ledger:
        try:
            (run,) = import_transcripts(ledger, [plan])
        except TranscriptError:
            assert next(iter(ledger.runs()), None) is None
            return
        assert fold(ledger.read(run.run_id), Conversation()).history() == plan.history


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("opening", ["[", '{"content":', '{"request":', '{"messages":['])
def test_deep_data_is_refused(name: str, opening: str) -> None:
    """Nesting that would take the interpreter's stack is an error like any other."""
    data: Any = 1
    for _ in range(5000):
        data = [data] if opening == "[" else {opening[2:9]: data}
    with pytest.raises(TranscriptError, match="nested"):
        reader_of(name)(data)
