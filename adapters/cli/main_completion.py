"""The command `completion`: scripts that teach a shell to complete this one's words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from turnledger.adapters.cli.shared.command import LedgerCommand

NAME = "turnledger"
VARIABLE = "_TURNLEDGER_COMPLETE"


@click.command(
    cls=LedgerCommand,
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
    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(click.get_current_context().find_root().command, {}, NAME, VARIABLE)
    click.echo(complete.source_template % complete.source_vars())
