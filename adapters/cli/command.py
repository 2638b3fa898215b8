"""The command `turnledger`, put together."""

from __future__ import annotations

import io
import sys

import click

from turnledger.adapters.cli.backing_up import backup
from turnledger.adapters.cli.chat import messages
from turnledger.adapters.cli.comparing import compare_command
from turnledger.adapters.cli.completion import completion
from turnledger.adapters.cli.deciding import abandon, pending, recover, resolve
from turnledger.adapters.cli.doings import timeline, tools
from turnledger.adapters.cli.invocation import LedgerGroup
from turnledger.adapters.cli.keeping import doctor, rebase, rebuild_index, verify
from turnledger.adapters.cli.meaning import blame, diff, state
from turnledger.adapters.cli.reading import log, show, tail
from turnledger.adapters.cli.rebuilding import projections, rebuild_command
from turnledger.adapters.cli.replaying import replay_command
from turnledger.adapters.cli.runs import runs
from turnledger.adapters.cli.sealing import seal
from turnledger.adapters.cli.spending import usage
from turnledger.adapters.cli.transferring import export, import_
from turnledger.adapters.cli.what_if import run_command
from turnledger.adapters.cli.writing import append, fork

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
