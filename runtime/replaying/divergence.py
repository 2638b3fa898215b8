"""`Divergence`: the first difference between a run and its replay, with a diff and advice.

Which cause a divergence has is found in `runtime.replaying.divergence_cause`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from turnledger.ledger import (
    Event,
    Record,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import error_text
from turnledger.runtime.agent.prompts.difference import diff_of
from turnledger.runtime.replaying.user_code import Raised

Cause: TypeAlias = Literal[
    "prompt text changed",
    "prompt changed",
    "tool schema changed",
    "tool removed",
    "tool added",
    "tool renamed",
    "tool order changed",
    "output type changed",
    "output type dropped",
    "output type added",
    "recorded answer refused",
    "opening messages changed",
    "request options changed",
    "model changed",
    "session state changed",
    "reducer changed",
    "order of calls changed",
    "parallel_tools changed",
    "needs_approval changed",
    "time or randomness used",
    "order of a set used",
    "your code raised",
    "failure changed",
    "decision changed",
    "step changed",
    "step arguments changed",
    "step added",
    "step removed",
    "result changed",
]

_ADVICE: dict[Cause, str] = {
    "prompt text changed": "If the change is meant, record the run again; else put the text back.",
    "prompt changed": "The run was made with another prompt: replay it with that one's program.",
    "tool schema changed": "If the change is meant, record the run again; else put the tool back.",
    "tool removed": "Offer the tool again, or record the run again.",
    "tool added": "Take the tool out again, or record the run again.",
    "tool renamed": "Give the tool its old name, or record the run again.",
    "tool order changed": "Offer the tools in a fixed order, the recorded one.",
    "output type changed": "If the change is meant, record the run again; else put it back.",
    "output type dropped": "Ask for the output type again, or record the run again.",
    "output type added": "Take the output type out again, or record the run again.",
    "recorded answer refused": (
        "The output type does not take the answer that it took. Put it back, or record the run "
        "again."
    ),
    "opening messages changed": "If the change is meant, record the run again.",
    "request options changed": "Compare tool choice, output format and request options.",
    "model changed": "Replay with the recorded adapter and model, or record the run again.",
    "session state changed": "What create_session seeds is not what it was.",
    "reducer changed": (
        "A reducer makes another state of the same events. Put it back, or record the run again."
    ),
    "order of calls changed": "The loop does not run the recorded calls in the recorded order.",
    "parallel_tools changed": (
        "Replay with the recorded number of tool calls at a time, or record the run again."
    ),
    "needs_approval changed": (
        "A call was recorded with or without the question whether it needs approval. Put the "
        "tool's needs_approval back, or record the run again."
    ),
    "time or randomness used": (
        "Prompts, sessions and reducers read no clock, no random source and make no ids: take "
        "such values from the request, or record them in a tool's result."
    ),
    "order of a set used": "Sort it: the order of a set differs from process to process.",
    "your code raised": "It did not where the run was recorded: see the traceback.",
    "failure changed": "The run fails in another way than it did.",
    "decision changed": "The loop decides on another step than the recorded one.",
    "step changed": (
        "The code asks for another step than the recorded one: another name, key or place. Put it "
        "back, or record the run again under another name."
    ),
    "step arguments changed": (
        "The step is given other arguments. If nothing was changed, look for a clock, a random "
        "source, a new id or the order of a set in them: make that a step of its own."
    ),
    "step added": (
        "The code asks for a step that the run never had. Take it out again, or record the run "
        "again under another name."
    ),
    "step removed": "The run had a step that the code does not ask for any more: put it back.",
    "result changed": "The workflow returns another value from the same steps.",
}
assert set(_ADVICE) == set(get_args(Cause))

# Causes of which another process may show that it was the order of a set, or time or randomness.
MAY_DIFFER_BY_PROCESS: frozenset[Cause] = frozenset(
    (
        "prompt text changed",
        "tool schema changed",
        "tool order changed",
        "output type changed",
        "opening messages changed",
        "session state changed",
        "reducer changed",
    )
)


@explain_methods()
@dataclass(frozen=True)
class Divergence:
    """The first event of a replay that differs from the recorded one.

    Attributes:
        cause: What was changed, or what was seen to differ each time it is made.
        hint: What the difference looks like, where that was not seen; empty if like nothing.
        made: What the code made, as text: the prompt, the change or the slices. Made in another
            process it can be compared.
    """

    version: int
    tag: str
    cause: Cause
    recorded: Any
    found: Any
    diff: str
    detail: str = ""
    hint: str = ""
    made: str = field(default="", repr=False)

    @property
    def advice(self) -> str:
        """What to do about it, and the hint if there is one."""
        advice = _ADVICE[self.cause]
        return f"{advice}\nHint: {self.hint}" if self.hint else advice

    @property
    def summary(self) -> str:
        """One line: version, tag, cause and detail."""
        between = " " if self.cause == "your code raised" else ": "
        reason = between.join(filter(None, (self.cause, self.detail)))
        return f"version {self.version} ({self.tag}): {reason}"

    def __str__(self) -> str:
        return f"{self.summary}\n{self.advice}\n\n{self.diff}".rstrip()

    @classmethod
    def of_a_fold(cls, record: Record, error: Exception, raised: Raised | None) -> Divergence:
        """An event that can't be folded any more: a reducer raises that did not."""
        text = error_text(error)
        detail = f"your code raised {raised.where}" if raised is not None else text
        diff = raised.traceback if raised is not None else text
        recorded = plain(record.event)
        return cls(record.version, record.tag, "reducer changed", recorded, text, diff, detail)

    @classmethod
    def of_users_code(cls, record: Record, found: Any, raised: Raised) -> Divergence:
        """An error of the user's code, where the run went on or failed otherwise."""
        recorded = plain(record.event)
        cause: Cause = "your code raised"
        return cls(
            record.version, record.tag, cause, recorded, found, raised.traceback, raised.where
        )

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


def json_text(event: Event) -> str:
    return msgspec.json.encode(event).decode()
