"""Parameter types, and the arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
from click.shell_completion import CompletionItem

from turnledger.adapters.cli.shared.command import open_ledger
from turnledger.ledger import ANY, NEW, TurnledgerError
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.events.upcasters import UPCASTERS
from turnledger.ledger.runs.append_request import Expected

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # not generic in every click that we run with
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])

KNOWN_TYPES = (*EVENT_TYPES, *UPCASTERS)
# How many runs shell completion offers.
OFFERED = 500
# More digits than any version has; Python refuses to convert very long numbers.
LONGEST_NUMBER = 40


class RunParam(ParamType):
    """Run id; shell completion offers those in the ledger."""

    name = "run"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> UUID:
        try:
            return UUID(str(value))
        except ValueError:
            message = f"Invalid run id {value!r}: expected a UUID."
            raise click.BadParameter(message) from None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with ctx.scope(cleanup=False), open_ledger(wait=1.0) as ledger:
                return [
                    CompletionItem(str(run.run_id), help=f"{run.status} {run.prompt}".strip())
                    for run in islice(ledger.runs(), OFFERED)
                    if str(run.run_id).startswith(incomplete)
                ]
        except (TurnledgerError, OSError):
            return []


class NewRunParam(RunParam):
    """Run id, or `new` for a run to be created."""

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Any:
        return "new" if value == "new" else super().convert(value, param, ctx)


def as_expected(text: str) -> int | Expected:
    """Parse the expected version of a run: a number, `new` or `any`."""
    if text in ("new", "any"):
        return NEW if text == "new" else ANY
    if text.isdecimal() and len(text) <= LONGEST_NUMBER:
        return int(text)
    raise click.BadParameter(f"Invalid version {text!r:.80}: expected a number, 'new' or 'any'.")


class TypeParam(ParamType):
    """Event type, or a pattern (`tool_call.*`)."""

    name = "type"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> str:
        text = str(value)
        if any(fnmatchcase(tag, text) for tag in KNOWN_TYPES):
            return text
        near = get_close_matches(text, KNOWN_TYPES)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.BadParameter(f"Unknown event type {text!r}.{hint}")

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(tag) for tag in EVENT_TYPES if tag.startswith(incomplete)]


def as_moment(text: str) -> datetime:
    """Parse a time in ISO 8601; UTC if it has no time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"Invalid time {text!r}: expected 2025-01-31 or 2025-01-31T18:00Z."
        raise click.BadParameter(message) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


RUN = RunParam()
RUN_OR_NEW = NewRunParam()
TYPE = TypeParam()


# --- arguments and options ----------------------------------------------------------

run_argument = click.argument("run", type=RUN)
optional_run_argument = click.argument("run", type=RUN, required=False)


def number_from(least: int) -> click.IntRange:
    """The type of a version, a position or a count: stores hold 64 bits."""
    return click.IntRange(min=least, max=2**63 - 1)


def version_option(
    *names: str, least: int = 0, metavar: str = "N", **more: Any
) -> Callable[[F], F]:
    """An option whose value is a version, a position or an epoch."""
    return click.option(*names, type=number_from(least), metavar=metavar, **more)


def flag(*names: str, **more: Any) -> Callable[[F], F]:
    """An option without a value."""
    return click.option(*names, is_flag=True, **more)


def file_option(*names: str, exists: bool, **more: Any) -> Callable[[F], F]:
    """An option whose value is a file: to be read (`exists`) or to be written."""
    path = click.Path(exists=exists, dir_okay=False, path_type=Path)
    return click.option(*names, type=path, metavar="FILE", **more)


def tag_option(*, needs_value: bool, **more: Any) -> Callable[[F], F]:
    """The option `--tag`, which may be repeated: `key=value`; for a search also `key` alone."""

    def as_tag(given: str) -> tuple[str, str | None]:
        key, equals, text = given.partition("=")
        if not key or (needs_value and not equals):
            raise click.BadParameter(f"Invalid tag {given!r}: expected key=value.")
        return key, text if equals else None

    metavar = "KEY=VALUE" if needs_value else "KEY[=VALUE]"
    return click.option("--tag", "tags", type=as_tag, multiple=True, metavar=metavar, **more)


def app_option(**more: Any) -> Callable[[F], F]:
    """The option `--app`, which names the user's code."""
    return click.option("--app", metavar="MODULE:AGENT", **more)


at_option = version_option(
    "--at", help="As of version N; 0 is before the first event. Default: the latest."
)
loop_option = app_option(
    required=True, help="Your Agent, or a function of the ledger that returns a MainLoop."
)
