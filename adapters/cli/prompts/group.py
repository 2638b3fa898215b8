"""Command group `prompts`, and the table of its commands."""

from __future__ import annotations

import click

from turnledger.adapters.cli.shared.command import LazyGroup

# Command name: "module:function" in the package of the command line, and the short help.
COMMANDS = {
    "blame": ("prompts.read:blame", "Show the event that set a text of a prompt."),
    "diff": ("prompts.read:diff", "Show how a prompt's overrides differ between A and B."),
    "list": ("prompts.read:list_", "List the prompts that have overrides."),
    "runs": ("prompts.read:runs", "List the runs that used a prompt, and with which overrides."),
    "set": ("prompts.write:set_", "Override a text of a prompt."),
    "show": ("prompts.read:show", "Show the overrides of a prompt."),
    "tag": ("prompts.write:tag", "Move a tag of a prompt to a version."),
}


@click.group(cls=LazyGroup, sections={"Commands": COMMANDS})
def prompts() -> None:
    """List, show, set and compare prompt overrides.

    They are events beside the runs. A version is a place in the prompt's own stream of events;
    a tag names one, and "latest" is the last.
    """
