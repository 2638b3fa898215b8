"""Commands for interrupted runs and forks: recover, abandon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from turnledger.adapters.cli.operate.begun_by import refuse_block, tell_blocks
from turnledger.adapters.cli.operate.changed_prompt import (
    changed_prompt_options,
    choice_of,
    showing_difference,
)
from turnledger.adapters.cli.operate.decide import user_name
from turnledger.adapters.cli.operate.workflow import (
    recover_workflow,
    recover_workflows,
    refuse_options,
    workflow_of,
)
from turnledger.adapters.cli.shared.command import command, fail, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.exit_codes import ExitCode, exit_code_of
from turnledger.adapters.cli.shared.output import json_text, line_width, run_name, say, short_id
from turnledger.adapters.cli.shared.parameters import (
    flag,
    loop_option,
    optional_run_argument,
    run_argument,
    version_option,
)
from turnledger.adapters.cli.shared.table_layout import cut
from turnledger.adapters.cli.shared.user_code import ending_on_sigterm, load_loop
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import (
    ANY,
    CheckpointCleared,
    Event,
    Ledger,
    RunAbandoned,
    ToolCallStarted,
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


# --- recover, abandon ---------------------------------------------------------------


@command(
    example="""\
turnledger recover 099a8057 --app myagent:agent
turnledger recover @last --app myagent:agent --yes
turnledger recover --all --app myagent:agent""",
)
@optional_run_argument
@flag("--all", "everything", help="All runs that can be recovered.")
@loop_option
@turns_option
@changed_prompt_options
@flag("--yes", help="Run calls in doubt again, although they may have happened.")
def recover(
    run: UUID | None,
    everything: bool,
    app: str,
    max_turns: int | None,
    recorded_prompt: bool,
    accept_prompt: bool,
    by: str | None,
    yes: bool,
) -> None:
    """Continue interrupted runs and forks, to their end.

    Calls the model and runs tools from the run's last event on, with your code: only runs of
    the agent, or of the workflow, that --app names. Exits with 7 if another worker holds the run,
    with 8 if it waits for a decision; with --all with the highest code of all. SIGTERM and Ctrl-C
    stop it and leave the run resumable.

    A tool call that was open where a fork was made may have happened already: unless it is
    decided (see `turnledger resolve`) or --yes is given, nothing is run and the exit code is 8.
    --yes is recorded with the resume, after app, claim and prompt were checked, and holds for
    this attempt of the run alone: a command that is refused leaves no consent.

    A run that was begun with another prompt is refused before anything is written, and the
    difference is shown: its text, and its tools. --recorded-prompt goes on with the recorded
    one, --accept-prompt with that of your code, after what was said so far. The choice and who
    made it are recorded.

    A block, `with turnledger.run(name)`, is continued by running its script again: RUN may not be
    one, and --all leaves blocks alone and names them.
    """
    if (run is not None) == everything:
        raise click.UsageError("Give either a run or --all.")
    if everything and yes:
        raise click.UsageError("--yes needs one run: it is consent to repeat its calls.")
    prompt, chosen_by = choice_of(
        recorded=recorded_prompt, accept=accept_prompt, by=by, one_run=run is not None
    )
    workflow = workflow_of(app)
    if workflow is not None:
        refuse_options(
            max_turns=max_turns, recorded_prompt=recorded_prompt, accept_prompt=accept_prompt
        )
        with open_ledger() as ledger, ending_on_sigterm():
            if run is None:
                finish(recover_workflows(workflow, ledger, telling_repeats))
                return
            refuse_block(ledger, run)
            with telling_repeats(ledger, run):
                recover_workflow(workflow, ledger, run, yes=yes)
        return
    with open_ledger() as ledger, ending_on_sigterm():
        if run is None:
            finish(_recover_all(load_loop(app, ledger), ledger, max_turns))
            return
        is_fork = ledger.run(run).kind == "fork"
        refuse_block(ledger, run)
        loop = load_loop(app, ledger)
        if not yes and is_fork and ledger.worker_of(run) is None:
            _refuse_doubts(run, _in_doubt(ledger, run))
        decided_by = chosen_by or (user_name() if yes else "")
        with showing_difference(), telling_repeats(ledger, run):
            response, _ = loop.recover(
                run,
                max_turns=max_turns,
                prompt=prompt,
                retry_in_doubt=yes,
                decided_by=decided_by,
            )
        print_answer(run, response)


@contextmanager
def telling_repeats(ledger: Ledger, run: UUID) -> Iterator[None]:
    """Say at the end of the block which calls were run again: nothing is repeated silently."""
    head = ledger.head(run)
    try:
        yield
    finally:
        for record in ledger.read(run, after=head):
            event = record.event
            if isinstance(event, ToolCallStarted) and event.attempt > 1:
                say(
                    f"{visible(event.name)} ({visible(event.call_id)}) was run again, attempt "
                    f"{event.attempt}: how the attempt before it ended is unknown."
                )


def _recover_all(loop: MainLoop[Any, Any], ledger: Ledger, max_turns: int | None) -> ExitCode:
    """Recover all runs, printing each; the highest exit code of those that failed."""
    worst, skipped, tried = ExitCode.OK, SkippedRuns(), 0

    def each() -> Iterator[dict[str, Any]]:
        nonlocal worst, tried
        for found in loop.list_recoverable(on_damage=skipped):
            tried += 1
            try:
                with telling_repeats(ledger, found.run_id):
                    response, _ = loop.recover(found, max_turns=max_turns)
                yield _recovered(found.run_id, response)
            except TurnledgerError as error:
                say(f"{found.run_id}: {error}")
                worst = max(worst, exit_code_of(error))
            except Exception as error:
                # An error of the user's code must not stop the other runs.
                say(f"{found.run_id}: {error_text(error)}")
                worst = max(worst, ExitCode.ERROR)

    out = printer()

    def show(one: dict[str, Any]) -> None:
        run_id, answer = one["run_id"], _answer_of(one)
        if out.fits:
            run_id = short_id(run_id)
            answer = cut(answer, line_width() - len(run_id) - 2)
        out.line(f"{run_id}  {answer}")

    out.many(each(), show, flush=True)
    if not tried:
        say("Nothing to recover.")
    tell_blocks(ledger)
    return max(worst, skipped.code)


def _recovered(run: UUID, response: PromptResponse[Any]) -> dict[str, Any]:
    """A completed run as JSON."""
    from turnledger.runtime.agent.schema import to_plain

    return {"run_id": str(run), "text": response.text, "output": to_plain(response.output)}


def print_answer(run: UUID, response: PromptResponse[Any], verdict: str = "completed") -> None:
    """Print a run that has come to its end.

    Args:
        run: The run.
        response: What it answered.
        verdict: How it ended, for people.
    """
    value, out = _recovered(run, response), printer()
    pairs = [("run", value["run_id"]), ("verdict", verdict), ("answer", _answer_of(value))]
    out.one(value, lambda: out.pairs(pairs))


def _answer_of(value: dict[str, Any]) -> str:
    """The answer as text, safe to print."""
    return visible(value["text"] or json_text(value["output"]))


def _in_doubt(ledger: Ledger, run: UUID) -> tuple[ToolCallView, ...]:
    from turnledger.runtime.recovery.run_reader import RunReader

    reader = RunReader(ledger, run)
    is_over = reader.known.run.summary.status in ("completed", "parked", "abandoned")
    return () if is_over else reader.in_doubt()


def _refuse_doubts(run: UUID, calls: Sequence[ToolCallView]) -> None:
    """End the command if there are calls in doubt."""
    if calls:
        named = ", ".join(f"{call.call_id} ({call.name})" for call in calls)
        fail(
            f"Run {run} has calls in doubt: {visible(named)}. They were started before the "
            "fork was made or the run was interrupted, and may have happened. Run them again "
            f"with --yes, or decide each: turnledger resolve {run_name(run)} CALL_ID with "
            "--completed JSON, --failed TEXT or --retry.",
            ExitCode.WAITING,
            run_id=str(run),
            call_ids=[call.call_id for call in calls],
        )


@command(example="turnledger abandon 099a8057")
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
