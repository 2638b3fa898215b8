"""What all commands share: `--db`, `-o` and the like before or after the command, errors, help.

A command is a function; the class here gives it the common options and an example.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Any

import click

from turnledger.adapters.cli.shared.exit_codes import MEANINGS, ExitCode, exit_code_of
from turnledger.adapters.cli.shared.output import REDACTOR, Format, Printer, say, without_secrets
from turnledger.ledger import Ledger, Redactor, TurnledgerError
from turnledger.ledger.redaction.redactor import STANDARD

DB_VARIABLE = "TURNLEDGER_DB"
DEFAULT_DB = "runs.db"
REDACTOR_VARIABLE = "TURNLEDGER_REDACTOR"
_DB, _FORM, _RULES = "turnledger.db", "turnledger.output", "turnledger.redactor_file"


def _remember_db(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_DB] = value


def _remember_form(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_FORM] = Format(value)


def _remember_redactor(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_RULES] = value


def _remember_none(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_RULES] = None


def common_options(*, before_command: bool = False) -> list[click.Parameter]:
    """`--db`, `-o` and the like; after the command they count more than before it."""
    return [
        click.Option(
            ["--db"],
            metavar="URL",
            envvar=DB_VARIABLE if before_command else None,
            expose_value=False,
            callback=_remember_db,
            help="The ledger: a path, sqlite:///FILE or postgresql://... "
            f"Default: ${DB_VARIABLE}, or {DEFAULT_DB} in the current folder.",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice([form.value for form in Format]),
            expose_value=False,
            callback=_remember_form,
            help="How data is printed on stdout. Default: table.",
        ),
        click.Option(
            ["--redactor"],
            metavar="FILE",
            envvar=REDACTOR_VARIABLE if before_command else None,
            expose_value=False,
            callback=_remember_redactor,
            help="What is a secret, beside or instead of the known formats (TOML). Secrets are "
            f"marked, and never written. Default: ${REDACTOR_VARIABLE}, or all known formats.",
        ),
        click.Option(
            ["--no-redactor"],
            is_flag=True,
            expose_value=False,
            callback=_remember_none,
            help="Write and compare everything as it is, secrets too.",
        ),
    ]


def ledger_url() -> str:
    url: str = click.get_current_context().meta.get(_DB, DEFAULT_DB)
    return url


def open_ledger(*, create: bool = False, wait: float = 30.0) -> Ledger:
    """The ledger that was asked for; only commands that write into a new one create it."""
    return Ledger.open(ledger_url(), create=create, wait=wait, redactor=redactor())


def redactor() -> Redactor | None:
    """What takes secrets out of all that is written, and said; None if nothing shall."""
    meta = click.get_current_context().meta
    if REDACTOR not in meta:
        path = meta.get(_RULES, "")
        meta[REDACTOR] = Redactor.read(path) if path else STANDARD if path == "" else None
    found: Redactor | None = meta[REDACTOR]
    return found


def printer() -> Printer:
    return Printer(click.get_current_context().meta.get(_FORM, Format.TABLE))


def finish(code: ExitCode) -> None:
    """End the command with this code."""
    if code is not ExitCode.OK:
        click.get_current_context().exit(code)


class LedgerCommand(click.Command):
    """A command with the common options, and an example under its help."""

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


class LedgerGroup(click.Group):
    """The command itself: turns errors into messages and exit codes."""

    command_class = LedgerCommand

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options(before_command=True))

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
            # What was given is quoted there, and may have been a secret in the wrong place.
            vars(error)["message"] = without_secrets(error.message)
            raise
        except TurnledgerError as error:
            say(f"Error: {error}")
            code = exit_code_of(error)
        except OSError as error:
            if error.errno == errno.EPIPE:
                silence_stdout()
                code = ExitCode.BROKEN_PIPE
            else:
                say(f"Error: {error}")
                code = ExitCode.ERROR
        raise click.exceptions.Exit(code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in MEANINGS.items()])


def silence_stdout() -> None:
    """Nobody reads any more: let what is still buffered go nowhere, without a complaint."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
