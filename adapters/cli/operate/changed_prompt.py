"""Options of `recover` for a run whose prompt was changed, and the difference as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from turnledger.adapters.cli.operate.decide import user_name
from turnledger.adapters.cli.shared.command import printer
from turnledger.adapters.cli.shared.output import Format, say
from turnledger.adapters.cli.shared.parameters import flag
from turnledger.adapters.terminal_text import visible_lines

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime.recovery.prompt_check import OnChangedPrompt

F = TypeVar("F", bound=Callable[..., Any])


def changed_prompt_options(function: F) -> F:
    """The options `--recorded-prompt`, `--accept-prompt` and `--by`."""
    for option in (
        click.option(
            "--by", metavar="NAME", help="Who chooses the prompt. Default: your user name."
        ),
        flag(
            "--accept-prompt",
            help="Go on with the prompt of your code, which is not the recorded one.",
        ),
        flag(
            "--recorded-prompt",
            help="Go on with the recorded prompt, if your code has its tools as they were.",
        ),
    ):
        function = option(function)
    return function


def choice_of(
    *, recorded: bool, accept: bool, by: str | None, one_run: bool
) -> tuple[OnChangedPrompt, str]:
    """What these options say: `prompt` and `decided_by` of `MainLoop.recover`.

    Args:
        recorded: --recorded-prompt.
        accept: --accept-prompt.
        by: --by.
        one_run: A run was given, and not --all.
    """
    if not (recorded or accept):
        return "check", ""
    if recorded and accept:
        raise click.UsageError("Give either --recorded-prompt or --accept-prompt.")
    if not one_run:
        raise click.UsageError("A prompt is chosen for one run: give its id instead of --all.")
    choice: Literal["recorded", "accept"] = "recorded" if recorded else "accept"
    return choice, user_name() if by is None else by


@contextmanager
def showing_difference() -> Iterator[None]:
    """Print how a prompt differs from the recorded one, before the error that refuses the run.

    In JSON the error has it.
    """
    from turnledger.runtime import PromptMismatch

    try:
        yield
    except PromptMismatch as error:
        if error.difference is not None and printer().form is Format.TABLE:
            say(visible_lines(f"{error.difference}\n"))
        raise
