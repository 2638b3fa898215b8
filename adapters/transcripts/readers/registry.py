"""Registry of transcript readers, one for each wire format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnledger.adapters.providers.registry import FORMATS
from turnledger.adapters.transcripts.readers import anthropic, gemini, openai_chat, openai_responses
from turnledger.adapters.transcripts.transcript import Transcript
from turnledger.ledger import InvalidInputError

READERS: Mapping[str, Callable[[Any], Transcript]] = {
    openai_chat.NAME: openai_chat.read_chat,
    openai_responses.NAME: openai_responses.read_responses,
    anthropic.NAME: anthropic.read_anthropic,
    gemini.NAME: gemini.read_gemini,
}


def reader_of(name: str) -> Callable[[Any], Transcript]:
    """The reader of a format: takes JSON data, returns a Transcript or raises TranscriptError."""
    if name not in READERS:
        raise InvalidInputError(f"Unknown format {name!r}. Expected one of: {', '.join(FORMATS)}.")
    return READERS[name]
