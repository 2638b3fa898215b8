"""What began a run, and so what goes on with it: an agent, a workflow, or a block of a script.

A command can call an agent or a workflow again. A block, `with turnledger.run(name)`, is left to
its script, which goes on with it when it is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from turnledger.adapters.cli.shared.command import fail
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import run_name, say
from turnledger.adapters.cli.shared.parameters import name_of
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Ledger, RunInfo, RunStarted
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.runs.names import NAME_TAG

# How many blocks are named that a command leaves to their scripts.
MOST_NAMED = 10


def how_to_continue(ledger: Ledger, run: UUID) -> str:
    """What a person does to continue a run, as a command where there is one."""
    from turnledger.runtime.steps.block import WORKFLOW  # slow to import

    if is_block(ledger, run):
        name = name_of(ledger.run(run)) or str(run)
        return f"run its script again, with turnledger.run({name!r})"
    started = _started(ledger, run)
    kind = "workflow" if started is not None and started.request_type == WORKFLOW else "agent"
    return f"turnledger recover {run_name(run)} --app module:{kind}"


def is_block(ledger: Ledger, run: UUID) -> bool:
    """Whether a block of a script began a run, or the run that it was forked from."""
    from turnledger.runtime.steps.block import BLOCK  # slow to import

    started = _started(ledger, run)
    return started is not None and started.request_type == BLOCK


def _started(ledger: Ledger, run: UUID) -> RunStarted | None:
    from turnledger.runtime.recovery.find import request_event  # slow to import

    return request_event(ledger, run)


def refuse_block(ledger: Ledger, run: UUID) -> None:
    """End the command if a block began the run: there is nothing here that could be called."""
    if is_block(ledger, run):
        fail(
            f"Run {run} is a block of a script, which no command can call. To continue it, "
            f"{how_to_continue(ledger, run)}. To replay it, set TURNLEDGER_REPLAY=1 for that.",
            ExitCode.ERROR,
            run_id=str(run),
        )


def tell_blocks(ledger: Ledger) -> None:
    """Say which interrupted blocks are left to their scripts."""
    names = [f"{name_of(one) or one.run_id} ({one.status})" for one in _interrupted(ledger)]
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        listed = visible(", ".join(names[:MOST_NAMED]))
        say(f"Left to their scripts, which continue them when they are run again: {listed}{more}.")


def _interrupted(ledger: Ledger) -> Iterator[RunInfo]:
    """Blocks that have not ended and that no process is in; damaged ones are left out."""
    for status in ("running", "failed"):
        for info in ledger.runs(status=status, tags={NAME_TAG: None}, on_damage=lambda *_: None):
            try:
                if is_block(ledger, info.run_id) and ledger.worker_of(info.run_id) is None:
                    yield info
            except DAMAGE:
                continue
