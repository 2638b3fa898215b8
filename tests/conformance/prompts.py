"""A prompt's stream to test with, and its events."""

from __future__ import annotations

from uuid import UUID

from tests.conformance.ledger_like import LedgerLike
from turnledger.ledger import (
    NEW,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    prompt_stream_id,
)

NS, KEY = "acme/support", "answer"
STREAM = prompt_stream_id(NS, KEY)


def override(body: str = "Be brief.", path: str = "tone", **fields: str) -> PromptOverrideSet:
    return PromptOverrideSet(
        prompt_ns=NS, prompt_key=KEY, path=path, body=body, replaces="d", **fields
    )


def moved(tag: str, version: int) -> PromptTagMoved:
    return PromptTagMoved(prompt_ns=NS, prompt_key=KEY, tag_name=tag, version=version)


def cleared(path: str = "tone") -> PromptOverrideCleared:
    return PromptOverrideCleared(prompt_ns=NS, prompt_key=KEY, path=path)


def write_prompt(ledger: LedgerLike) -> UUID:
    """A stream of three commits: two texts set, one tag."""
    ledger.append(STREAM, override(set_by="ann", note="shorter"), NEW)
    ledger.append(STREAM, override("Search the shop.", "tool:search"), 1)
    ledger.append(STREAM, moved("stable", 1), 2)
    return STREAM
