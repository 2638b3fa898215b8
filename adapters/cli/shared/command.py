"""Command and group classes: common options, lazy loading, errors as exit codes, help.

`command` makes a function a command with the common options and an example. The group imports a
command's module when the command is used: `--version` and `--help` import none.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import click

from turnledger.adapters.cli.shared.exit_codes import MEANINGS, ExitCode, exit_code_of
from turnledger.adapters.cli.shared.output import (
    GIVEN,
    REDACTOR,
    Format,
    Printer,
    broken_names,
    printable,
    say,
)

if TYPE_CHECKING:  # imported where they are used: help and usage errors need no ledger
    from click.shell_completion import CompletionItem

    from turnledger.ledger import Ledger, Redactor

PACKAGE = "turnledger.adapters.cli"
DB_VARIABLE = "TURNLEDGER_DB"
DEFAULT_DB = "runs.db"
REDACTOR_VARIABLE = "TURNLEDGER_REDACTOR"
_DB, _FORM, _RULES = "turnledger.db", "turnledger.output", "turnledger.redactor_file"


def _remember(key: str, convert: Callable[[Any], Any]) -> Callable[..., None]:
    """A click callback that keeps an option's value in the context, if the option is given."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            ctx.meta[key] = convert(value)

    return callback


def common_options(*, before_command: bool = False) -> list[click.Parameter]:
    """`--db`, `-o` and the redactor options; those after the command win over those before it."""
    return [
        click.Option(
            ["--db"],
            metavar="URL",
            envvar=DB_VARIABLE if before_command else None,
            expose_value=False,
            callback=_remember(_DB, str),
            help="Ledger: a path, sqlite:///FILE or postgresql://... "
            f"Default: ${DB_VARIABLE}, or {DEFAULT_DB} in the current folder.",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice([form.value for form in Format]),
            expose_value=False,
            callback=_remember(_FORM, Format),
            help="Output format of the data on stdout. Default: table.",
        ),
        click.Option(
            ["--redactor"],
            metavar="FILE",
            envvar=REDACTOR_VARIABLE if before_command else None,
            expose_value=False,
            callback=_remember(_RULES, str),
            help="TOML file with rules for secrets, besides or instead of known formats. Secrets "
            f"are masked and never written. Default: ${REDACTOR_VARIABLE}, or all known formats.",
        ),
        click.Option(
            ["--no-redactor"],
            is_flag=True,
            expose_value=False,
            callback=_remember(_RULES, lambda given: None),
            help="Do not mask secrets: write and compare everything as it is.",
        ),
    ]


def ledger_url() -> str:
    """The ledger's URL or path, from `--db`, the environment or the default."""
    url: str = click.get_current_context().meta.get(_DB, DEFAULT_DB)
    return url


def open_ledger(*, create: bool = False, wait: float = 30.0) -> Ledger:
    """Open the ledger of `--db`; `create` is for commands that may write to a new one."""
    from turnledger.ledger import Ledger

    return Ledger.open(ledger_url(), create=create, wait=wait, redactor=redactor())


def redactor() -> Redactor | None:
    """The redactor for everything that is written or printed; None with `--no-redactor`."""
    meta = click.get_current_context().meta
    if REDACTOR not in meta:
        from turnledger.ledger import Redactor
        from turnledger.ledger.redaction.redactor import STANDARD

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
    return Printer(click.get_current_context().meta.get(_FORM, Format.TABLE))


def finish(code: ExitCode) -> None:
    """End the command with this exit code."""
    if code is not ExitCode.OK:
        click.get_current_context().exit(code)


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
        table: For each command's name "module:function" in the package, and its short help.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table
        self.commands = cast(MutableMapping[str, click.Command], _LazyCommands(table))
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(self.table.items())])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        options = super().shell_complete(ctx, incomplete) if incomplete.startswith("-") else []
        names = (name for name in sorted(self.table) if name.startswith(incomplete))
        return [*(CompletionItem(name, help=self.table[name][1]) for name in names), *options]


class LedgerGroup(LazyGroup):
    """The outermost group: turns errors into messages and exit codes."""

    def options(self) -> list[click.Parameter]:
        return common_options(before_command=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = (*args, *(os.environ.get(name, "") for name in (DB_VARIABLE, REDACTOR_VARIABLE)))
        ctx.meta[GIVEN] = broken_names(given)
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as error:
            _make_printable(error)
            raise

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
            _make_printable(error)
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                silence_stdout()
                code = ExitCode.BROKEN_PIPE
            elif isinstance(error, OSError) or _is_ours(error):
                say(f"Error: {error}")
                code = exit_code_of(error)
            else:
                raise
        raise click.exceptions.Exit(code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in MEANINGS.items()])


def _make_printable(error: click.ClickException) -> None:
    """What click says quotes the command line: a secret in the wrong place, any file name."""
    for name in ("message", "ui_filename"):
        if name in vars(error):
            vars(error)[name] = printable(vars(error)[name])


def _is_ours(error: Exception) -> bool:
    from turnledger.ledger import TurnledgerError

    return isinstance(error, TurnledgerError)


def silence_stdout() -> None:
    """Redirect stdout to the null device, so that flushing to a closed pipe raises nothing."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
