"""Replay of history files: runs that were exported, replayed on today's code.

The pytest plugin and `turnledger export --test` are made of this. No model is asked, no tool is
called, the network is refused, and the file is only read.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import get_ident
from typing import Any, BinaryIO, TypeAlias

from turnledger.adapters.testing.no_network import Attempt, no_network
from turnledger.adapters.testing.scripts import replay_script
from turnledger.ledger import (
    IntegrityFailureError,
    InvalidRunIdError,
    Ledger,
    Limits,
    TurnledgerError,
    import_runs,
)
from turnledger.ledger.events.limits import BATCH_CEILING
from turnledger.ledger.redaction import STANDARD, Redactor
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.ledger.runs.index import RunInfo
from turnledger.runtime import MainLoop, Replayed, replay
from turnledger.runtime.agents.agent import Agent
from turnledger.runtime.recovery.find import request_event
from turnledger.runtime.recovery.request_types import takes_type, type_name
from turnledger.runtime.steps import Workflow
from turnledger.runtime.steps.block import BLOCK, WORKFLOW

# An agent, or what builds a loop: it takes a ledger, or nothing.
LoopFactory: TypeAlias = Agent[Any, Any] | Callable[..., MainLoop[Any, Any]]
# Code that a run is replayed on: that, a workflow, or a script with blocks.
Factory: TypeAlias = LoopFactory | Workflow[Any, Any] | Path

# A ledger took it when it was recorded, whatever its limits were.
_VAST = 1 << 40
_TAKES_ALL = Limits(
    max_event_bytes=_VAST,
    max_batch_events=BATCH_CEILING,
    max_batch_bytes=_VAST,
    max_json_depth=200,
    max_blob_bytes=_VAST,
)


class HistoryError(TurnledgerError):
    """A history can't be replayed: no such file, run or version, or the wrong loop."""


class HistoryDamagedError(HistoryError, IntegrityFailureError):
    """A history is not as it was exported: there is nothing to compare with."""


class HistoryFailedError(TurnledgerError):
    """Today's code does not do what a history says, or asks for the network on the way."""

    def __init__(self, summary: str, report: str) -> None:
        # The first of it in a line, for those who have no room for the whole.
        self.summary = summary
        super().__init__(report)


def replay_history(
    history: Path,
    factory: Factory,
    *,
    run: RunId | None = None,
    until: int | None = None,
    redactor: Redactor | None = STANDARD,
) -> tuple[Replayed, ...]:
    """Run the runs of a file again: those that were asked for what the loop takes, or one.

    HistoryFailedError names the first difference from the record, HistoryDamagedError that the
    file was changed, HistoryError that there is nothing to run.
    """
    try:
        file = history.open("rb")
    except OSError as error:
        raise HistoryError(
            f"{history}: {error.strerror or error}. `turnledger export RUN --test FILE --app "
            "MODULE:AGENT` writes a history and its test."
        ) from error
    with file:
        return replay_file(file, str(history), factory, run=run, until=until, redactor=redactor)


def replay_file(
    file: BinaryIO,
    name: str,
    factory: Factory,
    *,
    run: RunId | None = None,
    until: int | None = None,
    redactor: Redactor | None = STANDARD,
) -> tuple[Replayed, ...]:
    """The same for a file that is open."""
    with ExitStack() as ending, no_network() as attempts:
        ledger = ending.enter_context(
            Ledger.open("memory://", limits=_TAKES_ALL, redactor=redactor)
        )
        _take(ledger, file, name)
        replays: list[Replayed]
        if isinstance(factory, Workflow | Path):
            replays = _replay_steps(ledger, name, factory, run, until)
        else:
            first = _loop(factory, ending)
            chosen = _chosen(ledger, name, first, run)
            _check_until(chosen, name, until)
            # One loop for each: what a loop remembers of another run is not on record.
            loops = [first, *(_loop(factory, ending) for _ in chosen[1:])]
            attempts.clear()  # what building them tried in vain is not part of a run
            replays = [
                _replay(ledger, name, info, loop, until)
                for info, loop in zip(chosen, loops, strict=True)
            ]
        _judge(replays, name, attempts)
    return tuple(replays)


def _replay_steps(
    ledger: Ledger,
    name: str,
    code: Workflow[Any, Any] | Path,
    run: RunId | None,
    until: int | None,
) -> list[Replayed]:
    """Replay the runs of a workflow, or the blocks of a script.

    Args:
        ledger: Has the runs of the file.
        name: The file, for messages.
        code: What is run again.
        run: The run; by default all that the code may have begun.
        until: Must be None: steps are compared up to the end of a run.
    """
    if until is not None:
        raise HistoryError("until= is for runs of an agent; those of steps are run to their end.")
    runs = sorted(ledger.runs(), key=lambda info: (info.started_at, info.run_id))
    if run is not None:
        runs = [_the_one(runs, name, run)]
    wanted = (WORKFLOW, code.name) if isinstance(code, Workflow) else (BLOCK, "")
    began = [(info, request_event(ledger, info.run_id)) for info in runs]
    chosen = [info for info, by in began if by and (by.request_type, by.agent) == wanted]
    if not chosen:
        there = ", ".join(sorted({by.request_type for _, by in began if by})) or "nothing"
        what = f"the workflow {code.name!r}" if isinstance(code, Workflow) else "a script's block"
        raise HistoryError(f"{name} has no run that {what} began. What is there: {there}.")
    try:
        if isinstance(code, Path):
            return replay_script(ledger, code, [info.run_id for info in chosen])
        return [code.replay(info.run_id, ledger=ledger) for info in chosen]
    except TurnledgerError as error:
        raise HistoryFailedError(str(error), f"{error}\nSo {name} can't be run again.") from error


def _take(ledger: Ledger, file: BinaryIO, name: str) -> None:
    try:
        import_runs(ledger, file)
    except IntegrityFailureError as error:
        raise HistoryDamagedError(
            f"{name} is damaged, so there is nothing to compare with: {error}\n"
            "This says nothing about the code. Take the file from version control again."
        ) from error
    except TurnledgerError as error:
        raise HistoryError(f"{name} can't be read: {error}") from error


def _loop(factory: LoopFactory, ending: ExitStack) -> MainLoop[Any, Any]:
    """A loop with an empty ledger of its own, so that it has nothing to write into."""
    build: Callable[..., Any] = factory.loop if isinstance(factory, Agent) else factory
    if not callable(build):
        raise HistoryError(
            f"Expected an Agent, or a function that builds the loop, got a {type(build).__name__}."
        )
    ledger = ending.enter_context(Ledger.open("memory://"))
    loop = build(ledger) if _takes_a_ledger(build) else build()
    if not isinstance(loop, MainLoop):
        raise HistoryError(f"The factory gave a {type(loop).__name__}, not a MainLoop.")
    return loop


def _takes_a_ledger(factory: Callable[..., Any]) -> bool:
    try:
        inspect.signature(factory).bind(None)
    except TypeError:
        return False
    except ValueError:  # it does not say
        return True
    return True


# --- which runs --------------------------------------------------------------------------------


def _chosen(
    ledger: Ledger, name: str, loop: MainLoop[Any, Any], run: RunId | None
) -> list[RunInfo]:
    """The runs that this loop is to run again, oldest first."""
    runs = sorted(ledger.runs(), key=lambda info: (info.started_at, info.run_id))
    if run is not None:
        runs = [_the_one(runs, name, run)]
    wanted, agent = type_name(loop.request_type), loop.loop_host.name
    asked = [(info, _asked_for(ledger, info)) for info in runs]
    fitting = [
        info
        for info, kind in asked
        if kind is not None and takes_type(loop.request_type, kind) and info.agent == agent
    ]
    if not fitting:
        there = ", ".join(sorted({kind for _, kind in asked if kind})) or "nothing"
        which = "The run" if run is not None else "What is there"
        raise HistoryError(
            f"{name} has no run of this loop, which takes {wanted or 'any request'}"
            f"{f' for agent {agent!r}' if agent else ''}. "
            f"{which} was asked for: {there}."
        )
    return fitting


def _the_one(runs: list[RunInfo], name: str, run: RunId) -> RunInfo:
    try:
        wanted = canonical_id(run)
    except InvalidRunIdError as error:
        raise HistoryError(str(error)) from error
    for info in runs:
        if str(info.run_id) == wanted:
            return info
    there = ", ".join(str(info.run_id) for info in runs) or "none"
    raise HistoryError(f"{name} has no run {wanted}. It has: {there}.")


def _asked_for(ledger: Ledger, info: RunInfo) -> str | None:
    """The type of a run's request; a fork's is its parent's. None if no request is recorded."""
    asked = request_event(ledger, info.run_id)
    return None if asked is None or asked.request_id is None else asked.request_type


def _check_until(chosen: list[RunInfo], name: str, until: int | None) -> None:
    if until is None:
        return
    if len(chosen) != 1:
        runs = ", ".join(str(info.run_id) for info in chosen)
        raise HistoryError(f"until={until} is a version of one run: say run=. {name} has {runs}.")
    first, last = chosen[0].parent_version + 1, chosen[0].version
    if not first <= until <= last:
        raise HistoryError(
            f"{name}: run {chosen[0].run_id} has no version {until}; it has {first} to {last}."
        )


# --- what came of it ---------------------------------------------------------------------------


def _replay(
    ledger: Ledger, name: str, info: RunInfo, loop: MainLoop[Any, Any], until: int | None
) -> Replayed:
    try:
        return replay(ledger, info.run_id, loop=loop, until=until)
    except TurnledgerError as error:
        # What was asked for can't be understood any more, say.
        said = f"{error}\nSo run {info.run_id} of {name} can't be run again."
        raise HistoryFailedError(str(error), said) from error


def _judge(replays: list[Replayed], name: str, attempts: list[Attempt]) -> None:
    """HistoryFailedError if anything came out differently, or came from outside."""
    parted = [one for one in replays if one.divergence is not None]
    # Other threads may have business of their own; it counts where something went wrong.
    refused = [a for a in attempts if parted or a.thread == get_ident()]
    if not parted and not refused:
        return
    reports = [_report(one, name) for one in parted]
    summary = parted[0].divergence.summary if parted and parted[0].divergence else ""
    if refused:
        wanted = "\n".join(dict.fromkeys(f"  {attempt}" for attempt in refused))
        reports.append(
            f"The code asked for the network, which a replay of {name} refuses:\n{wanted}\n"
            "What a run needs from outside comes from its request, or from a tool."
        )
        summary = summary or f"the network was asked for: {refused[0]}"
    if parted:
        look = f"turnledger import {shlex.quote(name)} --db bug.db"
        reports.append(f"To look: {look} && turnledger log {parted[0].run_id} --db bug.db")
    raise HistoryFailedError(summary, "\n\n".join(reports))


def _report(parted: Replayed, name: str) -> str:
    """What a person needs to know; the first line is all that a list of failures shows."""
    found = parted.divergence
    assert found is not None
    where = f"Run {parted.run_id} of {name} differs from its record there."
    return f"{found.summary}\n{where}\n{found.advice}\n\n{found.diff}".rstrip()
