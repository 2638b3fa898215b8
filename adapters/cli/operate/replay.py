"""Command `replay`: re-executes a run from its record, or with chosen parts live in a fork."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from turnledger.adapters.cli.operate.begun_by import refuse_block
from turnledger.adapters.cli.operate.other_process import OtherProcess
from turnledger.adapters.cli.operate.workflow import refuse_options, workflow_of
from turnledger.adapters.cli.shared.command import (
    command,
    finish,
    ledger_url,
    open_ledger,
    printer,
    redactor_file,
)
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import run_name, say
from turnledger.adapters.cli.shared.parameters import app_option, run_argument, version_option
from turnledger.adapters.cli.shared.user_code import ending_on_sigterm, load_loop
from turnledger.adapters.terminal_text import visible, visible_lines
from turnledger.ledger import Ledger

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime import Divergence, Replayed
    from turnledger.runtime.replaying.journal import TakenCall
    from turnledger.runtime.replaying.live.selection import Part


@command(
    "replay",
    example="""\
turnledger replay 099a8057
turnledger replay 099a8057 --app myagent:loop
turnledger replay 099a8057 --app myagent:loop --live tool:search""",
)
@run_argument
@app_option(
    help="Your Agent or workflow, or a function of the ledger that returns a MainLoop, to be "
    "executed again.",
)
@version_option(
    "--until",
    least=1,
    metavar="VERSION",
    help="Stop after this version. Default: at the end.",
)
@click.option(
    "--live",
    "live",
    multiple=True,
    metavar="PART",
    help="Perform this effect live, in a fork: 'model' or 'tool:NAME'. Others use the record.",
)
def replay_command(run: UUID, app: str | None, until: int | None, live: tuple[str, ...]) -> None:
    """Replay a run and find the first divergence from its record.

    The run's chain is verified first (exits with 5 if it was changed). Without --app the
    events are folded, and the state at each checkpoint is compared. With --app your loop is
    executed again: models and tools answer from the record, nothing is sent, no handler is
    called, nothing is written. Every decision of your code is compared; the first divergence
    is shown with its likely cause, and exits with 6: your code is then called again, here and
    in a process with another PYTHONHASHSEED, to see what differs each time. With --live the
    chosen effects are performed, and the results are written to a fork, never to the run.
    """
    if live:
        if app is None:
            raise click.UsageError("Missing option '--app': --live needs your loop.")
        _live(run, app, until, live)
        return
    from turnledger.runtime import replay

    workflow = workflow_of(app) if app is not None else None
    if workflow is not None:
        refuse_options(until=until)
        with open_ledger() as ledger:
            refuse_block(ledger, run)
            found = workflow.replay(run, ledger=ledger)
        _print(found)
        finish(ExitCode.OK if found.ok else ExitCode.REPLAY_DIVERGENCE)
        return
    with open_ledger() as ledger, Ledger.open("memory://") as nowhere:
        loop = None
        if app is not None:
            loop = load_loop(app, nowhere)
            refuse_block(ledger, run)
        found = replay(ledger, run, loop=loop, until=until)
    if app is not None and found.divergence is not None:
        other = OtherProcess(ledger_url(), redactor_file(), run, app, until)
        found = replace(found, divergence=other.explain(found.divergence))
    _print(found)
    finish(ExitCode.OK if found.ok else ExitCode.REPLAY_DIVERGENCE)


def _print(found: Replayed) -> None:
    out = printer()
    pairs: list[tuple[str, Any]] = [
        ("run", found.run_id),
        ("verdict", "as recorded" if found.ok else "DIVERGED"),
        ("depth", "code executed" if found.depth == "execute" else "events folded"),
        ("replayed to", f"version {found.version}"),
    ]
    if found.depth == "execute":
        pairs.append(("attempts", found.attempts))
        if found.taken:
            pairs.append(("not compared", visible(_taken(found.taken))))
        if found.recorded_prompts:
            count = len(found.recorded_prompts)
            text = f"the prompts of {count} evaluations, whose texts are others now"
            pairs.append(("as recorded", text))
        if found.not_compared_evaluations:
            count = len(found.not_compared_evaluations)
            text = f"{count} evaluations that were begun under another prompt"
            pairs.append(("not compared", text))
    else:
        pairs.append(("checkpoints", _compared(found)))
    out.one(shown(found), lambda: out.pairs(pairs))
    if found.divergence is not None:
        say(visible_lines(divergence_text(found.divergence)))


def _taken(calls: Iterable[TakenCall]) -> str:
    """Calls of earlier attempts under other adapters or models, by these."""
    versions: dict[str, list[str]] = {}
    for call in calls:
        versions.setdefault(f"{call.adapter} {call.model}".strip(), []).append(str(call.version))
    by_model = (f"{model} (versions {', '.join(places)})" for model, places in versions.items())
    return f"calls of earlier attempts: {', '.join(by_model)}"


def _compared(found: Replayed) -> str:
    text = f"{found.compared} agree"
    if found.not_compared:
        text += f"; {found.not_compared} not compared, they need your reducers: give --app"
    return text


def shown(found: Replayed) -> dict[str, Any]:
    """A replay as JSON data."""
    names = ("version", "tag", "cause", "detail", "hint", "advice", "recorded", "found", "diff")
    parted = found.divergence
    return {
        "run_id": str(found.run_id),
        "depth": found.depth,
        "ok": found.ok,
        "version": found.version,
        "attempts": found.attempts,
        "taken_as_recorded": [asdict(call) for call in found.taken],
        "recorded_prompts": found.recorded_prompts,
        "evaluations_not_compared": found.not_compared_evaluations,
        "checkpoints_compared": found.compared,
        "checkpoints_not_compared": found.not_compared,
        "state_digest": found.state.state_digest,
        "outcome_digest": found.state.outcome_digest,
        "divergence": parted and {name: getattr(parted, name) for name in names},
    }


def divergence_text(divergence: Divergence) -> str:
    """A divergence as text: where, why, what to do, and the difference."""
    cause, detail = divergence.cause, visible(divergence.detail)
    if cause == "your code raised":
        reason = f"Cause: {cause} {detail}"
    else:
        reason = f"Likely cause: {cause} ({detail})" if detail else f"Likely cause: {cause}"
    return (
        f"\nFirst divergence at version {divergence.version}, {divergence.tag}.\n"
        f"{reason}\n"
        f"{divergence.advice}\n\n{divergence.diff}"
    )


def _live(run: UUID, app: str, until: int | None, live: tuple[str, ...]) -> None:
    from turnledger.runtime import replay_live

    with open_ledger() as ledger, ending_on_sigterm():
        found = replay_live(ledger, run, load_loop(app, ledger), live=live, until=until)
    out = printer()
    answer = found.response.text if found.response is not None else None
    parted = found.first_difference
    value = {
        "run_id": str(found.run_id),
        "fork": str(found.fork),
        "forked_at": found.forked_at,
        "status": found.status,
        "live": [asdict(part) for part in found.live],
        "recorded": [asdict(part) for part in found.recorded],
        "answer": answer,
        "error": None if found.error is None else str(found.error),
        "parts_at": None if parted is None else [parted.first, parted.second],
    }
    pairs = [
        ("run", str(found.run_id)),
        ("fork", f"{found.fork}, from version {found.forked_at}"),
        ("status", found.status),
        ("live", _named(found.live)),
        ("from the record", _named(found.recorded)),
    ]
    if answer is not None:
        pairs.append(("answer", visible(answer)))
    if found.error is not None:
        pairs.append(("error", visible(str(found.error))))
    out.one(value, lambda: out.pairs(pairs))
    say(f"To compare them: turnledger compare {run_name(found.run_id)} {run_name(found.fork)}")
    finish(ExitCode.ERROR if found.error is not None else ExitCode.OK)


def _named(parts: Iterable[Part]) -> str:
    """The model turns and tool calls, on one line."""
    named = (
        f"{part.what} {part.call_id}" if part.call_id else f"{part.what} (turn {part.turn})"
        for part in parts
    )
    return visible(", ".join(named) or "nothing")
