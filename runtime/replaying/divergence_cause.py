"""Finds the likely cause of a divergence: what changed in the program since the run.

The cause is worked out from the recorded event and the one that came instead, and by calling the
user's code a second time: what differs from itself depends on something that is not recorded, a
clock or a random source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

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
from turnledger.projections.digests import canonical, combine
from turnledger.runtime.agent.prompts.render import OUTPUT_TITLE
from turnledger.runtime.journal.loop_progress import CREATE_PROMPT
from turnledger.runtime.replaying.divergence import (
    Cause,
    Divergence,
    diff_of,
    json_text,
    plain,
    pretty,
)

# The digest of no tools at all.
NO_TOOLS = combine("tools", canonical([])).hex()


class Probe(Protocol):
    """What finding causes may ask of a replay: the program's state, and its code once more."""

    @property
    def prompt_text(self) -> str | None:
        """The text of the prompt that is evaluated; None before there is one."""

    def prompt_again(self) -> tuple[str | None, Sequence[Event]]:
        """The prompt made once more: its text, and what create_prompt changed in the session."""

    @property
    def slices_touched(self) -> Sequence[str]:
        """The slices that were changed since the last checkpoint."""

    def slice_value(self, name: str) -> Any:
        """What a slice is now, as JSON data."""

    def folds_alike(self) -> bool:
        """Whether folding the same events twice gives the same state."""

    def session_again(self) -> Sequence[Event]:
        """What create_session records when it is called once more."""

    def system_text(self) -> str | None:
        """The recorded text of the prompt whose evaluation begins next."""

    def opening_messages(self) -> tuple[list[Any], list[Any]]:
        """The prompt's own messages, as recorded and as made now, without ids and times."""

    def tool_spec(self, blob: str) -> Any:
        """Description and schema of a tool, recorded or made now; None if they are not there."""


def find_divergence(probe: Probe, record: Record, made: Event) -> Divergence:
    """The divergence of an event from the recorded one, with its likely cause.

    Args:
        probe: The replay that made the event.
        record: What was recorded in its place.
        made: The event.
    """
    recorded = record.event
    if type(made) is not type(recorded):
        return _other_step(record, made)
    finder: Callable[..., tuple[Cause, str]] | None = _FINDERS.get(type(made))
    cause, detail = finder(probe, recorded, made) if finder else ("decision changed", "")
    was, now = plain(recorded), plain(made)
    diff = diff_of(was, now)
    if isinstance(made, EvaluationStarted):
        text = probe.system_text()
        recorded_messages, made_messages = probe.opening_messages()
        if text is not None and probe.prompt_text is not None and text != probe.prompt_text:
            diff = diff_of(text, probe.prompt_text)
        elif recorded_messages != made_messages:
            diff = diff_of(recorded_messages, made_messages)
        elif isinstance(recorded, EvaluationStarted) and cause == "tool schema changed":
            diff = _diff_of_tools(probe, recorded.tools, made.tools) or diff
    elif isinstance(made, CheckpointReached):
        values = {name: probe.slice_value(name) for name in probe.slices_touched}
        diff = f"{diff}\n\nslices changed since the last checkpoint, as they are now:\n" + pretty(
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
    probe: Probe, recorded: EvaluationStarted, made: EvaluationStarted
) -> tuple[Cause, str]:
    if (recorded.prompt_ns, recorded.prompt_key) != (made.prompt_ns, made.prompt_key):
        return "prompt changed", f"{recorded.prompt_ns}/{recorded.prompt_key} was recorded"
    if recorded.adapter != made.adapter:
        return "model changed", f"{recorded.adapter} was recorded, and this is {made.adapter}"
    text, now = probe.system_text(), probe.prompt_text
    if text is not None and now is not None and text != now:
        return text_cause(text, now, probe.prompt_again()[0]), ""
    if recorded.tools_digest != made.tools_digest:
        if not recorded.tools and recorded.tools_digest != NO_TOOLS:
            return "tool schema changed", ""  # an old record that does not name them
        return _of_tools(recorded.tools, made.tools)
    recorded_messages, made_messages = probe.opening_messages()
    return (
        "opening messages changed"
        if recorded_messages != made_messages
        else "output schema changed"
    ), ""


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


def _diff_of_tools(
    probe: Probe, recorded: Sequence[OfferedTool], found: Sequence[OfferedTool]
) -> str:
    """The schemas and descriptions that changed; empty if the record does not have them."""
    was, now = ({tool.name: tool for tool in tools} for tools in (recorded, found))
    changed = [name for name in was if name in now and was[name].digest != now[name].digest]
    then, today = (
        {name: probe.tool_spec(tools[name].spec) for name in changed} for tools in (was, now)
    )
    return "" if None in then.values() else diff_of(then, today)


# Where a prompt begins to say what output it wants.
_OUTPUT = f"## {OUTPUT_TITLE}\n"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)(?:[a-z]{1,6})?"
_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
# What a clock, a random source or an id looks like. A short number may be anything else.
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
    """Why a text differs; `again` is the text when it is made once more, if it could be."""
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
    """Whether the parts in which they differ have the same items in another order."""
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
    probe: Probe, recorded: CheckpointReached, made: CheckpointReached
) -> tuple[Cause, str]:
    if (recorded.phase, recorded.tool_calls_completed) != (made.phase, made.tool_calls_completed):
        return "decision changed", ""
    if not probe.folds_alike():
        return "time or randomness used", "a reducer gives another state each time"
    touched = ", ".join(probe.slices_touched)
    return "reducer changed", f"of {touched}" if touched else "or a view of this package"


def _of_a_change(
    probe: Probe, recorded: SliceEventApplied, made: SliceEventApplied
) -> tuple[Cause, str]:
    by_prompt = made.call_id == CREATE_PROMPT
    again = probe.prompt_again()[1] if by_prompt else probe.session_again()
    if made not in again:
        return "time or randomness used", f"in what {made.slice} is given"
    was, now = json_text(recorded), json_text(made)
    if _VOLATILE.sub("#", was) == _VOLATILE.sub("#", now):
        return "time or randomness used", f"in {made.slice}"
    return "session state changed", made.slice


def _of_a_request(probe: Probe, recorded: ModelCalled, made: ModelCalled) -> tuple[Cause, str]:
    if (recorded.adapter, recorded.model) != (made.adapter, made.model):
        was = f"{recorded.adapter} {recorded.model}".strip()
        return "model changed", f"{was} was recorded, and this is {made.adapter} {made.model}"
    if (recorded.turn, recorded.attempt) != (made.turn, made.attempt):
        return "decision changed", ""
    return "request options changed", ""


def _of_a_start(
    probe: Probe, recorded: ToolCallStarted, made: ToolCallStarted
) -> tuple[Cause, str]:
    return "order of calls changed", f"{recorded.call_id} was recorded, and {made.call_id} came"


def _of_a_refusal(probe: Probe, recorded: Event, made: Event) -> tuple[Cause, str]:
    return "tool schema changed", "arguments are refused for another reason"


def _of_an_output(probe: Probe, recorded: Event, made: Event) -> tuple[Cause, str]:
    return "output schema changed", "the answer is parsed to something else"


def _of_a_message(
    probe: Probe, recorded: MessageAppended, made: MessageAppended
) -> tuple[Cause, str]:
    if made.message.role == "tool":
        return "tool schema changed", "arguments are refused for another reason"
    if made.message.role == "system":
        return "prompt text changed", ""
    return "opening messages changed", ""


def _of_a_failure(probe: Probe, recorded: Event, made: Event) -> tuple[Cause, str]:
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
