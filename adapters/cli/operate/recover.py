"""Commands for interrupted runs and forks: recover, run, abandon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from turnledger.adapters.cli.operate.changed_prompt import (
    changed_prompt_options,
    choice_of,
    showing_difference,
)
from turnledger.adapters.cli.operate.decide import user_name
from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.exit_codes import ExitCode, exit_code_of
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import (
    flag,
    loop_option,
    optional_run_argument,
    run_argument,
    version_option,
)
from turnledger.adapters.cli.shared.user_code import ending_on_sigterm, load_loop
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import (
    ANY,
    CheckpointCleared,
    Event,
    Ledger,
    RunAbandoned,
    RunNotFoundError,
    TurnledgerError,
)
from turnledger.ledger.errors import error_text
from turnledger.projections import ToolCallView

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime import MainLoop, PromptResponse

turns_option = version_option(
    "--max-turns",
    least=1,
    help="The most replies of the model in the run, in place of the recorded limit.",
)


# --- recover, run, abandon ----------------------------------------------------------


@command(
    example="""\
turnledger recover 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop
turnledger recover --all --app myagent:loop""",
)
@optional_run_argument
@flag("--all", "everything", help="All runs that can be recovered.")
@loop_option
@turns_option
@changed_prompt_options
def recover(
    run: UUID | None,
    everything: bool,
    app: str,
    max_turns: int | None,
    recorded_prompt: bool,
    accept_prompt: bool,
    by: str | None,
) -> None:
    """Resume interrupted runs and run them to their end.

    FACTORY is your code: it is called with the ledger and returns the loop. Exits with 7 if
    another worker holds the run, with 8 if it waits for a decision; with --all with the
    highest code of all. SIGTERM and Ctrl-C stop it and leave the run resumable.

    A run that was begun with another prompt is refused before anything is written, and the
    difference is shown: its text, and its tools. --recorded-prompt goes on with the recorded
    one, --accept-prompt with that of your code, after what was said so far. The choice and who
    made it are recorded.
    """
    if (run is not None) == everything:
        raise click.UsageError("Give either a run or --all.")
    prompt, chosen_by = choice_of(
        recorded=recorded_prompt, accept=accept_prompt, by=by, one_run=run is not None
    )
    with open_ledger() as ledger, ending_on_sigterm():
        loop = load_loop(app, ledger)
        if run is not None:
            if not ledger.head(run):
                raise RunNotFoundError(str(run))
            with showing_difference():
                response, _ = loop.recover(
                    run, max_turns=max_turns, prompt=prompt, decided_by=chosen_by
                )
            _print(_recovered(run, response), "recovered")
            return
        finish(_recover_all(loop, max_turns))


def _recover_all(loop: MainLoop[Any, Any], max_turns: int | None) -> ExitCode:
    """Recover all runs, printing each; the highest exit code of those that failed."""
    worst, skipped = ExitCode.OK, SkippedRuns()

    def each() -> Iterator[dict[str, Any]]:
        nonlocal worst
        for found in loop.list_recoverable(on_damage=skipped):
            try:
                response, _ = loop.recover(found, max_turns=max_turns)
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
    from turnledger.runtime.agent.schema import to_plain

    return {"run_id": str(run), "text": response.text, "output": to_plain(response.output)}


def _print(value: dict[str, Any], verdict: str) -> None:
    out = printer()
    pairs = [("run", value["run_id"]), ("verdict", verdict), ("answer", _answer_of(value))]
    out.one(value, lambda: out.pairs(pairs))


def _answer_of(value: dict[str, Any]) -> str:
    """The answer as text, safe to print."""
    return visible(value["text"] or str(value["output"]))


@command(
    "run",
    example="""\
turnledger run 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop
turnledger run 01890a5d-ac96-774b-bcce-b302099a8057 --app myagent:loop --yes""",
)
@run_argument
@loop_option
@turns_option
@flag("--yes", help="Run calls in doubt again, although they may have happened.")
def run_command(run: UUID, app: str, max_turns: int | None, yes: bool) -> None:
    """Continue a fork or an interrupted run, live.

    Calls the model and runs tools from the run's last event to its end. A tool call that was
    open where a fork was made may have happened already: unless it is decided (see
    `turnledger resolve`) or --yes is given, nothing is run and the exit code is 8.

    --yes is recorded with the resume, after app, claim and prompt were checked, and holds for
    this attempt of the run alone: a command that is refused leaves no consent.
    """
    with open_ledger() as ledger, ending_on_sigterm():
        is_fork = ledger.run(run).kind == "fork"
        loop = load_loop(app, ledger)
        if not yes and is_fork and ledger.worker_of(run) is None:
            calls = _in_doubt(ledger, run)
            if calls:
                _say_doubts(run, calls)
                finish(ExitCode.WAITING)
        by = user_name() if yes else ""
        response, _ = loop.recover(run, max_turns=max_turns, retry_in_doubt=yes, decided_by=by)
        _print(_recovered(run, response), "completed")


def _in_doubt(ledger: Ledger, run: UUID) -> tuple[ToolCallView, ...]:
    from turnledger.runtime.recovery.run_reader import RunReader

    reader = RunReader(ledger, run)
    is_over = reader.known.run.summary.status in ("completed", "parked", "abandoned")
    return () if is_over else reader.in_doubt()


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
        cleared = CheckpointCleared(reason="the run is abandoned")
        events: list[Event] = [RunAbandoned(reason=reason), cleared]
        for event in events:
            ledger.codec.encode(event)  # refuse an invalid event before the claim is recorded
        with ledger.claim(run) as claim:
            ledger.append(run, events, ANY, claim.epoch)
    say(f"Run {run} is abandoned.")
