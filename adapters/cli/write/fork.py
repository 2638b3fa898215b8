"""Command `fork`: a run that shares another's events, optionally with one of them changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import click

from turnledger.adapters.cli.inspect.runs import run_view
from turnledger.adapters.cli.shared.command import command, fail, open_ledger, printer
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import flag, run_argument, tag_option
from turnledger.ledger import (
    Event,
    ForkPointError,
    Ledger,
    MessageAppended,
    ModelReplied,
    Record,
    ToolCallCompleted,
    ToolCallFailed,
)

# A longer value is not quoted in the message about it.
SHOWN = 60
TEXT, VALUE = "/message/content", "/value"


class Place(NamedTuple):
    """An event of a run as `--at` names it: by version, tool call or turn of the model."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "version" else f"{self.kind}:{self.name}"


def as_place(text: str) -> Place:
    """Parse `--at`: a version, `tool:CALL` or `turn:N`."""
    if re.fullmatch("[1-9][0-9]{0,17}", text):
        return Place("version", text)
    kind, _, name = text.partition(":")
    if (kind == "tool" and name) or (kind == "turn" and re.fullmatch("[0-9]{1,9}", name)):
        return Place(kind, name)
    raise click.BadParameter(
        f"Invalid place {text!r:.80}: expected a version from 1 on, tool:CALL or turn:N."
    )


def as_change(given: str) -> tuple[str, Any]:
    """Parse a change of an event: `POINTER=JSON`."""
    pointer, equals, text = given.partition("=")
    if not equals or not pointer.startswith("/"):
        raise click.BadParameter(
            f'Invalid change {given!r}: expected POINTER=JSON, as in /message/content="Hi".'
        )
    shown = text if len(text) <= SHOWN and "'" not in text else "some text"
    hint = (
        "Text needs double quotes, and the shell single quotes around all: "
        f"--set '{pointer}={json.dumps(shown)}'."
    )
    return pointer, _json(text, pointer, hint)


def _json(text: str, what: str, hint: str) -> Any:
    # Slow to import.
    from turnledger.runtime import DataDecodeError
    from turnledger.runtime.agent.schema import read_json

    try:
        return read_json(text)
    except DataDecodeError as error:
        raise click.BadParameter(f"Invalid JSON for {what}: {error}. {hint}") from None


@command(
    example="""\
turnledger fork 099a8057 --at 12 --tag why=retry
turnledger fork @last --user "Book Porto instead."
turnledger fork @last --tool call_3 --result "There is no room."
turnledger fork @last --at turn:2 --edit
turnledger fork @last --at 5 --set '/message/content="Book Porto instead"'""",
)
@run_argument
@click.option(
    "--at",
    type=as_place,
    metavar="PLACE",
    help="Last event that both runs share, or the event to change: a version, tool:CALL (what "
    "the model was told of this call) or turn:N (the model's Nth reply). Required, except "
    "with --user and --tool.",
)
@click.option(
    "--user",
    metavar="TEXT",
    help="Change the user's message to this: the last one, or the last up to --at.",
)
@click.option("--tool", metavar="CALL", help="Change what the model was told of this tool call.")
@click.option(
    "--result", metavar="TEXT", help="With --tool: the text that it is told; of a step, its JSON."
)
@flag("--edit", help="Change the event in your editor ($VISUAL or $EDITOR).")
@click.option(
    "--set",
    "given",
    type=as_change,
    multiple=True,
    metavar="POINTER=JSON",
    help="New value at a JSON Pointer into that event's data. May be repeated.",
)
@tag_option(needs_value=True, help="Tag of the new run. May be repeated.")
def fork(
    run: UUID,
    at: Place | None,
    user: str | None,
    tool: str | None,
    result: str | None,
    edit: bool,
    given: tuple[tuple[str, Any], ...],
    tags: tuple[tuple[str, str], ...],
) -> None:
    """Fork a run at an event, optionally with that event changed.

    The fork shares the run's events up to a version that ends a commit, without copying them.
    With a change, it shares the events before the commit of the event that is changed, and
    then has that event with another text, result or reply. Prints the new run's id; `turnledger
    recover` continues it, and of a block its script with `turnledger.run(ID)`.
    """
    changes = dict(given)
    if len(changes) != len(given):
        raise click.UsageError("--set names a pointer twice.")
    if (user is not None) + (tool is not None) + edit + bool(given) > 1:
        raise click.UsageError("Give one of --user, --tool, --edit and --set.")
    if (tool is None) != (result is None):
        raise click.UsageError("--tool and --result need each other.")
    if tool is not None and at is not None:
        raise click.UsageError("--tool can't be combined with --at.")
    if at is None and user is None and tool is None:
        raise click.UsageError("Missing option '--at': the event to fork at or to change.")
    with open_ledger() as ledger:
        place = Place("tool", tool) if tool is not None else at
        version = _version(ledger, run, place) if place is not None else None
        if user is not None:
            version = _users_message(ledger, run, version)
            changes = {TEXT: user}
        elif result is not None and version is not None:
            changes = _with_result(ledger.record(run, version).event, result)
        assert version is not None
        if edit:
            changes = _edited(ledger, run, version)
        if changes:
            from turnledger.runtime import what_if  # slow to import

            child = what_if(ledger, run, version, changes, tags=dict(tags), clock=ledger.clock)
        else:
            child = _fork(ledger, run, version, place, dict(tags))
        out = printer()
        out.one(run_view(ledger.run(child)), lambda: out.line(str(child)))


def _with_result(event: Event, result: str) -> dict[str, Any]:
    """What `--result` changes: the text for the model, or of a step the value."""
    if isinstance(event, MessageAppended):
        return {TEXT: result}
    hint = "The result of a step is its value: text needs double quotes."
    return {VALUE: _json(result, "--result", hint)}


def _fork(
    ledger: Ledger, run: UUID, version: int, place: Place | None, tags: dict[str, str]
) -> UUID:
    try:
        return ledger.fork(run, version, tags=tags)
    except ForkPointError as error:
        if place is None or place.kind == "version" or not error.nearest:
            raise
        # The event was named, not a version: the end of its commit is meant.
        end = error.nearest[-1]
        say(f"Forked at version {end}, which ends the commit of {place} (version {version}).")
        return ledger.fork(run, end, tags=tags)


# --- places -------------------------------------------------------------------------


def _version(ledger: Ledger, run: UUID, place: Place) -> int:
    """The version that a place names; of a call or turn, the message about it."""
    if place.kind == "version":
        return int(place.name)
    messages: dict[object, int] = {}
    known: dict[str, None] = {}
    found: int | None = None
    for record in ledger.read(run):
        event = record.event if record.tag in _READ else None
        if isinstance(event, MessageAppended):
            messages[event.message.message_id] = record.version
        elif isinstance(event, ModelReplied | ToolCallCompleted | ToolCallFailed):
            kind, name = _place_of(event)
            if kind == place.kind:
                known[name] = None
                if name == place.name:
                    found = record.version
                    if event.message_id is not None:
                        found = _message_after(ledger, run, record, event.message_id, messages)
    if found is None:
        what = "ended call" if place.kind == "tool" else "reply of turn"
        names = ", ".join(known) or "none"
        fail(
            f"Run {run} has no {what} {place.name!r}. It has: {names}.",
            ExitCode.NOT_FOUND,
            run_id=str(run),
            known=list(known),
        )
    return found


def _place_of(event: ModelReplied | ToolCallCompleted | ToolCallFailed) -> Place:
    """How an outcome is named: by its turn, or by its call; a model call as a step has one too."""
    if isinstance(event, ModelReplied) and not event.call_id:
        return Place("turn", str(event.turn))
    return Place("tool", event.call_id)


_READ = (MessageAppended.tag, ModelReplied.tag, ToolCallCompleted.tag, ToolCallFailed.tag)


def _message_after(
    ledger: Ledger, run: UUID, record: Record, message_id: object, before: dict[object, int]
) -> int:
    """The version of a message, which may be recorded before or after what names it."""
    if message_id in before:
        return before[message_id]
    for later in _messages(ledger, run, record.version):
        event = later.event
        if isinstance(event, MessageAppended) and event.message.message_id == message_id:
            return later.version
    return record.version


def _users_message(ledger: Ledger, run: UUID, until: int | None) -> int:
    """The version of the last message of the user up to a version."""
    messages = (r for r in ledger.read(run, until=until, backwards=True) if r.tag in _READ[:1])
    found = next((r.version for r in messages if _is_users(r.event)), None)
    if found is None:
        where = f" up to version {until}" if until is not None else ""
        fail(f"Run {run} has no message of the user{where}.", ExitCode.NOT_FOUND, run_id=str(run))
    return found


def _is_users(event: Event) -> bool:
    return isinstance(event, MessageAppended) and event.message.role == "user"


def _messages(ledger: Ledger, run: UUID, after: int) -> Iterator[Record]:
    return (one for one in ledger.read(run, after) if one.tag == MessageAppended.tag)


# --- the editor ---------------------------------------------------------------------


def _edited(ledger: Ledger, run: UUID, version: int) -> dict[str, Any]:
    """What a person changes of an event in an editor, by JSON pointer.

    A single text is edited as text, all else as a JSON object of pointers and values.
    """
    from turnledger.runtime.replaying.what_if.edit import editable  # slow to import

    before = editable(ledger.codec, ledger.record(run, version).event, version)
    (pointer, text), *others = before.items() or [("", None)]
    is_text = not others and isinstance(text, str)
    shown = text if is_text else json.dumps(before, indent=2, ensure_ascii=False)
    saved = click.edit(f"{shown}\n", extension=".txt" if is_text else ".json")
    if saved is None:
        fail("Nothing was saved in the editor: no fork was made.", ExitCode.ERROR)
    saved = saved.removesuffix("\n")
    after = {pointer: saved} if is_text else _json(saved, "the edited event", "Edit it again.")
    if not isinstance(after, dict):
        raise click.BadParameter("Invalid edited event: expected an object of JSON pointers.")
    changes = {name: value for name, value in after.items() if before.get(name) != value}
    if not changes:
        fail("Nothing was changed in the editor: no fork was made.", ExitCode.ERROR)
    return changes
