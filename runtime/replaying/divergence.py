"""`Divergence`: the first difference between a run and its replay, with a diff and advice.

Which cause a divergence has is found in `runtime.replaying.divergence_cause`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from turnledger.ledger import (
    Event,
    Record,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import error_text
from turnledger.projections.digests import canonical, combine

# The digest of no tools at all.
NO_TOOLS = combine("tools", canonical([])).hex()

Cause: TypeAlias = Literal[
    "prompt text changed",
    "prompt changed",
    "tool schema changed",
    "tool removed",
    "tool added",
    "tool renamed",
    "tool order changed",
    "output schema changed",
    "opening messages changed",
    "request options changed",
    "model changed",
    "session state changed",
    "reducer changed",
    "order of calls changed",
    "time or randomness used",
    "order of a set used",
    "failure changed",
    "decision changed",
]

_ADVICE: dict[Cause, str] = {
    "prompt text changed": "If the change is meant, record the run again; else put the text back.",
    "prompt changed": "The run was made with another prompt: replay it with that one's program.",
    "tool schema changed": "If the change is meant, record the run again; else put the tool back.",
    "tool removed": "Offer the tool again, or record the run again.",
    "tool added": "Take the tool out again, or record the run again.",
    "tool renamed": "Give the tool its old name, or record the run again.",
    "tool order changed": "Offer the tools in a fixed order, the recorded one.",
    "output schema changed": "If the change is meant, record the run again; else put it back.",
    "opening messages changed": "If the change is meant, record the run again.",
    "request options changed": "Compare tool choice, output format and request options.",
    "model changed": "Replay with the recorded adapter and model, or record the run again.",
    "session state changed": "What create_session seeds is not what it was.",
    "reducer changed": (
        "A reducer makes another state of the same events. Put it back, or record the run again."
    ),
    "order of calls changed": "The loop does not run the recorded calls in the recorded order.",
    "time or randomness used": (
        "Prompts, sessions and reducers read no clock, no random source and make no ids: take "
        "such values from the request, or record them in a tool's result."
    ),
    "order of a set used": "Sort it: the order of a set differs from process to process.",
    "failure changed": "The run fails in another way than it did.",
    "decision changed": "The loop decides on another step than the recorded one.",
}
assert set(_ADVICE) == set(get_args(Cause))


@explain_methods()
@dataclass(frozen=True)
class Divergence:
    """The first event of a replay that differs from the recorded one."""

    version: int
    tag: str
    cause: Cause
    recorded: Any
    found: Any
    diff: str
    detail: str = ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _ADVICE[self.cause]

    @property
    def summary(self) -> str:
        """One line: version, tag, cause and detail."""
        detail = f": {self.detail}" if self.detail else ""
        return f"version {self.version} ({self.tag}): {self.cause}{detail}"

    def __str__(self) -> str:
        return f"{self.summary}\n{self.advice}\n\n{self.diff}".rstrip()

    @classmethod
    def of_a_fold(cls, record: Record, error: Exception) -> Divergence:
        """An event that can't be folded any more: a reducer raises that did not."""
        text = error_text(error)
        recorded = plain(record.event)
        return cls(record.version, record.tag, "reducer changed", recorded, text, text, text)

    @classmethod
    def of_a_step(cls, record: Record, found: str, cause: Cause = "decision changed") -> Divergence:
        """A step of the loop that the record does not go on with."""
        recorded = plain(record.event)
        diff = diff_of(recorded, found)
        return cls(record.version, record.tag, cause, recorded, found, diff, found)


def plain(event: Event) -> dict[str, Any]:
    """An event as JSON data, without fields that have their default."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(event))
    return made


def diff_of(recorded: Any, found: Any) -> str:
    """The two as text, line by line: - recorded, + found."""
    was = recorded if isinstance(recorded, str) else pretty(recorded)
    now = found if isinstance(found, str) else pretty(found)
    lines = difflib.unified_diff(
        was.splitlines(), now.splitlines(), "recorded", "found", lineterm="", n=2
    )
    return "\n".join(lines)


def json_text(event: Event) -> str:
    return msgspec.json.encode(event).decode()


def pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
