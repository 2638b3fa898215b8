"""Commands about what is known of a run at any moment: `state`, `diff` and `blame`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any
from uuid import UUID

import click
import jsonpatch
from rich.text import Text

from turnledger.adapters.cli.shared.command import LedgerCommand, open_ledger, printer
from turnledger.adapters.cli.shared.output import Format, console_on, say, view_of
from turnledger.adapters.cli.shared.parameters import RUN
from turnledger.adapters.cli.shared.views import (
    MISSING,
    POINTER,
    VIEWS,
    Pointer,
    at_option,
    json_text,
    line_width,
    pointer,
    print_styled,
    records_until,
    shortened,
    view_at,
)
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import InvalidInputError, Ledger
from turnledger.projections import blame as blamed
from turnledger.projections import state_at
from turnledger.projections.run_state.state import changed

# What a value in a line of `diff` gets at least, however long its path is.
LEAST_ROOM = 20


@click.command(
    cls=LedgerCommand,
    example="""\
turnledger state 01890a5d-ac96-774b-bcce-b302099a8057 --at 12
turnledger state 01890a5d-ac96-774b-bcce-b302099a8057 --path /usage/total/calls
turnledger state 01890a5d-ac96-774b-bcce-b302099a8057 --projection tools --path /0""",
)
@click.argument("run", type=RUN)
@at_option
@click.option(
    "--projection",
    type=click.Choice(list(VIEWS)),
    metavar="NAME",
    help="Only this view; `turnledger projections` lists them.",
)
@click.option(
    "--path",
    type=POINTER,
    metavar="POINTER",
    help="Only what this JSON Pointer names in what would be printed without it.",
)
def state(run: UUID, at: int | None, projection: str | None, path: Pointer | None) -> None:
    """Print what is known of a run, as JSON.

    The state is the fold of the run's events, view by view. Session slices are plain
    JSON here: the reducers of the program that wrote them are not known.
    """
    at_path = path or pointer("")
    with open_ledger() as ledger:
        if projection is not None:
            value = _view(ledger, run, at, projection)
        elif at_path.parts:
            name = _view_named(at_path)
            value = {name: _view(ledger, run, at, name)}
        else:
            value = state_at(ledger, run, at).outline()
    found = at_path.resolve(value)
    if found is MISSING:
        raise _names_nothing(at_path, run, projection)
    printer().pretty(found)


def _view(ledger: Ledger, run: UUID, at: int | None, name: str) -> Any:
    view = VIEWS[name]
    return view.outline(view_at(ledger, run, at, view))


def _view_named(path: Pointer) -> str:
    """The view that a pointer into the whole state begins with."""
    name = path.parts[0] if path.parts else ""
    if name in VIEWS:
        return name
    near = get_close_matches(name, VIEWS)
    hint = f" Did you mean /{near[0]}?" if near else ""
    raise click.UsageError(
        f"{path.text!r}: a pointer begins with a view, one of {', '.join(VIEWS)}.{hint}"
    )


def _names_nothing(path: Pointer, run: UUID, view: str | None = None) -> InvalidInputError:
    where = f"the view {view}" if view else "the state"
    return InvalidInputError(
        f"{path.text!r} names nothing in {where} of run {run} at that version."
    )


@click.command(
    cls=LedgerCommand,
    example="""\
turnledger diff 01890a5d-ac96-774b-bcce-b302099a8057 7 12
turnledger diff 01890a5d-ac96-774b-bcce-b302099a8057 0 12 -o json > patch.json""",
)
@click.argument("run", type=RUN)
@click.argument("a", type=click.IntRange(min=0))
@click.argument("b", type=click.IntRange(min=0))
def diff(run: UUID, a: int, b: int) -> None:
    """Show what changed from version A to version B.

    Each line is a change of the state: + is new, - is gone, ~ is another value now and
    > has moved. With -o json it is a JSON Patch (RFC 6902). Version 0 is before the first.
    """
    out = printer()
    with open_ledger() as ledger:
        before, patch = changed(ledger, run, a, b)
    if out.form is not Format.TABLE:
        out.many(patch, str, flush=False)
        return
    console = console_on(sys.stdout)
    for line in _changes(before, patch):
        print_styled(out, console, line)
    if not patch:
        say(f"The state at version {b} is the same as at version {a}.")


def _changes(value: Any, patch: list[dict[str, Any]]) -> Iterator[Text]:
    """A line for each operation; a path means the state after the operations before it."""
    width = line_width()
    for operation in patch:
        path = visible(operation["path"])
        room = max(width - len(path) - 4, LEAST_ROOM)
        match operation["op"]:
            case "add":
                line = Text(f"+ {path} {shortened(json_text(operation['value']), room)}", "green")
            case "remove":
                line = Text(f"- {path}", "red")
            case "replace":
                old = json_text(pointer(operation["path"]).resolve(value))
                new = json_text(operation["value"])
                line = Text(f"~ {path} {_from_to(old, new, room)}", "yellow")
            case _:
                line = Text(f"> {visible(operation['from'])} → {path}", "cyan")
        yield line
        value = jsonpatch.apply_patch(value, [operation], in_place=True)


def _from_to(old: str, new: str, room: int) -> str:
    """Both values in the room that there is; a short one leaves its room to the other."""
    half = max((room - 3) // 2, 1)
    first = shortened(old, max(half, room - 3 - len(new)))
    return f"{first} → {shortened(new, max(half, room - 3 - len(first)))}"


@click.command(
    cls=LedgerCommand,
    example="""\
turnledger blame 01890a5d-ac96-774b-bcce-b302099a8057 /summary/status
turnledger blame 01890a5d-ac96-774b-bcce-b302099a8057 /history/turns/3 --at 12""",
)
@click.argument("run", type=RUN)
@click.argument("pointer", type=POINTER)
@at_option
def blame(run: UUID, pointer: Pointer, at: int | None) -> None:
    """Show the record that last set a value.

    POINTER is a JSON Pointer into what `state` prints. The record is printed as `show`
    prints it.
    """
    name = _view_named(pointer)
    with open_ledger() as ledger:
        records_until(ledger, run, at)
        if pointer.resolve({name: _view(ledger, run, at, name)}) is MISSING:
            raise _names_nothing(pointer, run)
        try:
            record = blamed(ledger, run, pointer.text, at=at)
        except InvalidInputError:
            raise InvalidInputError(
                f"No event of run {run} set {pointer.text!r}: it has been so from the beginning."
            ) from None
    printer().pretty(view_of(record))
