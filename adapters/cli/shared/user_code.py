"""Imports the user's code: the agent or loop that `--app` names, and tables by `module:Class`."""

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
from turnledger.adapters.cli.shared.output import without_secrets
from turnledger.ledger import Ledger
from turnledger.ledger.errors import error_text

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime import MainLoop


def load(text: str, *, hint: str | None = None) -> Any:
    """Import the object that `module:name` names; None if the module has no such name.

    Modules in the current folder are found, as by `python -m`.
    """
    module, _, name = text.partition(":")
    if module.endswith(".py"):
        raise click.BadParameter(
            f"{module!r} is a file: name its module, {Path(module).stem}:{name or 'NAME'}.",
            param_hint=hint,
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), name, None)
    except (Exception, SystemExit) as error:
        from turnledger.runtime.replaying.user_code import raised_by_user

        message = f"Can't import {text!r}: {error_text(error)}"
        raised = raised_by_user(error, without_secrets)
        if raised is not None:
            message = f"{message}: your code raised {raised.where}\n\n{raised.traceback}"
        raise click.BadParameter(message, param_hint=hint) from error


def load_app(app: str) -> Any:
    """Import what `--app` names: an Agent, a workflow, or a function that makes a loop.

    It is not called.
    """
    from turnledger.runtime import Tool
    from turnledger.runtime.agents.agent import Agent
    from turnledger.runtime.steps import Workflow

    found = load(app, hint="--app")
    if isinstance(found, Agent | Workflow):
        return found
    # A tool or a step can be called, but must not be: it may do something.
    is_step = hasattr(found, "__turnledger_step__")
    if callable(found) and not is_step and not isinstance(found, type | Tool):
        return found
    module, _, name = app.partition(":")
    known = vars(import_module(module)).items()
    agents = [f"{module}:{one}" for one, value in known if isinstance(value, Agent | Workflow)]
    what = f"has no {name!r}" if found is None else f"{name!r} is a {type(found).__name__}"
    raise click.BadParameter(
        f"Invalid app {app!r}: {module} {what}. Expected an Agent, a workflow, or a function that "
        f"returns a MainLoop. Agents and workflows in {module}: {', '.join(agents) or 'none'}.",
        param_hint="--app",
    )


def load_factory(app: str) -> Callable[..., Any]:
    """Import what `--app` names, as a function that makes the loop for a ledger."""
    from turnledger.runtime.agents.agent import Agent
    from turnledger.runtime.steps import Workflow

    found = load_app(app)
    if isinstance(found, Workflow):
        raise click.BadParameter(
            f"Invalid app {app!r}: it is a workflow, and this command needs an Agent or a loop.",
            param_hint="--app",
        )
    factory: Callable[..., Any] = found.loop if isinstance(found, Agent) else found
    return factory


def load_loop(app: str, ledger: Ledger) -> MainLoop[Any, Any]:
    """Make the loop of `--app` for a ledger."""
    from turnledger.runtime import MainLoop
    from turnledger.runtime.replaying.user_code import calling_users_code

    factory = load_factory(app)
    with calling_users_code(ledger.redact_text):
        loop = factory(ledger)
    if not isinstance(loop, MainLoop):
        raise click.BadParameter(
            f"{app!r} returned a {type(loop).__name__}, expected a MainLoop.", param_hint="--app"
        )
    return loop


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """End on SIGTERM as on Ctrl-C: leases are released, runs stay resumable."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(ExitCode.TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
