"""Entry point of `turnledger`, and the table of its commands.

A command's module is imported when the command is used. The table repeats the short helps, so
that `turnledger --help` imports no command; a test compares them with the commands' own.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

import click

from turnledger.adapters.cli.shared.command import LedgerGroup, command

NAME, COMPLETE_VARIABLE = "turnledger", "_TURNLEDGER_COMPLETE"

# By heading in the help. Command name: "module:function" in this package, and the short help.
SECTIONS = {
    "Look": {
        "runs": ("inspect.runs:runs", "List runs, newest first."),
        "show": ("inspect.log:show", "Show a run or, with VERSION, one of its events in full."),
        "log": ("inspect.log:log", "Print a run's events."),
        "tail": ("inspect.log:tail", "Print the events of all runs, in the ledger's order."),
        "search": (
            "inspect.search:search",
            "Find TEXT in the events of a run, or of all runs, newest first.",
        ),
        "shape": ("inspect.search:shape", "Print a run as one character an event."),
        "messages": ("inspect.messages:messages", "Print a run's conversation as a chat."),
        "tools": ("inspect.tools:tools", "List a run's tool calls and their status."),
        "timeline": (
            "inspect.tools:timeline",
            "Show when a run called models and tools, and for how long.",
        ),
        "usage": ("inspect.usage:usage", "Add up the tokens used by a run, or by all runs."),
        "state": ("inspect.state:state", "Print a run's state as JSON."),
        "changes": ("inspect.state:changes", "Show what one event changed in the state."),
        "diff": ("inspect.state:diff", "Show how the state changed from version A to version B."),
        "blame": ("inspect.state:blame", "Show the event that last set a value of the state."),
    },
    "What-if": {
        "replay": (
            "operate.replay:replay_command",
            "Replay a run and find the first divergence from its record.",
        ),
        "fork": (
            "write.fork:fork",
            "Fork a run at an event, optionally with that event changed.",
        ),
        "compare": (
            "inspect.compare:compare_command",
            "Compare two runs and show the first difference.",
        ),
    },
    "Work": {
        "run": ("operate.run:run", "Begin a run of your agent or workflow, and run it to its end."),
        "chat": ("operate.chat:chat", "Talk with your agent in the terminal."),
        "recover": (
            "operate.recover:recover",
            "Continue interrupted runs and forks, to their end.",
        ),
        "worker": (
            "operate.worker:worker",
            "Take requested and interrupted runs, and run them to their end.",
        ),
        "queue": (
            "inspect.queue:queue",
            "List requested, running, interrupted and waiting runs.",
        ),
        "pending": ("operate.decide:pending", "List tool calls that have not ended."),
        "resolve": (
            "operate.decide:resolve",
            "Approve or deny a tool call, or decide one in doubt.",
        ),
        "abandon": (
            "operate.recover:abandon",
            "Mark a run as abandoned, so that it is not recovered.",
        ),
        "append": ("write.append:append", "Append events to a run, atomically."),
        "prompts": ("prompts.group:prompts", "List, show, set and compare prompt overrides."),
    },
    "Keep": {
        "verify": ("maintain.verify:verify", "Verify the digests of a run or of the whole ledger."),
        "seal": ("maintain.seal:seal", "Write a seal of the whole ledger to stdout."),
        "backup": (
            "maintain.backup:backup",
            "Copy the whole ledger into FILE while it is in use.",
        ),
        "doctor": (
            "maintain.doctor.command:doctor",
            "Check the store's settings, disk and durability.",
        ),
        "projections": (
            "maintain.rebuild:projections",
            "List the views of a run and the tables of all runs.",
        ),
        "rebuild": (
            "maintain.rebuild:rebuild_command",
            "Rebuild tables from the events and swap them in.",
        ),
        "rebuild-index": (
            "maintain.verify:rebuild_index",
            "Rebuild the run index from the events.",
        ),
        "rebase": (
            "maintain.verify:rebase",
            "Allow appending again after restoring a PostgreSQL dump.",
        ),
        "token": (
            "maintain.tokens:token",
            "Make, list and revoke access tokens for the HTTP API.",
        ),
        "completion": ("commands:completion", "Print a shell's completion script."),
    },
    "Exchange": {
        "export": (
            "exchange.export_import:export",
            "Export runs as JSON lines, provider requests, spans or a test.",
        ),
        "import": (
            "exchange.export_import:import_",
            "Import runs from an export or from transcripts.",
        ),
        "serve": ("operate.serve:serve", "Serve the ledger over HTTP."),
        "mcp": ("exchange.mcp:mcp", "Serve the ledger to coding agents over MCP, read-only."),
    },
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
        with suppress(OSError):
            for name in os.listdir(place):
                if name.startswith(f"{NAME}-") and name.endswith(".dist-info"):
                    return name.removeprefix(f"{NAME}-").removesuffix(".dist-info")
    from importlib.metadata import version  # e.g. a zipped installation

    return version(NAME)


@click.group(
    cls=LedgerGroup,
    sections=SECTIONS,
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
    """An append-only, event-sourced ledger for LLM agent runs.

    A RUN is its id, the beginning or end of it if no other run has the same, its name
    (order-17), @last, @-2 (the one before the last), or a tag: customer=acme. A name goes before
    part of an id. Ids begin with the time, so people are shown their last 8 characters.

    Data goes to stdout, messages go to stderr. On a terminal tables fit its width: ids and
    times are short and long cells are cut. In a pipe everything is whole. With -o json or
    jsonl an error is a JSON object, on the last line of stderr.

    These options work before and after every command:
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

    It completes commands, options, event types, and runs of the ledger: by their names, the
    beginning or end of their ids, @last and @-2, and tags.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(turnledger, {}, NAME, COMPLETE_VARIABLE)
    click.echo(complete.source_template % complete.source_vars())
    if shell == "bash":
        # Else bash splits @last and customer=acme into several words.
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//[@=]/}")


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    turnledger(prog_name=NAME)
