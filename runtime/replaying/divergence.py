"""Where a loop that is run again does something else, and why it most likely does.

A `Divergence` is the first difference: what was recorded, what came, a readable diff, the likely
cause and what to do. The cause is worked out from what the two say, and by asking the user's
code a second time: what differs from itself depends on something that is not recorded.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec

from turnledger.ledger import (
    CheckpointReached,
    EvaluationFinished,
    EvaluationStarted,
    Event,
    MessageAppended,
    ModelCalled,
    OfferedTool,
    Record,
    RunCompleted,
    RunFailed,
    SliceEventApplied,
    ToolCallFailed,
    ToolCallStarted,
)
from turnledger.ledger.errors import error_text
from turnledger.projections.digests import canonical, combine
from turnledger.runtime.agent.prompts.render import OUTPUT_TITLE
from turnledger.runtime.journal.loop_progress import CREATE_PROMPT

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
    "prompt text changed": "If the change is meant, record the run anew; else put the text back.",
    "prompt changed": "The run was made with another prompt: replay it with that one's program.",
    "tool schema changed": "If the change is meant, record the run anew; else put the tool back.",
    "tool removed": "Offer the tool again, or record the run anew.",
    "tool added": "Take the tool out again, or record the run anew.",
    "tool renamed": "Give the tool its old name, or record the run anew.",
    "tool order changed": "Offer the tools in a fixed order, the recorded one.",
    "output schema changed": "If the change is meant, record the run anew; else put it back.",
    "opening messages changed": "If the change is meant, record the run anew.",
    "request options changed": "Compare tool choice, output format and request options.",
    "model changed": "Replay with the adapter and the model of the record, or record anew.",
    "session state changed": "What create_session seeds is not what it was.",
    "reducer changed": (
        "A reducer makes another state of the same events. Put it back, or record the run anew."
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


@dataclass(frozen=True)
class Divergence:
    """The first event where a run parts from its record."""

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
        """One line: where, what and why."""
        detail = f": {self.detail}" if self.detail else ""
        return f"version {self.version} ({self.tag}): {self.cause}{detail}"

    def __str__(self) -> str:
        return f"{self.summary}\n{self.advice}\n\n{self.diff}".rstrip()

    @classmethod
    def of_a_fold(cls, record: Record, error: Exception) -> Divergence:
        """An event that can't be folded any more: a reducer refuses what it took."""
        said = error_text(error)
        recorded = plain(record.event)
        return cls(record.version, record.tag, "reducer changed", recorded, said, said, said)

    @classmethod
    def of_a_step(cls, record: Record, found: str, cause: Cause = "decision changed") -> Divergence:
        """A step that the record does not go on with."""
        recorded = plain(record.event)
        diff = diff_of(recorded, found)
        return cls(record.version, record.tag, cause, recorded, found, diff, found)


class Trying(Protocol):
    """A loop that is run again, as far as finding causes needs it."""

    @property
    def prompt_text(self) -> str | None:
        """The text of the prompt that is evaluated; None before there is one."""

    def prompt_again(self) -> tuple[str | None, Sequence[Event]]:
        """The same, made a second time, and what making it changed in the session."""

    @property
    def slices_touched(self) -> Sequence[str]:
        """The slices that were changed since the last checkpoint."""

    def slice_value(self, name: str) -> Any:
        """What a slice is now, as JSON data."""

    def folds_alike(self) -> bool:
        """Whether folding the record twice gives the same."""

    def opening_again(self) -> Sequence[Event]:
        """What create_session records when it is called a second time."""

    def system_text(self) -> str | None:
        """The recorded text of the prompt that is about to begin."""

    def opening_messages(self) -> tuple[list[Any], list[Any]]:
        """What the conversation opens with, as recorded and as it would be, without ids."""


def found_out(trying: Trying, record: Record, made: Event) -> Divergence:
    """The divergence of an event from the recorded one, with its likely cause."""
    recorded = record.event
    if type(made) is not type(recorded):
        return _other_step(record, made)
    finder: Callable[..., tuple[Cause, str]] | None = _FINDERS.get(type(made))
    cause, detail = finder(trying, recorded, made) if finder else ("decision changed", "")
    was, now = plain(recorded), plain(made)
    diff = diff_of(was, now)
    if isinstance(made, EvaluationStarted):
        text = trying.system_text()
        said, says = trying.opening_messages()
        if text is not None and trying.prompt_text is not None and text != trying.prompt_text:
            diff = diff_of(text, trying.prompt_text)
        elif said != says:
            diff = diff_of(said, says)
    elif isinstance(made, CheckpointReached):
        values = {name: trying.slice_value(name) for name in trying.slices_touched}
        diff = f"{diff}\n\nslices changed since the last checkpoint, as they are now:\n" + _pretty(
            values
        )
    return Divergence(record.version, record.tag, cause, was, now, diff, detail)


def _other_step(record: Record, made: Event) -> Divergence:
    about_calls = (ToolCallStarted, ToolCallFailed)
    both = (record.event, made)
    cause: Cause = "decision changed"
    if all(isinstance(one, about_calls) for one in both):
        cause = "tool schema changed"
    elif any(isinstance(one, RunFailed) for one in both):
        cause = "failure changed"
    elif any(isinstance(one, SliceEventApplied) for one in both):
        cause = "session state changed"
    was, now = plain(record.event), plain(made)
    detail = f"{record.tag} was recorded, and {made.tag} came"
    return Divergence(
        record.version, record.tag, cause, was, now, diff_of(was, {"tag": made.tag, **now}), detail
    )


# --- causes -------------------------------------------------------------------------------


def _of_an_evaluation(
    trying: Trying, recorded: EvaluationStarted, made: EvaluationStarted
) -> tuple[Cause, str]:
    if (recorded.prompt_ns, recorded.prompt_key) != (made.prompt_ns, made.prompt_key):
        return "prompt changed", f"{recorded.prompt_ns}/{recorded.prompt_key} was recorded"
    if recorded.adapter != made.adapter:
        return "model changed", f"{recorded.adapter} was recorded, and this is {made.adapter}"
    text, now = trying.system_text(), trying.prompt_text
    if text is not None and now is not None and text != now:
        return text_cause(text, now, trying.prompt_again()[0]), ""
    if recorded.tools_digest != made.tools_digest:
        if not recorded.tools and recorded.tools_digest != NO_TOOLS:
            return "tool schema changed", ""  # an old record that does not name them
        return _of_tools(recorded.tools, made.tools)
    said, says = trying.opening_messages()
    return ("opening messages changed" if said != says else "output schema changed"), ""


def _of_tools(recorded: Sequence[OfferedTool], found: Sequence[OfferedTool]) -> tuple[Cause, str]:
    was, now = ({tool.name: tool.digest for tool in tools} for tools in (recorded, found))
    gone = [name for name in was if name not in now]
    new = [name for name in now if name not in was]
    if len(gone) == 1 and len(new) == 1 and was[gone[0]] == now[new[0]]:
        return "tool renamed", f"{gone[0]} is {new[0]} now"
    if gone:
        return "tool removed", ", ".join(gone)
    if new:
        return "tool added", ", ".join(new)
    changed = [name for name in was if was[name] != now[name]]
    if changed:
        return "tool schema changed", ", ".join(changed)
    return "tool order changed", ", ".join(now)


# Where a prompt begins to say what output it wants.
_OUTPUT = f"## {OUTPUT_TITLE}\n"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)(?:[a-z]{1,6})?"
_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
# What a clock, a random source or an id looks like. A short number may be anybody's.
_VOLATILE = re.compile(
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{12,}\b"
    r"|\b\d+(?:[:/T-]\d+)+(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b\d{1,2}\.\d{1,2}\.\d{2,4}\b"
    r"|\b\d+\.\d{4,}\b|\b\d{6,}\b"
    rf"|\b{_DAY}\b|\b(?:\d{{1,2}}\.? )?{_MONTH}\b(?: \d{{1,2}}\b)?(?:,? \d{{4}}\b)?"
)
# What stands between the items of a list, or around them.
_BETWEEN = re.compile(r"[,;|\n]")
_AROUND = " \t'\"{}[]()*-"
_BEFORE, _AFTER = " \n{[(", " \n}]),;|."


def text_cause(recorded: str, found: str, again: str | None) -> Cause:
    """Why a text is another one: `again` is what it is when it is made once more."""
    if again is not None and again != found:
        return "time or randomness used"
    if _is_reordered(recorded, found):
        return "order of a set used"
    if _VOLATILE.sub("#", recorded) == _VOLATILE.sub("#", found):
        return "time or randomness used"
    if recorded.partition(_OUTPUT)[0] == found.partition(_OUTPUT)[0]:
        return "output schema changed"
    return "prompt text changed"


def _is_reordered(recorded: str, found: str) -> bool:
    """Whether the two say the same items in another order, where they differ."""
    before = _shared(recorded, found)
    before = max((recorded.rfind(sign, 0, before) + 1 for sign in _BEFORE), default=0)
    was, now = recorded[before:], found[before:]
    after = _shared(was[::-1], now[::-1])
    ends = [place for sign in _AFTER if (place := was.find(sign, len(was) - after)) >= 0]
    kept = len(was) - min(ends, default=len(was))
    was, now = was[: len(was) - kept], now[: len(now) - kept]
    items = _items(was)
    return len(items) > 1 and items == _items(now)


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _items(text: str) -> list[str]:
    """The items of a list, sorted; its words, if nothing stands between them."""
    found = [item.strip(_AROUND) for item in _BETWEEN.split(text)]
    return sorted(found if len(found) > 1 else text.split())


def _of_a_checkpoint(
    trying: Trying, recorded: CheckpointReached, made: CheckpointReached
) -> tuple[Cause, str]:
    if (recorded.phase, recorded.tool_calls_completed) != (made.phase, made.tool_calls_completed):
        return "decision changed", ""
    if not trying.folds_alike():
        return "time or randomness used", "a reducer gives another state each time"
    touched = ", ".join(trying.slices_touched)
    return "reducer changed", f"of {touched}" if touched else "or a view of this package"


def _of_a_change(
    trying: Trying, recorded: SliceEventApplied, made: SliceEventApplied
) -> tuple[Cause, str]:
    by_prompt = made.call_id == CREATE_PROMPT
    again = trying.prompt_again()[1] if by_prompt else trying.opening_again()
    if made not in again:
        return "time or randomness used", f"in what {made.slice} is given"
    was, now = _json(recorded), _json(made)
    if _VOLATILE.sub("#", was) == _VOLATILE.sub("#", now):
        return "time or randomness used", f"in {made.slice}"
    return "session state changed", made.slice


def _of_a_request(trying: Trying, recorded: ModelCalled, made: ModelCalled) -> tuple[Cause, str]:
    if (recorded.adapter, recorded.model) != (made.adapter, made.model):
        was = f"{recorded.adapter} {recorded.model}".strip()
        return "model changed", f"{was} was recorded, and this is {made.adapter} {made.model}"
    if (recorded.turn, recorded.attempt) != (made.turn, made.attempt):
        return "decision changed", ""
    return "request options changed", ""


def _of_a_start(
    trying: Trying, recorded: ToolCallStarted, made: ToolCallStarted
) -> tuple[Cause, str]:
    return "order of calls changed", f"{recorded.call_id} was recorded, and {made.call_id} came"


def _of_a_refusal(trying: Trying, recorded: Event, made: Event) -> tuple[Cause, str]:
    return "tool schema changed", "arguments are refused in other words"


def _of_an_output(trying: Trying, recorded: Event, made: Event) -> tuple[Cause, str]:
    return "output schema changed", "the answer is read otherwise"


def _of_a_message(
    trying: Trying, recorded: MessageAppended, made: MessageAppended
) -> tuple[Cause, str]:
    if made.message.role == "tool":
        return "tool schema changed", "arguments are refused in other words"
    if made.message.role == "system":
        return "prompt text changed", ""
    return "opening messages changed", ""


def _of_a_failure(trying: Trying, recorded: Event, made: Event) -> tuple[Cause, str]:
    return "failure changed", ""


_FINDERS: dict[type[Any], Callable[..., tuple[Cause, str]]] = {
    EvaluationStarted: _of_an_evaluation,
    CheckpointReached: _of_a_checkpoint,
    SliceEventApplied: _of_a_change,
    ModelCalled: _of_a_request,
    ToolCallStarted: _of_a_start,
    ToolCallFailed: _of_a_refusal,
    MessageAppended: _of_a_message,
    EvaluationFinished: _of_an_output,
    RunCompleted: _of_an_output,
    RunFailed: _of_a_failure,
}


# --- showing it -----------------------------------------------------------------------------


def plain(event: Event) -> dict[str, Any]:
    """An event as JSON data, without what is as it is by default."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(event))
    return made


def diff_of(recorded: Any, found: Any) -> str:
    """The two as text, line by line: - recorded, + found."""
    was = recorded if isinstance(recorded, str) else _pretty(recorded)
    now = found if isinstance(found, str) else _pretty(found)
    lines = difflib.unified_diff(
        was.splitlines(), now.splitlines(), "recorded", "found", lineterm="", n=2
    )
    return "\n".join(lines)


def _json(event: Event) -> str:
    return msgspec.json.encode(event).decode()


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
