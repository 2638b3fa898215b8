"""Command `mcp`: a read-only MCP server over stdio."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from uuid import UUID

import click

from turnledger.adapters.cli.shared.command import command, open_ledger
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import RunParam
from turnledger.ledger import InvalidInputError, Ledger


@command(
    without=("output",),
    example="""\
turnledger mcp --db runs.db
claude mcp add turnledger -- turnledger mcp --db /srv/runs.db""",
)
def mcp() -> None:
    """Serve the ledger to coding agents over MCP, read-only.

    The server speaks the Model Context Protocol on stdin and stdout, and ends with stdin.
    Its tools look at runs: runs, log, event, state, changes, blame, compare, timeline, pending.
    A run is named as on the command line. Long texts are cut, and the answer says how to get
    the rest. Recorded text is marked as untrusted data: it is only ever inside JSON strings.
    """
    with open_ledger() as ledger:
        from turnledger.adapters.mcp.server import build_server  # needs an extra

        if sys.stdin.isatty():
            say("Serving MCP on stdin and stdout, for a client to start. Ctrl-C ends it.")
        build_server(ledger, ServedRun(ledger).find).run()


class ServedRun(RunParam):
    """A run of the ledger that is served."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def open(self, ctx: click.Context | None) -> AbstractContextManager[Ledger]:
        return nullcontext(self._ledger)

    def find(self, given: str) -> UUID:
        """The run that a client names; what the command line refuses is an InvalidInputError."""
        try:
            return self.convert(given, None, None)
        except click.BadParameter as error:
            raise InvalidInputError(error.message) from None
