"""Commands for interrupted runs and forks: pending, resolve, recover, run, abandon."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.exit_codes import ExitCode, exit_code_of
from turnledger.adapters.cli.shared.output import Format, say, shortened
from turnledger.adapters.cli.shared.parameters import (
    flag,
    loop_option,
    optional_run_argument,
    run_argument,
)
from turnledger.adapters.cli.shared.user_code import ending_on_sigterm, load_loop
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import (
    ANY,
    CheckpointCleared,
    Event,
    InvalidInputError,
    Ledger,
    RunAbandoned,
    RunClaimedError,
    RunNotFoundError,
    ToolCallDecided,
    TurnledgerError,
)
from turnledger.ledger.errors import DAMAGE, error_text
from turnledger.projections import PendingTools, ToolCallView, fold

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime import MainLoop, PromptResponse

# Width of a call's arguments in a table.
CELL = 60


@command(example="turnledger pending -o json")
@optional_run_argument
def pending(run: UUID | None) -> None:
    """List tool calls that have not ended.

    Of one run, or of all runs that have not ended. A call in doubt was started and its
    outcome is unknown; if its run waits, a person has to decide: see `turnledger resolve`.
    Of all runs, damaged ones are skipped and named, and the exit code is 5.
    """
    skipped = SkippedRuns()
    with open_ledger() as ledger:
        found = list(_unfinished(ledger, run, skipped))
    out = printer()
    if out.form is not Format.TABLE:
        out.many((_shown(*one) for one in found), str, flush=False)
        finish(skipped.code)
        return
    out.rows(
        ("run", "status", "call", "tool", "state", "attempts", "decided", "arguments"),
        (
            (
                str(run_id),
                status,
                visible(call.call_id),
                visible(call.name),
                call.status,
                str(call.attempts),
                call.decision or "",
                shortened(visible(call.arguments), CELL),
            )
            for run_id, status, call in found
        ),
    )
    finish(skipped.code)


def _open_calls(ledger: Ledger, run: UUID) -> tuple[ToolCallView, ...]:
    return fold(ledger.read(run), PendingTools()).pending()


def _unfinished(
    ledger: Ledger, run: UUID | None, skipped: SkippedRuns
) -> Iterator[tuple[UUID, str, ToolCallView]]:
    if run is not None:
        info = ledger.run(run)
        yield from ((run, info.status, c) for c in _open_calls(ledger, run))
        return
    for status in ("waiting", "running", "failed", "parked"):
        for info in ledger.runs(status=status, on_damage=skipped):
            try:
                # With checks: a call that is not shown because its record is lost may be repeated.
                calls = fold(ledger.checked(info.run_id).read_on(), PendingTools()).pending()
            except DAMAGE as error:
                skipped(str(info.run_id), error)
                continue
            yield from ((info.run_id, status, call) for call in calls)


def _shown(run_id: UUID, status: str, call: ToolCallView) -> dict[str, Any]:
    return {
        "run_id": str(run_id),
        "run_status": status,
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "status": call.status,
        "attempts": call.attempts,
        "decision": call.decision,
    }


@command(
    example="""\
turnledger resolve 01890a5d-ac96-774b-bcce-b302099a8057 call_7 --completed '{"paid": true}'
turnledger resolve 01890a5d-ac96-774b-bcce-b302099a8057 call_7 --failed "the bank refused"
turnledger resolve 01890a5d-ac96-774b-bcce-b302099a8057 call_7 --retry""",
)
@run_argument
@click.argument("call_id")
@click.option("--completed", metavar="JSON", help="The call happened, with this result.")
@click.option("--failed", metavar="TEXT", help="The call did not happen, for this reason.")
@flag("--retry", help="Run the call again.")
@click.option(
    "--by", metavar="NAME", help="Name of the person who decides. Default: your user name."
)
def resolve(
    run: UUID,
    call_id: str,
    completed: str | None,
    failed: str | None,
    retry: bool,
    by: str | None,
) -> None:
    """Decide the outcome of a tool call in doubt.

    The decision is recorded, and used when the run is recovered.
    """
    if (completed is not None) + (failed is not None) + retry != 1:
        raise click.UsageError("Give exactly one of --completed, --failed and --retry.")
    value = None
    if completed is not None:
        try:
            value = msgspec.json.decode(completed)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise click.BadParameter(f"not JSON: {error}", param_hint="--completed") from None
    with open_ledger() as ledger:
        ledger.run(run)
        if not _is_in_doubt(ledger, run, call_id):
            finish(ExitCode.NOT_FOUND)
        decision = ToolCallDecided(
            call_id=call_id,
            decision="retry" if retry else "completed" if failed is None else "failed",
            value=value,
            text=failed or "",
            decided_by=by or _user_name(),
        )
        ledger.append(run, decision, ANY)
    say(f"Recorded. Continue the run: turnledger recover {run} --app module:factory")


def _is_in_doubt(ledger: Ledger, run: UUID, call_id: str) -> bool:
    """Whether the run has such a call.

    Raises:
        InvalidInputError: The call was never started.
        RunClaimedError: A worker is running the call.
    """
    calls = _open_calls(ledger, run)
    found = [call for call in calls if call.call_id == call_id]
    if not found:
        known = ", ".join(call.call_id for call in calls) or "none"
        say(
            f"Error: Unknown call {visible(call_id)}. Calls of run {run} that have not ended: "
            f"{visible(known)}."
        )
        return False
    if found[-1].status not in ("started", "in_doubt"):
        raise InvalidInputError(
            f"Call {call_id!r} of run {run} is not in doubt but {found[-1].status}: it was never "
            "started, and runs when the run continues."
        )
    worker = ledger.worker_of(run)
    if found[-1].status == "started" and worker is not None:
        # Not in doubt: a worker is running it.
        raise RunClaimedError(str(run), worker=worker, epoch=ledger.run(run).epoch)
    return True


def _user_name() -> str:
    """The name of the operating system's user; "" if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


# --- recover, run, abandon ----------------------------------------------------------


@command(
    example="""\
turnledger recover 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop
turnledger recover --all --app myagent:loop""",
)
@optional_run_argument
@flag("--all", "everything", help="All runs that can be recovered.")
@loop_option
def recover(run: UUID | None, everything: bool, app: str) -> None:
    """Resume interrupted runs and run them to their end.

    FACTORY is your code: it is called with the ledger and returns the loop. Exits with 7 if
    another worker holds the run, with 8 if it waits for a decision; with --all with the
    highest code of all. SIGTERM and Ctrl-C stop it and leave the run resumable.
    """
    if (run is not None) == everything:
        raise click.UsageError("Give either a run or --all.")
    with open_ledger() as ledger, ending_on_sigterm():
        loop = load_loop(app, ledger)
        if run is not None:
            if not ledger.head(run):
                raise RunNotFoundError(str(run))
            response, _ = loop.recover(run)
            _print(_recovered(run, response), "recovered")
            return
        finish(_recover_all(loop))


def _recover_all(loop: MainLoop[Any, Any]) -> ExitCode:
    """Recover all runs, printing each; the highest exit code of those that failed."""
    worst, skipped = ExitCode.OK, SkippedRuns()

    def each() -> Iterator[dict[str, Any]]:
        nonlocal worst
        for found in loop.list_recoverable(on_damage=skipped):
            try:
                response, _ = loop.recover(found)
                yield _recovered(found.run_id, response)
            except TurnledgerError as error:
                say(f"{found.run_id}: {error}")
                worst = max(worst, exit_code_of(error))
            except Exception as error:
                # An error of the user's code must not stop the other runs.
                say(f"{found.run_id}: {error_text(error)}")
                worst = max(worst, ExitCode.ERROR)

    printer().many(each(), lambda one: f"{one['run_id']}  {_answer_of(one)}", flush=True)
    return max(worst, skipped.code)


def _recovered(run: UUID, response: PromptResponse[Any]) -> dict[str, Any]:
    """A completed run as JSON."""
    return {"run_id": str(run), "text": response.text, "output": _plain(response.output)}


def _print(value: dict[str, Any], verdict: str) -> None:
    out = printer()
    pairs = [("run", value["run_id"]), ("verdict", verdict), ("answer", _answer_of(value))]
    out.one(value, lambda: out.pairs(pairs))


def _answer_of(value: dict[str, Any]) -> str:
    """The answer as text, safe to print."""
    return visible(value["text"] or str(value["output"]))


def _plain(output: Any) -> Any:
    from turnledger.runtime.agent.schema import to_plain

    return to_plain(output)


@command(
    "run",
    example="""\
turnledger run 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop
turnledger run 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop --yes""",
)
@run_argument
@loop_option
@flag("--yes", help="Run calls in doubt again, although they may have happened.")
def run_command(run: UUID, app: str, yes: bool) -> None:
    """Continue a fork or an interrupted run, live.

    Calls the model and runs tools from the run's last event to its end. A tool call that was
    open where a fork was made may have happened already: unless it is decided (see
    `turnledger resolve`) or --yes is given, nothing is run and the exit code is 8.
    """
    with open_ledger() as ledger, ending_on_sigterm():
        is_fork = ledger.run(run).kind == "fork"
        loop = load_loop(app, ledger)
        calls = _in_doubt(ledger, run)
        if calls and yes:
            _run_again(ledger, run)
        elif calls and is_fork and ledger.worker_of(run) is None:
            _say_doubts(run, calls)
            finish(ExitCode.WAITING)
        response, _ = loop.recover(run)
        _print(_recovered(run, response), "completed")


def _in_doubt(ledger: Ledger, run: UUID) -> tuple[ToolCallView, ...]:
    from turnledger.runtime.recovery.run_reader import RunReader

    reader = RunReader(ledger, run)
    is_over = reader.known.run.summary.status in ("completed", "parked", "abandoned")
    return () if is_over else reader.in_doubt()


def _run_again(ledger: Ledger, run: UUID) -> None:
    """Record the decision to run these calls again, under a claim: no other worker runs them."""
    with ledger.claim(run) as claim:
        decisions = [
            ToolCallDecided(call_id=call.call_id, decision="retry", decided_by=_user_name())
            for call in _in_doubt(ledger, run)
        ]
        if decisions:
            ledger.append(run, decisions, ANY, claim.epoch)


def _say_doubts(run: UUID, calls: Sequence[ToolCallView]) -> None:
    named = ", ".join(f"{call.call_id} ({call.name})" for call in calls)
    say(
        f"Error: Run {run} has calls in doubt: {visible(named)}. They were started before the "
        "fork was made or the run was interrupted, and may have happened. Run them again with "
        f"--yes, or decide each: turnledger resolve {run} CALL_ID with --completed JSON, "
        "--failed TEXT or --retry."
    )


@command(example="turnledger abandon 01890a5d-ac96-774b-bcce-b302099a8057")
@run_argument
@click.option("--reason", default="", metavar="TEXT", help="Reason; it is recorded.")
def abandon(run: UUID, reason: str) -> None:
    """Mark a run as abandoned, so that it is not recovered.

    Its events stay. Exits with 7 if another worker holds the run.
    """
    with open_ledger() as ledger:
        status = ledger.run(run).status
        if status in ("completed", "abandoned"):
            say(f"Run {run} is {status} already.")
            return
        events: list[Event] = [
            RunAbandoned(reason=reason),
            CheckpointCleared(reason="the run is abandoned"),
        ]
        for event in events:
            ledger.codec.encode(event)  # refuse an invalid event before the claim is recorded
        with ledger.claim(run) as claim:
            ledger.append(run, events, ANY, claim.epoch)
    say(f"Run {run} is abandoned.")
