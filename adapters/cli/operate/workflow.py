"""Workflows under the commands run, recover and replay: `--app module:function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from turnledger.adapters.cli.operate.begun_by import tell_blocks
from turnledger.adapters.cli.operate.decide import user_name
from turnledger.adapters.cli.shared.command import printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.exit_codes import ExitCode, exit_code_of
from turnledger.adapters.cli.shared.output import json_text, say
from turnledger.adapters.cli.shared.user_code import load_app
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import Ledger, TurnledgerError
from turnledger.ledger.errors import error_text

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime.steps import Workflow, WorkflowResult


def workflow_of(app: str) -> Workflow[Any, Any] | None:
    """The workflow that `--app` names; None if it names an agent or a loop."""
    from turnledger.runtime.steps import Workflow

    found = load_app(app)
    return found if isinstance(found, Workflow) else None


def refuse_options(**given: object) -> None:
    """A usage error for options that only an agent's runs have."""
    for name, value in given.items():
        if value:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} is for runs of an agent, and --app is a workflow.")


def run_workflow(
    workflow: Workflow[Any, Any], ledger: Ledger, text: str, tags: dict[str, str]
) -> None:
    """Begin a run of a workflow, and run it to its end.

    Args:
        workflow: The workflow.
        ledger: Where it is recorded.
        text: The input: JSON, or the text itself where the workflow takes text.
        tags: Tags of the run.
    """
    from turnledger.runtime import SchemaError
    from turnledger.runtime.agent.schema import read_json

    try:
        value = workflow.input_from(text if workflow.takes_text else read_json(text))
    except SchemaError as error:
        raise click.BadParameter(
            f"not an input of {workflow.name}: {error}. This workflow takes JSON.",
            param_hint="INPUT",
        ) from None
    run_id = UUID(ledger.clock.new_id())
    say(f"Run {run_id}")
    _print(workflow.run(value, ledger=ledger, run_id=run_id, tags=tags))


def recover_workflow(workflow: Workflow[Any, Any], ledger: Ledger, run: UUID, *, yes: bool) -> None:
    """Go on with one run of a workflow.

    Args:
        workflow: The workflow.
        ledger: Where the run is.
        run: The run.
        yes: Whether to perform steps in doubt again.
    """
    by = user_name() if yes else ""
    _print(workflow.recover(run, ledger=ledger, retry_in_doubt=yes, decided_by=by))


def recover_workflows(
    workflow: Workflow[Any, Any], ledger: Ledger, telling: Callable[[Ledger, UUID], Any]
) -> ExitCode:
    """Go on with all interrupted runs of a workflow; the highest exit code of those that failed.

    Args:
        workflow: The workflow.
        ledger: Where its runs are.
        telling: A context manager that says which steps were performed again.
    """
    from turnledger.runtime.steps.workflows import MAX_ATTEMPTS  # slow to import

    worst, tried, skipped, out = ExitCode.OK, 0, SkippedRuns(), printer()
    for info in workflow.list_recoverable(ledger=ledger, on_damage=skipped):
        tried += 1
        try:
            with telling(ledger, info.run_id):
                result = workflow.recover(info.run_id, ledger=ledger, max_attempts=MAX_ATTEMPTS)
        except TurnledgerError as error:
            say(f"{info.run_id}: {error}")
            worst = max(worst, exit_code_of(error))
        except Exception as error:
            # An error of the user's code must not stop the other runs.
            say(f"{info.run_id}: {error_text(error)}")
            worst = max(worst, ExitCode.ERROR)
        else:
            out.many(
                [_json(result)],
                lambda one: out.line(f"{one['run_id']}  {visible(json_text(one['output']))}"),
                flush=True,
            )
    if not tried:
        say("Nothing to recover.")
    tell_blocks(ledger)
    return max(worst, skipped.code)


def _json(result: WorkflowResult[Any]) -> dict[str, Any]:
    from turnledger.runtime.agent.schema import to_plain

    return {"run_id": str(result.run_id), "output": to_plain(result.output)}


def _print(result: WorkflowResult[Any]) -> None:
    value, out = _json(result), printer()
    pairs = [
        ("run", value["run_id"]),
        ("verdict", "completed"),
        ("output", visible(json_text(value["output"]))),
    ]
    out.one(value, lambda: out.pairs(pairs))
