"""The formats of transcripts by their names, and who reads each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnledger.adapters.transcripts.readers import anthropic, gemini, openai_chat, openai_responses
from turnledger.adapters.transcripts.transcript import Transcript
from turnledger.ledger import InvalidInputError

READERS: Mapping[str, Callable[[Any], Transcript]] = {
    openai_chat.NAME: openai_chat.read_chat,
    openai_responses.NAME: openai_responses.read_responses,
    anthropic.NAME: anthropic.read_anthropic,
    gemini.NAME: gemini.read_gemini,
}
FORMATS = tuple(READERS)


def reader_of(name: str) -> Callable[[Any], Transcript]:
    """What reads a transcript of this format: JSON data in, a Transcript or TranscriptError out."""
    if name not in READERS:
        raise InvalidInputError(f"a format is {', '.join(FORMATS)}; {name!r} is none.")
    return READERS[name]
