"""Transcript: a provider-neutral conversation as a reader found it, and notes on what is missing.

Plain values. `readers` make one of a provider's JSON; `import_` makes a run of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnledger.ledger import InvalidInputError
from turnledger.projections import ChatTurn


class TranscriptError(InvalidInputError):
    """A transcript is not what its format says; nothing was written.

    `source` is the file, `place` the line or number of the transcript in it, and `path` leads
    to the value inside, like `messages[3].content[0]`.
    """

    def __init__(self, problem: str, *, path: str = "", source: str = "", place: str = "") -> None:
        self.problem = problem
        self.path = path
        self.source = source
        self.place = place
        where = ", ".join(part for part in (source, place, path) if part)
        super().__init__(f"{where}: {problem}" if where else problem)

    def found_in(self, source: str, place: str) -> TranscriptError:
        """The same error with the file and the line that it is in."""
        return TranscriptError(self.problem, path=self.path, source=source, place=place)


class Note(msgspec.Struct, frozen=True, gc=False):
    """Something that could not be taken over as it was, and where it stood."""

    path: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """One conversation as it was found: nothing is repaired yet.

    `blobs` are the bytes that stood in it, by the names that its media blocks have.
    `provider_data` is what a provider wants back unchanged with a turn of its own, by the
    turn's index in `turns`.
    """

    format: str
    system: str = ""
    turns: tuple[ChatTurn, ...] = ()
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    provider_data: Mapping[int, Any] = field(default_factory=dict)
    model: str = ""
