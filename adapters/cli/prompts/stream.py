"""A prompt's stream as commands name it: NS/KEY, and a version or a tag of it."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn
from uuid import UUID

import click
from click.shell_completion import CompletionItem

from turnledger.adapters.cli.shared.command import fail, open_ledger
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.parameters import LONGEST_NUMBER, ParamType
from turnledger.adapters.cli.shared.views import view_at
from turnledger.ledger import InvalidInputError, Ledger, TurnledgerError, prompt_stream_id
from turnledger.ledger.events.types import LATEST
from turnledger.projections.views.prompt import PromptOverrides, PromptState


class PromptName(NamedTuple):
    """A prompt's namespace and key, and the id of its stream."""

    ns: str
    key: str
    stream: UUID

    def __str__(self) -> str:
        return f"{self.ns}/{self.key}"


class PromptParam(ParamType):
    """Prompt, NS/KEY; shell completion offers those that have overrides."""

    name = "prompt"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> PromptName:
        ns, _, key = str(value).rpartition("/")
        try:
            if ns:
                return PromptName(ns, key, prompt_stream_id(ns, key))
        except (InvalidInputError, UnicodeEncodeError):
            pass
        raise click.BadParameter(f"Invalid prompt {value!r:.80}: expected NS/KEY.")

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with ctx.scope(cleanup=False), open_ledger(wait=1.0) as ledger:
                names = [info.prompt for info in ledger.runs(kind="prompt")]
        except (TurnledgerError, OSError):
            return []
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


prompt_argument = click.argument("prompt", type=PromptParam())
at_option = click.option(
    "--at",
    metavar="VERSION|TAG",
    default=LATEST,
    help="As of this version, or the one that a tag names. Default: latest.",
)


def not_found(message: str) -> NoReturn:
    """End the command, as something that was named does not exist."""
    fail(message, ExitCode.NOT_FOUND)


def version_of(ledger: Ledger, prompt: PromptName, at: str) -> int:
    """The version that a number, a tag or "latest" names; ends the command if there is none."""
    head = ledger.head(prompt.stream)
    if not head:
        not_found(
            f"Prompt {prompt} has no overrides in this ledger. `turnledger prompts list` lists "
            "those that have."
        )
    if at == LATEST:
        return head
    if at.isdecimal() and len(at) <= LONGEST_NUMBER:
        return int(at)
    tags = state_at(ledger, prompt, head).tags
    if at not in tags:
        known = ", ".join(sorted((*tags, LATEST)))
        not_found(f"Prompt {prompt} has no tag {at!r}. Its tags are: {known}.")
    return tags[at]


def state_at(ledger: Ledger, prompt: PromptName, version: int) -> PromptState:
    """The overrides of a prompt at a version; 0 is before the first."""
    return view_at(ledger, prompt.stream, version, PromptOverrides())
