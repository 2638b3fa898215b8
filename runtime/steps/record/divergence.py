"""Divergences of steps: what the code asks for, against what a run's record has."""

from __future__ import annotations

import json
from typing import Any

from turnledger.ledger import RunCompleted, RunFailed
from turnledger.ledger.errors import error_text
from turnledger.runtime.agent.prompts.difference import diff_of
from turnledger.runtime.replaying.divergence import Cause, Divergence
from turnledger.runtime.steps.record.index import StepEntry, StepIndex


def changed_arguments(entry: StepEntry, found: Any, client: str = "") -> Divergence:
    """A step with the recorded id, and other arguments.

    Args:
        entry: The recorded step.
        found: The arguments that the code gives it now, as JSON text or data.
        client: What makes the call now, of a model's call.
    """
    recorded, now = _data(entry.arguments), _data(found)
    detail = entry.call_id
    if client and entry.client and client != entry.client:
        detail += f", recorded with {entry.client}, now {client}"
    diff = diff_of(recorded, now) if entry.arguments else "(the recorded arguments are not stored)"
    return Divergence(
        entry.version, entry.tag, "step arguments changed", recorded, now, diff, detail
    )


def other_step(entry: StepEntry, found_id: str, name: str, found: Any, client: str) -> Divergence:
    """The record goes on with another step than the code asks for.

    Args:
        entry: The recorded step that comes next.
        found_id: The id of the step that the code asks for.
        name: Its name.
        found: Its arguments.
        client: What makes the call, of a model's call.
    """
    if entry.name == name and entry.call_id != found_id and ":" in found_id.rpartition("/")[2]:
        return changed_arguments(entry, found, client)
    recorded = {"step": entry.call_id, "arguments": _data(entry.arguments)}
    now = {"step": found_id, "arguments": _data(found)}
    detail = f"recorded {entry.call_id}, found {found_id}"
    return _of(entry, "step changed", recorded, now, detail)


def other_order(entry: StepEntry, found_id: str) -> Divergence:
    """The code asks for a recorded step before the one that comes next in the record."""
    detail = f"recorded {entry.call_id}, found {found_id}, which was recorded later"
    return _of(entry, "order of calls changed", entry.call_id, found_id, detail)


def missing_step(entry: StepEntry) -> Divergence:
    """The code is at its end, and never asked for a recorded step."""
    recorded = {"step": entry.call_id, "arguments": _data(entry.arguments)}
    return _of(entry, "step removed", recorded, None, entry.call_id)


def read_on(entry: StepEntry) -> Divergence:
    """The code reads on in a stream that the recorded run left before its end."""
    detail = f"the recorded run left the stream of {entry.call_id} here, and the code reads on"
    return _of(entry, "step changed", "left before its end", "read on", detail)


def added_step(index: StepIndex, found_id: str, found: Any) -> Divergence:
    """A run that has ended never had this step."""
    tag = RunCompleted.tag if index.completed is not None else RunFailed.tag
    now = {"step": found_id, "arguments": _data(found)}
    return Divergence(
        index.ended_at, tag, "step added", None, now, diff_of(None, now), f"found {found_id}"
    )


def other_end(index: StepIndex, found: Any) -> Divergence | None:
    """How a workflow ends against how the run ended; None if that is the same.

    Args:
        index: The run, which has ended.
        found: The output, as JSON; or the error that was raised.
    """
    is_error = isinstance(found, BaseException)
    now = error_text(found) if is_error else found
    if index.failure is not None:
        recorded = f"{index.failure.error_type}: {index.failure.error_message}"
        if is_error and index.failure.error_type == type(found).__name__:
            return None
        diff = diff_of(recorded, now)
        return Divergence(index.ended_at, RunFailed.tag, "failure changed", recorded, now, diff)
    assert index.completed is not None
    output = index.completed.output
    if not is_error and output == found:
        return None
    cause: Cause = "your code raised" if is_error else "result changed"
    detail = now if is_error else ""
    diff = diff_of(output, now)
    return Divergence(index.ended_at, RunCompleted.tag, cause, output, now, diff, detail)


def _of(entry: StepEntry, cause: Cause, recorded: Any, found: Any, detail: str) -> Divergence:
    diff = diff_of(recorded, found)
    return Divergence(entry.version, entry.tag, cause, recorded, found, diff, detail)


def _data(arguments: Any) -> Any:
    """Arguments as data, if they are JSON text."""
    if not isinstance(arguments, str) or not arguments:
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
