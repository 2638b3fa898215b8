"""Commands `prompts set` and `prompts tag`."""

from __future__ import annotations

import getpass
from typing import Any, BinaryIO

import click

from turnledger.adapters.cli.prompts.stream import (
    PromptName,
    prompt_argument,
    version_of,
)
from turnledger.adapters.cli.shared.command import command, open_ledger, printer
from turnledger.adapters.cli.shared.files import read_whole
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import LONGEST_NUMBER, version_option
from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    PromptOverrideSet,
    PromptTagMoved,
)
from turnledger.ledger.events.types import PromptEvent

note_option = click.option("--note", default="", help="Why it is changed.")
by_option = click.option("--by", metavar="NAME", help="Who changes it. Default: your user name.")
expect_option = version_option(
    "--expect", help="Change it only if the prompt is at version N; else exit code 4."
)


@command(
    "set",
    example="""\
turnledger prompts set acme/support/answer tone "Be brief." --note "too long"
turnledger prompts set acme/support/answer tone --file tone.md --expect 4
turnledger prompts show acme/support/answer --at 2 -o json \\
  | jq -r .overrides.tone.body \\
  | turnledger prompts set acme/support/answer tone --note "back to version 2\"""",
)
@prompt_argument
@click.argument("path")
@click.argument("text", required=False)
@click.option(
    "--file", type=click.File("rb"), metavar="FILE", help="Has the text, as UTF-8. Default: stdin."
)
@note_option
@by_option
@expect_option
def set_(
    prompt: PromptName,
    path: str,
    text: str | None,
    file: BinaryIO | None,
    note: str,
    by: str | None,
    expect: int | None,
) -> None:
    """Override a text of a prompt.

    PATH is a section's path, or "tool:NAME" for a tool's description; TEXT, --file or stdin is
    the text. An override that a program sets or seeds says which text it replaces, and counts
    only while the program has that text. This command does not know the program: it takes that
    from the last override of the same path. If there is none, it counts in any case.
    """
    if text is not None and file is not None:
        raise click.UsageError("TEXT can't be combined with --file.")
    body = text if text is not None else _read(file or click.open_file("-", "rb"))
    with open_ledger() as ledger:
        head = ledger.head(prompt.stream)
        event = PromptOverrideSet(
            prompt_ns=prompt.ns,
            prompt_key=prompt.key,
            path=path,
            body=body,
            replaces=_replaced(ledger, prompt, path, head),
            note=note,
            set_by=_user(by),
        )
        _append(ledger, prompt, event, head if expect is None else expect)


def _read(file: Any) -> str:
    """The text in a file, without the line break at its end."""
    try:
        return read_whole(file, "The input").decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"The text is not UTF-8: {error}.") from error


def _replaced(ledger: Ledger, prompt: PromptName, path: str, head: int) -> str:
    """The digest of the authored text, from the last override of the same path; else empty."""
    for record in ledger.read(prompt.stream, until=head, backwards=True) if head else ():
        event = record.event
        if isinstance(event, PromptOverrideSet) and event.path == path:
            return event.replaces
    say(f"The first override of {path!r} of {prompt}: it counts whatever text it replaces.")
    return ""


@command(
    example="""\
turnledger prompts tag acme/support/answer stable 4 --note "reviewed"
turnledger prompts tag acme/support/answer stable latest""",
)
@prompt_argument
@click.argument("tag")
@click.argument("at")
@note_option
@by_option
@expect_option
def tag(
    prompt: PromptName, tag: str, at: str, note: str, by: str | None, expect: int | None
) -> None:
    """Move a tag of a prompt to a version.

    AT is a version, or a tag that names it. Runs that are under way, and replays, keep the
    version that they began with.
    """
    if tag.isdecimal() and len(tag) <= LONGEST_NUMBER:
        raise click.UsageError(f"Invalid tag {tag!r}: a number is a version.")
    with open_ledger() as ledger:
        head, version = ledger.head(prompt.stream), version_of(ledger, prompt, at)
        event = PromptTagMoved(
            prompt_ns=prompt.ns,
            prompt_key=prompt.key,
            tag_name=tag,
            version=version,
            note=note,
            moved_by=_user(by),
        )
        _append(ledger, prompt, event, head if expect is None else expect)


def _append(ledger: Ledger, prompt: PromptName, event: PromptEvent, expected: int) -> None:
    """Append an event to a prompt's stream, and print the version that it made."""
    version = ledger.append(prompt.stream, event, expected).version
    value: dict[str, Any] = {"prompt": str(prompt), "version": version}
    out = printer()
    out.one(value, lambda: out.line(f"{prompt} is at version {version}."))


def _user(by: str | None) -> str:
    """The name given, else that of the user; empty if the system knows none."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
