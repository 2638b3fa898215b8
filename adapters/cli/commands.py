"""The command `turnledger`: its commands, where each is, and the entry point.

Modules of commands are imported when the command is used. Their short helps stand here too, so
that `turnledger --help` imports none; a test compares them with the commands' own.
"""

from __future__ import annotations

import io
import os
import sys

import click

from turnledger.adapters.cli.shared.command import LedgerGroup, command

NAME, COMPLETE_VARIABLE = "turnledger", "_TURNLEDGER_COMPLETE"

# Command: its module in this package and its function, and its short help.
COMMANDS = {
    "abandon": ("operate.recover:abandon", "Give a run up: nobody recovers it any more."),
    "append": ("write.append:append", "Append events to a run, all or none."),
    "backup": ("maintain.backup:backup", "Copy the whole ledger into FILE, while others write."),
    "blame": ("inspect.state:blame", "Show the record that last set a value."),
    "compare": ("inspect.compare:compare_command", "Compare two runs: where do they part?"),
    "completion": ("commands:completion", "Print a shell's completion script."),
    "diff": ("inspect.state:diff", "Show what changed from version A to version B."),
    "doctor": ("maintain.doctor.command:doctor", "Check that the store keeps what is promised."),
    "export": (
        "exchange.export_import:export",
        "Write runs as JSON lines, as requests, or as a test.",
    ),
    "fork": ("write.append:fork", 'Begin a run that goes on from another: a "what if".'),
    "import": ("exchange.export_import:import_", "Take runs from an export, or from transcripts."),
    "log": ("inspect.log:log", "Print a run's records."),
    "messages": ("inspect.messages:messages", "Print a run's conversation as a chat."),
    "pending": ("operate.recover:pending", "List the tool calls that have not ended."),
    "projections": (
        "maintain.rebuild:projections",
        "List what is known: views of a run, tables of all.",
    ),
    "rebase": (
        "maintain.verify:rebase",
        "Allow appending again after restoring a PostgreSQL dump.",
    ),
    "rebuild": ("maintain.rebuild:rebuild_command", "Fold all runs again, and show that instead."),
    "rebuild-index": ("maintain.verify:rebuild_index", "Fold the run index again from the events."),
    "recover": ("operate.recover:recover", "Go on with runs that were interrupted, to their end."),
    "replay": (
        "operate.replay:replay_command",
        "Run it again, and find where it parts from its record.",
    ),
    "resolve": ("operate.recover:resolve", "Say what became of a call in doubt."),
    "run": ("operate.recover:run_command", "Go on with a fork or an interrupted run, live."),
    "runs": ("inspect.runs:runs", "List runs, newest first."),
    "seal": ("maintain.seal:seal", "Write a seal of the whole ledger to stdout."),
    "show": ("inspect.log:show", "Show a run or, with VERSION, a record in full."),
    "state": ("inspect.state:state", "Print what is known of a run, as JSON."),
    "tail": ("inspect.log:tail", "Print all runs' records, in the ledger's order."),
    "timeline": (
        "inspect.tools:timeline",
        "Show when a run called models and tools, and how long.",
    ),
    "tools": ("inspect.tools:tools", "List a run's tool calls, and how each stands."),
    "usage": ("inspect.usage:usage", "Add up the tokens of a run, or of all."),
    "verify": ("maintain.verify:verify", "Recompute digests: is everything as it was recorded?"),
}


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"{NAME} {_version()}")
        ctx.exit()


def _version() -> str:
    """The installed version, from the name of the distribution's folder.

    `importlib.metadata` reads it from a file in that folder, and takes longer to import than
    everything else that `--version` needs.
    """
    for place in filter(os.path.isdir, sys.path):
        for name in os.listdir(place):
            if name.startswith(f"{NAME}-") and name.endswith(".dist-info"):
                return name.removeprefix(f"{NAME}-").removesuffix(".dist-info")
    from importlib.metadata import version  # an installation of another kind

    return version(NAME)


@click.group(
    cls=LedgerGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def turnledger() -> None:
    """An append-only ledger for LLM agent runs.

    Data goes to stdout, everything else to stderr. --db and -o work before and after
    the command.
    """


@command(
    without=("db", "output"),
    example="""\
eval "$(turnledger completion bash)"          # in ~/.bashrc
eval "$(turnledger completion zsh)"           # in ~/.zshrc
turnledger completion fish > ~/.config/fish/completions/turnledger.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell's completion script.

    Commands, options, event types and, from the ledger, run ids are completed.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(turnledger, {}, NAME, COMPLETE_VARIABLE)
    click.echo(complete.source_template % complete.source_vars())


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    turnledger(prog_name=NAME)
