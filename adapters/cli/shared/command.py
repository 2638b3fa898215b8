"""Command and group classes: common options, lazy loading, errors as exit codes, help.

`command` makes a function a command with the common options and an example. The group imports a
command's module when the command is used: `--version` and `--help` import none. An error is a
message on stderr, or with `-o json` a JSON object on one line, the last one there.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from turnledger.adapters.cli.shared.exit_codes import MEANINGS, ExitCode, exit_code_of
from turnledger.adapters.cli.shared.output import (
    GIVEN,
    REDACTOR,
    Format,
    Printer,
    broken_names,
    say,
    say_json,
)

if TYPE_CHECKING:  # imported where they are used: help and usage errors need no ledger
    from click.shell_completion import CompletionItem

    from turnledger.ledger import Ledger, Redactor

PACKAGE = "turnledger.adapters.cli"
DB_VARIABLE = "TURNLEDGER_DB"
DEFAULT_DB = "runs.db"
REDACTOR_VARIABLE = "TURNLEDGER_REDACTOR"
_DB, _FORM, _RULES = "turnledger.db", "turnledger.output", "turnledger.redactor_file"
_TOKEN_FILE = "turnledger.token_file"  # noqa: S105 - a name
# Whether errors are JSON: known before the options are parsed, as that may fail.
_JSON_ERRORS = "turnledger.json_errors"
_JSON_OPTION = re.compile(r"(?:-o|--output=?)(jsonl?)?")
COMMON = ("db", "token_file", "output", "redactor", "no_redactor")
ABOUT_COMMON = "--db, --token-file, -o, --redactor and --no-redactor: see turnledger --help."


def _remember(key: str, convert: Callable[[Any], Any]) -> Callable[..., None]:
    """A click callback that keeps an option's value in the context, if the option is given."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            ctx.meta[key] = convert(value)

    return callback


def _read_token(path: str) -> str:
    """The beginning of a file: a token is one short line, and a device may have no end."""
    try:
        # What is not a token is refused later.
        with open(path, errors="replace") as file:
            return file.read(4096)
    except OSError as error:
        raise click.BadParameter(f"{path!r}: {error.strerror}.") from error


def common_options(*, before_command: bool = False) -> list[click.Parameter]:
    """`--db`, `-o` and the redactor options; those after the command win over those before it.

    They are eager: a run is looked up in the ledger that `--db` names, wherever that stands.
    """
    return [
        click.Option(
            ["--db"],
            metavar="URL",
            envvar=DB_VARIABLE if before_command else None,
            expose_value=False,
            is_eager=True,
            callback=_remember(_DB, str),
            help="Ledger: a path, sqlite:///FILE, postgresql://..., or https://HOST:PORT of "
            f"turnledger serve. Default: ${DB_VARIABLE}, or {DEFAULT_DB} in the current folder.",
        ),
        click.Option(
            ["--token-file"],
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            expose_value=False,
            is_eager=True,
            callback=_remember(_TOKEN_FILE, _read_token),
            help="File with the access token for the server that --db names. Default: the token "
            "in $TURNLEDGER_TOKEN.",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice([form.value for form in Format]),
            expose_value=False,
            is_eager=True,
            callback=_remember(_FORM, Format),
            metavar="FORMAT",
            help="Format of the data on stdout: table (the default), json or jsonl.",
        ),
        click.Option(
            ["--redactor"],
            metavar="FILE",
            envvar=REDACTOR_VARIABLE if before_command else None,
            expose_value=False,
            is_eager=True,
            callback=_remember(_RULES, str),
            help="TOML file with rules for secrets, besides or instead of known formats. Secrets "
            f"are masked and never written. Default: ${REDACTOR_VARIABLE}, or all known formats.",
        ),
        click.Option(
            ["--no-redactor"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_remember(_RULES, lambda given: None),
            help="Do not mask secrets: write and compare everything as it is.",
        ),
    ]


def ledger_url() -> str:
    """The ledger's URL or path, from `--db`, the environment or the default."""
    url: str = click.get_current_context().meta.get(_DB, DEFAULT_DB)
    return url


def open_ledger(*, create: bool = False, wait: float = 30.0, url: str | None = None) -> Ledger:
    """Open the ledger of `--db`, or another one.

    Args:
        create: Make the ledger if there is none, for commands that may write to a new one.
        wait: Seconds to wait for other writers.
        url: Another ledger than that of `--db`.
    """
    from turnledger.ledger import Ledger

    where = ledger_url() if url is None else url
    context = click.get_current_context()
    clock = context.obj  # the system's, unless the caller gave one
    if _TOKEN_FILE in context.meta and is_served(where):
        from turnledger.ledger.stores.open import served_ledger

        made: Ledger = served_ledger(where)(
            where, context.meta[_TOKEN_FILE], wait=wait, redactor=redactor(), clock=clock
        )
        return made
    return Ledger.open(where, create=create, wait=wait, redactor=redactor(), clock=clock)


def is_served(url: str) -> bool:
    """Whether a ledger is reached through a server."""
    return url.startswith(("http://", "https://"))


def redactor() -> Redactor | None:
    """The redactor for everything that is written or printed; None with `--no-redactor`."""
    meta = click.get_current_context().meta
    if REDACTOR not in meta:
        from turnledger.ledger import Redactor
        from turnledger.ledger.redaction import STANDARD

        path = redactor_file()
        meta[REDACTOR] = Redactor.read(path) if path else STANDARD if path == "" else None
    found: Redactor | None = meta[REDACTOR]
    return found


def redactor_file() -> str | None:
    """The file of `--redactor`; "" for the known formats, None with `--no-redactor`."""
    path: str | None = click.get_current_context().meta.get(_RULES, "")
    return path


def printer() -> Printer:
    """A printer in the format of `-o`."""
    ctx = click.get_current_context()
    return Printer(ctx.meta.get(_FORM, Format.TABLE), ctx.obj)


def report(text: str, value: Mapping[str, Any]) -> None:
    """Print the summary of a command whose data is not a table, on stderr.

    Args:
        text: For people.
        value: The same, for `-o json` and jsonl.
    """
    if printer().form is Format.TABLE:
        say(text)
    else:
        say_json(value)


def finish(code: ExitCode) -> None:
    """End the command with this exit code."""
    if code is not ExitCode.OK:
        click.get_current_context().exit(code)


class CommandError(click.ClickException):
    """Ends a command with a message and an exit code; `fields` are beside it in JSON."""

    def __init__(self, message: str, code: ExitCode, fields: Mapping[str, Any]) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = code  # click declares it for the class
        self.fields = fields


def fail(message: str, code: ExitCode, **fields: Any) -> NoReturn:
    """End the command with an error.

    Args:
        message: What is wrong, and what to do.
        code: The exit code.
        fields: What a program may need of it, for the JSON form.
    """
    raise CommandError(message, code, fields)


def _write_options(
    command: click.Command,
    ctx: click.Context,
    formatter: click.HelpFormatter,
    *,
    common: bool = False,
) -> None:
    """The options of a command in its help; the common ones in full, or on one line."""
    options = [p for p in command.get_params(ctx) if isinstance(p, click.Option)]
    shown = (p.get_help_record(ctx) for p in options if common or p.name not in COMMON)
    with formatter.section("Options"):
        formatter.write_dl([record for record in shown if record is not None])
    if not common and any(p.name in COMMON for p in options):
        formatter.write_paragraph()
        formatter.write(f"  {ABOUT_COMMON}\n")


class LedgerCommand(click.Command):
    """Command with the common options, and an example under its help."""

    def __init__(
        self,
        *args: Any,
        example: str = "",
        without: tuple[str, ...] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.params.extend(p for p in common_options() if p.name not in without)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    formatter.write(f"  {line}\n")


def command(
    name: str | None = None, *, example: str, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], LedgerCommand]:
    """Make a function a command.

    Args:
        name: By default the function's name.
        example: Shown under the help.
        without: Common options that the command does not take.
    """
    return click.command(name, cls=LedgerCommand, example=example, without=without)


class _LazyCommands(Mapping[str, click.Command]):
    """The commands by name; a command's module is imported when the command is asked for."""

    def __init__(self, table: Mapping[str, tuple[str, str]]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> click.Command:
        module, _, function = self._table[name][0].partition(":")
        command: click.Command = getattr(import_module(f"{PACKAGE}.{module}"), function)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._table))

    def __len__(self) -> int:
        return len(self._table)


class LazyGroup(click.Group):
    """Command group that loads its commands on use.

    Args:
        sections: By heading in the help: for each command's name "module:function" in the
            package, and its short help.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.table = {name: one for table in sections.values() for name, one in table.items()}
        self.commands = cast(MutableMapping[str, click.Command], _LazyCommands(self.table))
        self.params.extend(self.options())

    def options(self) -> list[click.Parameter]:
        """The common options, before the command."""
        return common_options()

    def load_all(self) -> Mapping[str, click.Command]:
        """Import every command; the commands by name, those of groups by both names."""
        found: dict[str, click.Command] = {}
        for name, command in self.commands.items():
            inner = command.load_all() if isinstance(command, LazyGroup) else {"": command}
            found |= {f"{name} {more}".rstrip(): one for more, one in inner.items()}
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.table))
        for heading, table in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(widest), text) for name, (_, text) in table.items()]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        options = super().shell_complete(ctx, incomplete) if incomplete.startswith("-") else []
        names = (name for name in sorted(self.table) if name.startswith(incomplete))
        return [*(CompletionItem(name, help=self.table[name][1]) for name in names), *options]


class LedgerGroup(LazyGroup):
    """The outermost group: turns errors into messages and exit codes."""

    def options(self) -> list[click.Parameter]:
        return common_options(before_command=True)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter, common=True)
        self.format_commands(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = (*args, *(os.environ.get(name, "") for name in (DB_VARIABLE, REDACTOR_VARIABLE)))
        ctx.meta[GIVEN] = broken_names(given)
        ctx.meta[_JSON_ERRORS] = _asks_for_json(args)
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as error:
            raise _shown(error, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (KeyboardInterrupt, click.Abort):
            code = ExitCode.INTERRUPTED
        except click.exceptions.Exit as done:
            try:
                sys.stdout.flush()
            except BrokenPipeError:
                silence_stdout()
            code = ExitCode(done.exit_code)
        except click.ClickException as error:
            raise _shown(error, ctx) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                silence_stdout()
                code = ExitCode.BROKEN_PIPE
            elif isinstance(error, OSError) or _is_ours(error):
                code = exit_code_of(error)
                if ctx.meta[_JSON_ERRORS]:
                    public = {n: v for n, v in vars(error).items() if not n.startswith("_")}
                    _say_as_json(error, str(error), code, public)
                else:
                    say(f"Error: {error}")
            else:
                raise
        raise click.exceptions.Exit(code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in MEANINGS.items()])


def _asks_for_json(args: Sequence[str]) -> bool:
    """Whether a command line has `-o json` or `-o jsonl`, the last one that it has."""
    asked = False
    for word, following in zip(args, (*args, "")[1:], strict=True):
        found = _JSON_OPTION.fullmatch(word)
        if found is not None:
            asked = found[1] is not None or following in ("json", "jsonl")
    return asked


def _shown(error: click.ClickException, ctx: click.Context) -> click.exceptions.Exit:
    """Print an error of the command line; the exit that follows.

    What click says quotes the command line: a secret in the wrong place, any file name. `say`
    masks that.
    """
    if ctx.meta[_JSON_ERRORS]:
        names = ("candidates",) if not isinstance(error, CommandError) else ()
        fields = {name: vars(error)[name] for name in names if name in vars(error)}
        fields |= error.fields if isinstance(error, CommandError) else {}
        _say_as_json(error, error.format_message(), error.exit_code, fields)
    elif type(error).__name__ == "NoArgsIsHelpError":  # of newer clicks: its message is the help
        click.echo(error.format_message(), err=True)
    else:
        where = getattr(error, "ctx", None)
        if isinstance(error, click.UsageError) and where is not None:
            say(where.get_usage())
            say(f"Try '{where.command_path} {where.help_option_names[0]}' for help.\n")
        message = error.format_message().replace("\n\t", "\n  ")  # click lists choices so
        say(f"Error: {message}")
    return click.exceptions.Exit(error.exit_code)


def _say_as_json(error: Exception, message: str, code: int, fields: Mapping[str, Any]) -> None:
    found = {"error": type(error).__name__, "message": message, "exit_code": int(code)}
    say_json({**found, **{name: value for name, value in fields.items() if name not in found}})


def _is_ours(error: Exception) -> bool:
    from turnledger.ledger import TurnledgerError

    return isinstance(error, TurnledgerError)


def silence_stdout() -> None:
    """Redirect stdout to the null device, so that flushing to a closed pipe raises nothing."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
