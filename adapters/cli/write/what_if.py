"""Asking "what if": changes of an event for `fork`, and `run`, which goes on with a run live."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from turnledger.adapters.cli.operate.recover import (
    answer_of,
    ending_on_sigterm,
    loop_of,
    recovered,
    user_name,
)
from turnledger.adapters.cli.shared.command import LedgerCommand, finish, open_ledger, printer
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import RUN
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import ANY, Ledger, ToolCallDecided
from turnledger.projections import ToolCallView, state_at

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:  # not generic in every click that we run with
    _ParamType = click.ParamType


# How much of a wrong value is shown as it should be written.
SHOWN = 60


class ChangeParam(_ParamType):
    """A change of an event: `POINTER=JSON`."""

    name = "change"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> tuple[str, Any]:
        # Takes a while to import, and most commands do without.
        from turnledger.runtime import DataDecodeError
        from turnledger.runtime.agent.schema import read_json

        pointer, equals, text = str(value).partition("=")
        if not equals or not pointer.startswith("/"):
            message = f'{value!r} is no change: write POINTER=JSON, as in /message/content="Hi".'
            raise click.BadParameter(message, ctx, param)
        try:
            return pointer, read_json(text)
        except DataDecodeError as error:
            shown = text if len(text) <= SHOWN and "'" not in text else "some text"
            message = (
                f"{pointer}: {error}. If it is text, it has quotes of its own, and the shell "
                f"needs others around them: --set '{pointer}={json.dumps(shown)}'."
            )
            raise click.BadParameter(message, ctx, param) from None


CHANGE = ChangeParam()


def changes_of(given: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    """The changes by pointer; a usage error if one is set twice."""
    changes = dict(given)
    if len(changes) != len(given):
        raise click.UsageError("Each pointer is set once: --set names one of them twice.")
    return changes


@click.command(
    "run",
    cls=LedgerCommand,
    example="""\
turnledger run 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop
turnledger run 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop --yes""",
)
@click.argument("run", type=RUN)
@click.option(
    "--app",
    required=True,
    metavar="MODULE:FACTORY",
    help="What builds the loop: factory(ledger) gives a MainLoop.",
)
@click.option("--yes", is_flag=True, help="Run calls in doubt again: they may happen twice.")
def run_command(run: UUID, app: str, yes: bool) -> None:
    """Go on with a fork or an interrupted run, live.

    The model is asked and tools are run from where the run stands, to its end. A call that
    was open where a fork was made may have happened already: unless it is decided (see
    `turnledger resolve`) or --yes is given, nothing is run and the exit code is 8.
    """
    with open_ledger() as ledger, ending_on_sigterm():
        is_fork = ledger.run(run).kind == "fork"
        loop = loop_of(app, ledger)
        calls = _in_doubt(ledger, run)
        if calls and yes:
            _run_again(ledger, run)
        elif calls and is_fork and ledger.worker_of(run) is None:
            _say_doubts(run, calls)
            finish(ExitCode.WAITING)
        response, _ = loop.recover(run)
        value = recovered(run, response)
        out = printer()
        pairs = [("run", value["run_id"]), ("verdict", "completed"), ("answer", answer_of(value))]
        out.one(value, lambda: out.pairs(pairs))


def _in_doubt(ledger: Ledger, run: UUID) -> tuple[ToolCallView, ...]:
    from turnledger.runtime.recovery.find import in_doubt

    state = state_at(ledger, run)
    is_over = state.summary.status in ("completed", "parked", "abandoned")
    return () if is_over else in_doubt(ledger, run, state)


def _run_again(ledger: Ledger, run: UUID) -> None:
    """Decide that these calls are to run again; as the run's worker, so that nobody is at them."""
    with ledger.claim(run) as claim:
        decisions = [
            ToolCallDecided(call_id=call.call_id, decision="retry", decided_by=user_name())
            for call in _in_doubt(ledger, run)
        ]
        if decisions:
            ledger.append(run, decisions, ANY, claim.epoch)


def _say_doubts(run: UUID, calls: Sequence[ToolCallView]) -> None:
    named = ", ".join(f"{call.call_id} ({call.name})" for call in calls)
    say(
        f"Error: Run {run} has calls in doubt: {visible(named)}. They were started before the "
        "fork was made or the run was interrupted, and may have happened. Run them again with "
        f"--yes, or say what became of each: turnledger resolve {run} CALL_ID with "
        "--completed JSON, --failed TEXT or --retry."
    )
