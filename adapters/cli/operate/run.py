"""Command `run`: begins a run of an agent, or of a loop, and runs it to its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from turnledger.adapters.cli.operate.begun_by import refuse_block
from turnledger.adapters.cli.operate.recover import print_answer
from turnledger.adapters.cli.operate.workflow import refuse_options, run_workflow, workflow_of
from turnledger.adapters.cli.shared.command import command, open_ledger
from turnledger.adapters.cli.shared.files import read_whole
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import RUN, loop_option, tag_option
from turnledger.adapters.cli.shared.user_code import ending_on_sigterm, load_loop

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime import MainLoop


@command(
    "run",
    example="""\
turnledger run --app myagent:agent "My invoice is wrong."
cat ticket.txt | turnledger run --app myagent:agent - --tag customer=acme
turnledger run --app myagent:agent "And in French?" --continues @last""",
)
@click.argument("input_", metavar="INPUT")
@loop_option
@click.option(
    "--continues",
    type=RUN,
    metavar="RUN",
    help="Go on with the conversation of this run, as its next turn.",
)
@tag_option(needs_value=True, help="Tag of the run. May be repeated.")
def run(
    input_: str, app: str, continues: UUID | None, tags: tuple[tuple[str, str | None], ...]
) -> None:
    """Begin a run of your agent or workflow, and run it to its end.

    INPUT is the text that it is given, or - to read it from stdin; for an agent with an input
    type, and for a workflow that does not take text, its JSON. The run's id is printed first, on
    stderr: whatever happens, `turnledger recover` goes on with it. Exits with 8 if the run waits
    for a decision. The ledger is created if it does not exist.
    """
    text = input_
    if input_ == "-":
        text = read_whole(sys.stdin.buffer, "The input").decode()
    workflow = workflow_of(app)
    with open_ledger(create=True) as ledger, ending_on_sigterm():
        if workflow is not None:
            refuse_options(continues=continues)
            run_workflow(workflow, ledger, text, {key: value or "" for key, value in tags})
            return
        if continues is not None:
            refuse_block(ledger, continues)
        loop = load_loop(app, ledger)
        request = request_of(loop, text)
        run_id = UUID(ledger.clock.new_id())
        say(f"Run {run_id}")
        response, _ = loop.execute(
            request,
            run_id=run_id,
            continues=continues,
            tags={key: value or "" for key, value in tags},
        )
        print_answer(run_id, response, "completed")


def request_of(loop: MainLoop[Any, Any], text: str) -> Any:
    """The request that a text stands for: the text itself, or its JSON as the loop's type."""
    from turnledger.runtime import SchemaError
    from turnledger.runtime.agent.schema import decode, read_json

    kind = loop.request_type
    kind = kind[0] if isinstance(kind, tuple) else kind
    if kind in (None, str):
        return text
    try:
        return decode(kind, read_json(text))
    except SchemaError as error:
        raise click.BadParameter(
            f"not a {getattr(kind, '__name__', kind)}: {error}. This agent takes JSON.",
            param_hint="INPUT",
        ) from None
