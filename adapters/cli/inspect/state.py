"""Commands `state`, `changes`, `diff` and `blame`: a run's state, and what changed it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple
from uuid import UUID

import click

from turnledger.adapters.cli.shared.command import command, open_ledger, printer
from turnledger.adapters.cli.shared.output import (
    Format,
    from_to,
    json_text,
    line_width,
    say,
    shortened,
)
from turnledger.adapters.cli.shared.parameters import at_option, number_from, run_argument
from turnledger.adapters.cli.shared.views import view_of
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import InvalidInputError
from turnledger.projections import blame as blamed
from turnledger.projections import step
from turnledger.projections.persistent.lazy_json import pointer_parts
from turnledger.projections.run_state.changes import state_changes
from turnledger.projections.run_state.json_diff import Change
from turnledger.projections.run_state.state import built_in
from turnledger.projections.run_state.state_json import lazy_state_json
from turnledger.runtime.session.types import SliceTypes

# Reducers of the package's own slices, such as plans.
OWN: Final = SliceTypes().declarations
VIEWS: Final = {view.name: view for view in built_in(OWN)}
# Least width of a value in a line of `diff`.
LEAST_ROOM = 20


# --- JSON Pointers ------------------------------------------------------------------


class Pointer(NamedTuple):
    """JSON Pointer (RFC 6901) into a state: its text and its parts."""

    text: str
    parts: tuple[str, ...]


def as_pointer(text: str) -> Pointer:
    """Parse a JSON Pointer."""
    try:
        return Pointer(text, pointer_parts(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


# --- state --------------------------------------------------------------------------


@command(
    example="""\
turnledger state 099a8057 --at 12
turnledger state 099a8057 --path /usage/total/calls
turnledger state 099a8057 --projection tools --path /0""",
)
@run_argument
@at_option
@click.option(
    "--projection",
    type=click.Choice(list(VIEWS)),
    metavar="NAME",
    help="Only this view; `turnledger projections` lists the names.",
)
@click.option(
    "--path",
    type=as_pointer,
    metavar="POINTER",
    help="Only the value at this JSON Pointer into the output.",
)
def state(run: UUID, at: int | None, projection: str | None, path: Pointer | None) -> None:
    """Print a run's state as JSON.

    The state is the fold of the run's events, view by view. Session slices are printed as
    recorded JSON: the reducers of the program that wrote them are not known here.
    """
    pointer = path.text if path is not None else ""
    if projection is not None:
        pointer = f"/{projection}{pointer}"
    elif path is not None and path.parts:
        _check_view(path)
    with open_ledger() as ledger:
        found = lazy_state_json(ledger, run, at, pointer=pointer, declarations=OWN)
    printer().pretty(found)


def _check_view(path: Pointer) -> None:
    """UsageError if a pointer into the whole state does not begin with a view."""
    name = path.parts[0] if path.parts else ""
    if name in VIEWS:
        return
    near = get_close_matches(name, VIEWS)
    hint = f" Did you mean /{near[0]}?" if near else ""
    raise click.UsageError(
        f"Invalid pointer {path.text!r}: it must begin with a view: {', '.join(VIEWS)}.{hint}"
    )


@command(
    example="""\
turnledger diff 099a8057 7 12
turnledger diff 099a8057 0 12 -o json > patch.json""",
)
@run_argument
@click.argument("a", type=number_from(0))
@click.argument("b", type=number_from(0))
def diff(run: UUID, a: int, b: int) -> None:
    """Show how the state changed from version A to version B.

    Each line is a change: + is added, - is removed and ~ has another value. -o json prints a
    JSON Patch (RFC 6902). Version 0 is before the first event.
    """
    with open_ledger() as ledger:
        found = state_changes(ledger, run, a, b, declarations=OWN)
    _print_changes(found, f"The states at versions {a} and {b} are equal.")


@command(
    example="""\
turnledger changes 099a8057 7
turnledger changes 099a8057 7 -o json > patch.json""",
)
@run_argument
@click.argument("version", type=number_from(1))
def changes(run: UUID, version: int) -> None:
    """Show what one event changed in the state.

    The lines are those of `diff`, and -o json prints a JSON Patch (RFC 6902). Gaps of the
    timeline are left out: they follow from all of its spans.
    """
    with open_ledger() as ledger:
        found = step(ledger, run, version, declarations=OWN)
    _print_changes(found.changes, f"Event {version} changed nothing in the state.")


def _print_changes(found: Sequence[Change], nothing: str) -> None:
    """Print changes as lines or as a JSON Patch; `nothing` is said if there are none."""
    out = printer()
    if out.form is not Format.TABLE:
        out.many(change.operation() for change in found)
        return
    width = line_width()
    for change in found:
        out.styled(_line(change, width))
    if not found:
        say(nothing)


def _line(change: Change, width: int) -> tuple[str, str]:
    path = visible(change.path)
    room = max(width - len(path) - 4, LEAST_ROOM)
    match change.op:
        case "add":
            return f"+ {path} {shortened(json_text(change.value), room)}", "green"
        case "remove":
            return f"- {path}", "red"
        case "replace":
            return (
                f"~ {path} {from_to(json_text(change.was), json_text(change.value), room)}",
                "yellow",
            )


@command(
    example="""\
turnledger blame 099a8057 /summary/status
turnledger blame 099a8057 /history/turns/3 --at 12""",
)
@run_argument
@click.argument("pointer", type=as_pointer)
@at_option
def blame(run: UUID, pointer: Pointer, at: int | None) -> None:
    """Show the event that last set a value of the state.

    POINTER is a JSON Pointer into the output of `state`. The output is that of `show`.
    """
    _check_view(pointer)
    with open_ledger() as ledger:
        lazy_state_json(ledger, run, at, pointer=pointer.text, declarations=OWN)  # it is there
        try:
            record = blamed(ledger, run, pointer.text, at=at, declarations=OWN)
        except InvalidInputError:
            raise InvalidInputError(
                f"No event of run {run} set {pointer.text!r}: it has its initial value."
            ) from None
    printer().pretty(view_of(record))
