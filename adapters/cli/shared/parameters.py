"""Parameter types, and the arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
from click.shell_completion import CompletionItem

from turnledger.adapters.cli.shared.command import open_ledger
from turnledger.adapters.cli.shared.output import age_text, say, short_id
from turnledger.ledger import (
    ANY,
    NEW,
    InvalidInputError,
    Ledger,
    RunInfo,
    RunNotFoundError,
    TurnledgerError,
    run_id_for,
)
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.events.upcasters import UPCASTERS
from turnledger.ledger.runs.append_request import Expected
from turnledger.ledger.runs.names import NAME_TAG

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # not generic in every click that we run with
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])

KNOWN_TYPES = (*EVENT_TYPES, *UPCASTERS)
# How many runs shell completion offers.
OFFERED = 500
# How many runs are named where the name of one is ambiguous.
MOST_NAMED = 10
_BACK = re.compile(r"@(?:last|-([1-9][0-9]{0,5}))")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F-]{1,36}")
# More digits than any version has; Python refuses to convert very long numbers.
LONGEST_NUMBER = 40


class AmbiguousRunError(click.BadParameter):
    """Several runs have what was given as the name of one; `candidates` are those, newest first."""

    def __init__(self, given: str, found: Sequence[RunInfo], now: int) -> None:
        rows = [
            (short_id(run.run_id), run.status, run.prompt, age_text(now, run.started_at))
            for run in found[:MOST_NAMED]
        ]
        self.candidates = [str(run.run_id) for run in found]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        more = "\n  and more" if len(found) > MOST_NAMED else ""
        super().__init__(
            f"Ambiguous run {given!r}. Name one of these by its id:\n  " + "\n  ".join(lines) + more
        )


def find_run(ledger: Ledger, given: str) -> UUID:
    """The one run that a person means: its name, part of its id, `@last`, `@-2` or a tag.

    A whole name goes before part of an id and before a tag; if another run fits too, that is said.

    Raises:
        AmbiguousRunError: There are several.
        RunNotFoundError: There is none.
    """
    back = _BACK.fullmatch(given)
    if back is not None:
        place = int(back[1] or 1)
        found = list(islice(ledger.runs(limit=place), place - 1, None))
        looked_for = f"number {place}, counted from the newest"
    elif "=" in given:
        key, _, value = given.partition("=")
        found = list(ledger.runs(tags={key: value}, limit=MOST_NAMED + 1))
        looked_for = "a run of this name, and one with this tag"
    elif _HEXADECIMAL.fullmatch(given):
        found = list(ledger.runs(id_part=given, limit=MOST_NAMED + 1))
        looked_for = "a run of this name, and an id that begins or ends with it"
    else:
        found, looked_for = [], "a run of this name"
    named = run_id_for(given) if back is None else None
    if named is not None and ledger.head(named):
        _tell_others(given, named, found)
        return named
    if not found:
        raise RunNotFoundError(given, looked_for)
    if len(found) > 1:
        raise AmbiguousRunError(given, found, ledger.clock.micros())
    return found[0].run_id


def _tell_others(given: str, named: UUID, found: Sequence[RunInfo]) -> None:
    """Say which run was meant, if what was given fits others too."""
    others = [str(run.run_id) for run in found if run.run_id != named]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        say(f"{given!r} is the name of run {named}; it fits run {others[0]}{more} too.")


def name_of(run: RunInfo) -> str:
    """The name that a run is found by; empty if it has none."""
    name = run.tags.get(NAME_TAG, "")
    try:
        return name if run_id_for(name) == run.run_id else ""
    except InvalidInputError:
        return ""


def _can_be_named(given: str) -> bool:
    """Whether a run may be meant; what begins with "@" or "=" is never a name."""
    if given.startswith(("@", "=")):
        return _BACK.fullmatch(given) is not None
    try:
        return bool(run_id_for(given))
    except InvalidInputError:
        return False


class RunParam(ParamType):
    """A run: its id, a unique beginning or end of it, its name, @last, @-2, or a tag."""

    name = "run"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> UUID:
        given = str(value)
        try:
            return UUID(given)  # a whole id is not looked up
        except ValueError:
            pass
        if not _can_be_named(given):
            raise click.BadParameter(
                f"Invalid run {given!r:.80}: expected a run id, the beginning or end of one, a "
                "name, @last, @-2 or a tag like customer=acme."
            )
        with self.open(ctx) as ledger:
            return find_run(ledger, given)

    def open(self, ctx: click.Context | None) -> AbstractContextManager[Ledger]:
        """The ledger that the run is looked for in."""
        return open_ledger()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with ctx.scope(cleanup=False), open_ledger(wait=1.0) as ledger:
                return [
                    CompletionItem(name, help=f"{run.status} {run.prompt}".strip())
                    for name, run in _offered(ledger, incomplete)
                ]
        except (TurnledgerError, OSError):
            return []


def _offered(ledger: Ledger, incomplete: str) -> Iterator[tuple[str, RunInfo]]:
    """What begins like this and means a run, with the run: names, ids, `@last`, tags."""
    if incomplete.startswith("@"):
        for place, run in enumerate(ledger.runs(limit=MOST_NAMED), start=1):
            name = "@last" if place == 1 else f"@-{place}"
            if name.startswith(incomplete):
                yield name, run
        return
    recent = list(ledger.runs(limit=OFFERED))
    names = ((name_of(run), run) for run in recent)
    yield from ((name, run) for name, run in names if name and name.startswith(incomplete))
    if not incomplete or _HEXADECIMAL.fullmatch(incomplete):
        part = incomplete.strip("-") or None
        yield from ((str(run.run_id), run) for run in ledger.runs(id_part=part, limit=OFFERED))
    if incomplete:
        tags = {f"{key}={value}": run for run in recent for key, value in run.tags.items()}
        yield from ((tag, run) for tag, run in tags.items() if tag.startswith(incomplete))


class NewRunParam(RunParam):
    """Run id, or `new` for a run to be created."""

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Any:
        return "new" if value == "new" else super().convert(value, param, ctx)


class OtherRunParam(RunParam):
    """A run of the ledger that `--other-db` names, which is an eager option."""

    def open(self, ctx: click.Context | None) -> AbstractContextManager[Ledger]:
        url = ctx.params.get("other_db") if ctx is not None else None
        return open_ledger(url=url) if isinstance(url, str) else super().open(ctx)


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


_DURATION = re.compile(r"([1-9][0-9]{0,4})([dhm])", re.ASCII)
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def as_duration(text: str) -> timedelta:
    """Parse a length of time: 30d, 12h or 45m."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"Invalid time {text!r:.80}: expected a number of days, hours or minutes, like 30d, "
            "12h or 45m."
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


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
OTHER_RUN = OtherRunParam()
TYPE = TypeParam()


# --- arguments and options ----------------------------------------------------------

run_argument = click.argument("run", type=RUN)
optional_run_argument = click.argument("run", type=RUN, required=False)


class _Number(click.IntRange):
    """A number from a least one on; help and errors do not name the greatest."""

    def _describe_range(self) -> str:
        return f"from {self.min} on"


def number_from(least: int) -> click.IntRange:
    """The type of a version, a position or a count: stores hold 64 bits."""
    return _Number(min=least, max=2**63 - 1)


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
