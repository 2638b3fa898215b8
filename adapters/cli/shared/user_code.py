"""The user's own code: tables, and loops that `--app` names."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.ledger import Ledger
from turnledger.ledger.errors import error_text

if TYPE_CHECKING:  # it takes its time to import
    from turnledger.runtime import MainLoop


def load(text: str, *, hint: str | None = None) -> Any:
    """What `module:name` names; None if the module has no such name.

    A program in the current folder is found, as `python -m` finds it.
    """
    module, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), name, None)
    except Exception as error:
        message = f"{text!r} can't be imported: {error_text(error)}"
        raise click.BadParameter(message, param_hint=hint) from error


def load_factory(app: str) -> Callable[..., Any]:
    """The factory that `--app` names."""
    factory: Callable[..., Any] | None = load(app, hint="--app")
    if not callable(factory):
        raise click.BadParameter(f"{app!r} is no factory: module:factory", param_hint="--app")
    return factory


def load_loop(app: str, ledger: Ledger) -> MainLoop[Any, Any]:
    """The loop that `--app` gives for a ledger."""
    from turnledger.runtime import MainLoop

    loop = load_factory(app)(ledger)
    if not isinstance(loop, MainLoop):
        raise click.BadParameter(
            f"{app!r} gave a {type(loop).__name__}, not a MainLoop", param_hint="--app"
        )
    return loop


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the work like Ctrl-C: leases are given back, runs stay resumable."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(ExitCode.TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
