"""The command `turnledger`, put together."""

from __future__ import annotations

import io
import sys

import click

from turnledger.adapters.cli.exchange.export_import import export, import_
from turnledger.adapters.cli.inspect.compare import compare_command
from turnledger.adapters.cli.inspect.log import log, show, tail
from turnledger.adapters.cli.inspect.messages import messages
from turnledger.adapters.cli.inspect.runs import runs
from turnledger.adapters.cli.inspect.state import blame, diff, state
from turnledger.adapters.cli.inspect.tools import timeline, tools
from turnledger.adapters.cli.inspect.usage import usage
from turnledger.adapters.cli.main_completion import completion
from turnledger.adapters.cli.maintain.backup import backup
from turnledger.adapters.cli.maintain.rebuild import projections, rebuild_command
from turnledger.adapters.cli.maintain.seal import seal
from turnledger.adapters.cli.maintain.verify import doctor, rebase, rebuild_index, verify
from turnledger.adapters.cli.operate.recover import abandon, pending, recover, resolve
from turnledger.adapters.cli.operate.replay import replay_command
from turnledger.adapters.cli.shared.command import LedgerGroup
from turnledger.adapters.cli.write.append import append, fork
from turnledger.adapters.cli.write.what_if import run_command

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
