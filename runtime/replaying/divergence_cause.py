"""Finds the likely cause of a divergence: what changed in the program since the run.

The cause is what the recorded event and the one that came instead say. "Time or randomness used"
is said where it was seen: the user's code is called a second time, and what differs from itself
depends on something that is not recorded. What a difference merely looks like is a hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from turnledger.ledger import (
    ApprovalRequested,
    CheckpointReached,
    EvaluationFinished,
    EvaluationStarted,
    Event,
    MessageAppended,
    ModelCalled,
    OfferedTool,
    OutputRejected,
    Record,
    RunCompleted,
    RunFailed,
    SliceEventApplied,
    ToolCallFailed,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.runtime.agent.prompts.difference import (
    ToolChanges,
    diff_of,
    diff_of_tools,
    pretty,
)
from turnledger.runtime.agent.prompts.output import OutputSpec
from turnledger.runtime.agent.prompts.render import NO_TOOLS, OUTPUT_TITLE
from turnledger.runtime.errors import OutputParseError
from turnledger.runtime.journal.loop_progress import CREATE_PROMPT
from turnledger.runtime.replaying.divergence import Cause, Divergence, json_text, plain


class Probe(Protocol):
    """What finding causes may ask of a replay: the program's state, and its code once more."""

    @property
    def prompt_text(self) -> str | None:
        """The text of the prompt that is evaluated; None before there is one."""

    @property
    def last_model(self) -> str:
        """Adapter and model of the run's last call; empty if it has none."""

    @property
    def output(self) -> OutputSpec[Any] | None:
        """The output type of the prompt that is evaluated."""

    def prompt_differs_from_itself(self) -> bool:
        """Whether the prompt, made once more, is another one."""

    def prompt_digest_without(self, setting: str) -> str | None:
        """The prompt's digest without a setting of its template; None if it can't be made."""

    def prompt_changes_again(self) -> Sequence[Event] | None:
        """What create_prompt records when it is called once more; None if it raises."""

    @property
    def slices_touched(self) -> Sequence[str]:
        """The slices that were changed since the last checkpoint."""

    def slice_value(self, name: str) -> Any:
        """What a slice is now, as JSON data."""

    def folds_alike(self) -> bool:
        """Whether folding the same events twice gives the same state."""

    def session_again(self) -> Sequence[Event] | None:
        """What create_session records when it is called once more; None if it raises."""

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
        return _other_step(probe, record, made)
    finder: Callable[..., tuple[Cause, str]] | None = _FINDERS.get(type(made))
    cause, detail = finder(probe, recorded, made) if finder else ("decision changed", "")
    was, now = plain(recorded), plain(made)
    diff = diff_of(was, now)
    hint, made_text = "", json_text(made)
    match made:
        case EvaluationStarted():
            text, recorded_text = probe.prompt_text, probe.system_text()
            recorded_messages, made_messages = probe.opening_messages()
            made_text = pretty([text, [tool.name for tool in made.tools], made_messages])
            if recorded_text is not None and text is not None and recorded_text != text:
                diff, hint = diff_of(recorded_text, text), looks_like(recorded_text, text)
            elif recorded_messages != made_messages:
                diff = diff_of(recorded_messages, made_messages)
                hint = looks_like(pretty(recorded_messages), pretty(made_messages))
            elif isinstance(recorded, EvaluationStarted) and cause == "tool schema changed":
                diff = diff_of_tools(recorded.tools, made.tools, probe.tool_spec) or diff
        case SliceEventApplied():
            hint = looks_like(json_text(recorded), json_text(made))
        case CheckpointReached():
            made_text = pretty({name: probe.slice_value(name) for name in probe.slices_touched})
            diff += f"\n\nslices changed since the last checkpoint, as they are now:\n{made_text}"
    if cause == "time or randomness used":
        hint = ""  # it was seen
    return Divergence(record.version, record.tag, cause, was, now, diff, detail, hint, made_text)


def _other_step(probe: Probe, record: Record, made: Event) -> Divergence:
    recorded = record.event
    cause: Cause = "decision changed"
    detail = f"{record.tag} was recorded, and {made.tag} came"
    if isinstance(made, SliceEventApplied) and _differs_from_itself(probe, made):
        cause, detail = "time or randomness used", f"seen in what {made.slice} is given"
    elif any(isinstance(one, ApprovalRequested) for one in (recorded, made)):
        cause = "needs_approval changed"
    elif all(isinstance(one, ToolCallStarted | ToolCallFailed) for one in (recorded, made)):
        cause = "tool schema changed"
    elif isinstance(made, RunFailed) and isinstance(recorded, _ANSWERS) and _refuses_answer(made):
        cause, detail = "recorded answer refused", made.error_message
    elif isinstance(made, _ANSWERS) and _refuses_answer(recorded):
        cause, detail = "output type changed", "the recorded answer was refused and is taken now"
    elif any(isinstance(one, RunFailed) for one in (recorded, made)):
        cause = "failure changed"
    elif any(isinstance(one, SliceEventApplied) for one in (recorded, made)):
        cause = "session state changed"
    was, now = plain(recorded), plain(made)
    diff = diff_of(was, {"tag": made.tag, **now})
    return Divergence(
        record.version, record.tag, cause, was, now, diff, detail, made=json_text(made)
    )


# What an evaluation records of an answer that its output type takes.
_ANSWERS = (ToolMessageAmended, EvaluationFinished)


def _refuses_answer(event: Event) -> bool:
    if not isinstance(event, RunFailed):
        return isinstance(event, OutputRejected)
    return event.phase == "response" and event.cause == OutputParseError.__name__


# --- causes -------------------------------------------------------------------------------


def _of_an_evaluation(
    probe: Probe, recorded: EvaluationStarted, made: EvaluationStarted
) -> tuple[Cause, str]:
    if (recorded.prompt_ns, recorded.prompt_key) != (made.prompt_ns, made.prompt_key):
        return "prompt changed", f"{recorded.prompt_ns}/{recorded.prompt_key} was recorded"
    if recorded.adapter != made.adapter:
        return _of_a_model(probe, recorded.adapter, made.adapter)
    if probe.prompt_differs_from_itself():
        return "time or randomness used", "seen: made twice in this process, the prompt differs"
    text, now = probe.system_text(), probe.prompt_text
    if text is not None and now is not None and text != now:
        base, asked = _split(text)
        base_now, asked_now = _split(now)
        if base != base_now:
            return "prompt text changed", ""
        return _of_output(probe, recorded.prompt_digest, asked, asked_now)
    if recorded.tools_digest != made.tools_digest:
        if not recorded.tools and recorded.tools_digest != NO_TOOLS:
            return "tool schema changed", ""  # an old record that does not name them
        return _of_tools(recorded.tools, made.tools)
    recorded_messages, made_messages = probe.opening_messages()
    if recorded_messages != made_messages:
        return "opening messages changed", ""
    return _of_output(probe, recorded.prompt_digest, "", "")


# Where a prompt begins to say what output it wants: always its last paragraphs.
_OUTPUT = f"## {OUTPUT_TITLE}\n\nAnswer with one JSON "
_ANOTHER_WAY = "use_native_response_format or inject_output_instructions: the type is the same"


def _split(text: str) -> tuple[str, str]:
    """A prompt's own text, and how it asks for its output type."""
    at = text.rfind(_OUTPUT)
    return (text, "") if at < 0 else (text[:at].rstrip("\n"), text[at:])


def _of_output(probe: Probe, recorded: str, asked: str, asked_now: str) -> tuple[Cause, str]:
    """What changed about the output type, where nothing else of the prompt did.

    Args:
        probe: The replay.
        recorded: The digest of the recorded prompt.
        asked: How the recorded prompt asked for its output; empty if it did not.
        asked_now: The same of the prompt that is made now.
    """
    output = probe.output
    if output is None:
        return "output type dropped", ""
    if not asked and recorded == probe.prompt_digest_without("output"):
        return "output type added", str(output.kind)
    is_same = (
        asked.endswith(output.instructions)
        if asked
        else recorded == probe.prompt_digest_without("inject_output_instructions")
    )
    if is_same and bool(asked) != bool(asked_now):
        return "request options changed", _ANOTHER_WAY
    return "output type changed", ""


def _of_tools(recorded: Sequence[OfferedTool], found: Sequence[OfferedTool]) -> tuple[Cause, str]:
    was, now = ({tool.name: tool.digest for tool in tools} for tools in (recorded, found))
    new, gone, changed = ToolChanges.between(recorded, found)
    if len(gone) == 1 and len(new) == 1 and was[gone[0]] == now[new[0]]:
        return "tool renamed", f"{gone[0]} is {new[0]} now"
    if gone:
        return "tool removed", ", ".join(gone)
    if new:
        return "tool added", ", ".join(new)
    if changed:
        return "tool schema changed", ", ".join(changed)
    return "tool order changed", ", ".join(now)


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
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
REORDERED = "the same words in another order. If they come from a set, sort them."
_CHANGING = "only what looks like a time, a number or an id differs. Does your code read a clock?"


def looks_like(recorded: str, found: str) -> str:
    """What a difference of texts looks like; empty if like nothing in particular."""
    if recorded == found:
        return ""
    if _is_reordered(recorded, found):
        return REORDERED
    return _CHANGING if _VOLATILE.sub("#", recorded) == _VOLATILE.sub("#", found) else ""


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
        return "time or randomness used", "seen: a reducer gives another state each time"
    touched = ", ".join(probe.slices_touched)
    return "reducer changed", f"of {touched}" if touched else "or a view of this package"


def _of_a_change(
    probe: Probe, recorded: SliceEventApplied, made: SliceEventApplied
) -> tuple[Cause, str]:
    if _differs_from_itself(probe, made):
        return "time or randomness used", f"seen in what {made.slice} is given"
    return "session state changed", made.slice


def _differs_from_itself(probe: Probe, made: SliceEventApplied) -> bool:
    """Whether create_prompt or create_session, called once more, does not record this change."""
    by_prompt = made.call_id == CREATE_PROMPT
    again = probe.prompt_changes_again() if by_prompt else probe.session_again()
    return again is not None and made not in again


def _of_a_request(probe: Probe, recorded: ModelCalled, made: ModelCalled) -> tuple[Cause, str]:
    if (recorded.adapter, recorded.model) != (made.adapter, made.model):
        was = f"{recorded.adapter} {recorded.model}".strip()
        return _of_a_model(probe, was, f"{made.adapter} {made.model}")
    if (recorded.turn, recorded.attempt) != (made.turn, made.attempt):
        return "decision changed", ""
    return "request options changed", ""


def _of_a_model(probe: Probe, was: str, now: str) -> tuple[Cause, str]:
    detail, last = f"{was} was recorded, and this is {now}", probe.last_model
    if was not in (last, last.partition(" ")[0]):
        detail += f"; the run's last call was by {last}: replay with that"
    return "model changed", detail


def _of_a_start(
    probe: Probe, recorded: ToolCallStarted, made: ToolCallStarted
) -> tuple[Cause, str]:
    return "order of calls changed", f"{recorded.call_id} was recorded, and {made.call_id} came"


def _of_a_refusal(probe: Probe, recorded: Event, made: Event) -> tuple[Cause, str]:
    return "tool schema changed", "arguments are refused for another reason"


def _of_an_output(probe: Probe, recorded: Event, made: Event) -> tuple[Cause, str]:
    return "output type changed", "the answer is parsed to something else"


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
    ToolMessageAmended: _of_an_output,
    EvaluationFinished: _of_an_output,
    OutputRejected: _of_an_output,
    RunCompleted: _of_an_output,
    RunFailed: _of_a_failure,
}
