"""The command `turnledger`, put together."""

from __future__ import annotations

import io
import sys

import click

from adapters.cli.backing_up import backup
from adapters.cli.chat import messages
from adapters.cli.comparing import compare_command
from adapters.cli.completion import completion
from adapters.cli.deciding import abandon, pending, recover, resolve
from adapters.cli.doings import timeline, tools
from adapters.cli.invocation import LedgerGroup
from adapters.cli.keeping import doctor, rebase, rebuild_index, verify
from adapters.cli.meaning import blame, diff, state
from adapters.cli.reading import log, show, tail
from adapters.cli.rebuilding import projections, rebuild_command
from adapters.cli.replaying import replay_command
from adapters.cli.runs import runs
from adapters.cli.sealing import seal
from adapters.cli.spending import usage
from adapters.cli.transferring import export, import_
from adapters.cli.what_if import run_command
from adapters.cli.writing import append, fork

COMMANDS = (
    abandon,
    append,
    backup,
    blame,
    compare_command,
    completion,
    diff,
    doctor,
    export,
    fork,
    import_,
    log,
    messages,
    pending,
    projections,
    rebase,
    rebuild_command,
    rebuild_index,
    recover,
    replay_command,
    resolve,
    run_command,
    runs,
    seal,
    show,
    state,
    tail,
    timeline,
    tools,
    usage,
    verify,
)


@click.group(
    cls=LedgerGroup,
    commands=list(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="turnledger", message="%(prog)s %(version)s")
def turnledger() -> None:
    """An append-only ledger for LLM agent runs.

    Data goes to stdout, everything else to stderr. --db and -o work before and after
    the command.
    """


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    turnledger(prog_name="turnledger")
