"""`export --test`: writes a run's history, and a pytest test that replays it."""

from __future__ import annotations

import keyword
import os
import re
import shutil
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import click

from turnledger.adapters.cli.operate.begun_by import is_block
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.user_code import load_app, load_factory
from turnledger.ledger import Ledger, export_runs
from turnledger.ledger.errors import error_text
from turnledger.ledger.transfer.file_format import Totals

if TYPE_CHECKING:  # slow to import
    from turnledger.adapters.testing.histories import Factory

FOLDER = "histories"


class App(NamedTuple):
    """A loop factory: its module and name."""

    module: str
    name: str

    @classmethod
    def of(cls, text: str | None) -> App:
        """Parse `module:factory` without importing it."""
        if text is None:
            raise click.UsageError("Missing option '--app': --test needs your agent, MODULE:AGENT.")
        module, _, name = text.partition(":")
        for word in (*module.split("."), name):
            if not word.isidentifier() or keyword.iskeyword(word):
                raise click.BadParameter(
                    f"Invalid app {text!r}: expected module:agent, or module:factory, that a test "
                    "can import.",
                    param_hint="--app",
                )
        return cls(module, name)

    @property
    def imported(self) -> str:
        """The line of the test that imports it."""
        alias = "" if self.used_as == self.name else f" as {self.used_as}"
        return f"from {self.module} import {self.name}{alias}\n\n\n"

    def argument(self, test: Path) -> str:
        """What the test hands to the replay."""
        return self.used_as

    def code(self) -> Factory:
        """What the test replays."""
        from turnledger.runtime.steps import Workflow

        app = f"{self.module}:{self.name}"
        found = load_app(app)
        return found if isinstance(found, Workflow) else load_factory(app)

    @property
    def used_as(self) -> str:
        """The factory's name in the test: one that pytest does not collect."""
        return "loop" if self.name.lower().startswith("test") else self.name

    def refused(self, why: str) -> click.BadParameter:
        return click.BadParameter(f"{self.module}:{self.name} {why}", param_hint="--app")


class Script(NamedTuple):
    """A script with blocks, `with turnledger.run(...)`: it is run, not imported."""

    path: Path
    imported: str = ""

    def argument(self, test: Path) -> str:
        """Its path as the test names it: from the test's own folder."""
        found = os.path.relpath(self.path, test.parent)
        return f'"{Path(found).as_posix()}"'

    def code(self) -> Factory:
        return self.path

    def refused(self, why: str) -> click.BadParameter:
        return click.BadParameter(f"{self.path} {why}", param_hint="--app")


def _wanted(app: str | None, ledger: Ledger, run: UUID) -> App | Script:
    """What `--app` names: code to import, or for a block the script that it is in."""
    if not is_block(ledger, run):
        return App.of(app)
    if app is None or not app.endswith(".py"):
        raise click.UsageError(
            f"Run {run} is a block of a script: --app is that script, as in --app shop.py."
        )
    return Script(Path(app))


def write_test(ledger: Ledger, run: UUID, test: Path, app: str | None, *, force: bool) -> None:
    """Write a run's history and its test, both or neither, and print whether it passes.

    Args:
        ledger: The ledger that holds the run.
        run: The run.
        test: The test file to write; the history goes to `histories/` beside it.
        app: An agent, a workflow or a loop factory, `module:name`; for a block its script.
        force: Overwrite existing files.
    """
    wanted = _wanted(app, ledger, run)
    if test.suffix != ".py":
        raise click.BadParameter(
            f"Invalid test file {test}: expected a name that ends with .py.", param_hint="--test"
        )
    history = test.parent / FOLDER / f"{test.stem}.jsonl"
    if not force:
        _refuse_to_replace(test)
    content = BytesIO()
    totals = export_runs(ledger, content, [run])
    # The same run gives the same bytes: an equal history is kept.
    is_kept = history.is_file() and history.read_bytes() == content.getvalue()
    if not force and not is_kept:
        _refuse_to_replace(history)
    verdict = _verdict(content, run, history, wanted)
    text = test_text(wanted, test, run, totals)
    # The history first: the test never exists without it.
    files = [] if is_kept else [(history, content.getvalue())]
    publish([*files, (test, text.encode())], force=force)
    say(f"Wrote {test} and {history} ({totals.records} records).")
    say(verdict)
    if not re.fullmatch(r"test_.*|.*_test", test.stem):
        say(f"pytest collects test_*.py and *_test.py only: call it with {test.name}.")


def test_text(app: App | Script, test: Path, run: UUID, totals: Totals) -> str:
    """The source of the test."""
    name = re.sub(r"\W", "_", test.stem)
    name = name if name.startswith("test_") else f"test_{name}"
    history, code = f'"{FOLDER}/{test.stem}.jsonl"', app.argument(test)
    call = f"turnledger_replay({history}, {code})"
    if totals.runs > 1:
        # Its ancestors are in the history too, perhaps run by other code.
        arguments = (history, code, f'run="{run}"')
        lines = "".join(f"        {argument},\n" for argument in arguments)
        call = f"turnledger_replay(\n{lines}    )"
    return (
        f"{app.imported}"
        f"def {name}(turnledger_replay):\n"
        f'    """Run {run} replays without a divergence."""\n'
        f"    {call}\n"
    )


def _verdict(content: BytesIO, run: UUID, history: Path, app: App | Script) -> str:
    """Whether the test passes now; BadParameter if the factory does not fit the run."""
    from turnledger.adapters.testing.histories import HistoryError, HistoryFailedError, replay_file

    code = app.code()
    content.seek(0)
    try:
        replay_file(content, str(history), code, run=run)
    except HistoryFailedError as failed:
        return f"The test fails with your current code: {failed.summary}"
    except HistoryError as error:
        raise app.refused(f"does not fit: {error}") from error
    except Exception as error:
        raise app.refused(f"failed: {error_text(error)}") from error
    return "The test passes with your current code."


# --- atomic writing of several files ------------------------------------------------


def _refuse_to_replace(path: Path) -> None:
    if os.path.lexists(path):
        raise _is_there(path)


def _is_there(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists. --force overwrites it.")


def publish(files: list[tuple[Path, bytes]], *, force: bool) -> None:
    """Write files, all or none; existing ones are overwritten with `force` only."""
    scraps: list[Path] = []
    with ExitStack() as undo:

        def scrap(path: Path, end: str) -> Path:
            made = path.with_name(f".{path.name}.{os.getpid()}.{end}")
            scraps.append(made)
            undo.callback(made.unlink, missing_ok=True)
            return made

        ready = []
        for path, content in files:
            _make_folder(path.parent, undo)
            ready.append((path, scrap(path, "part")))
            _write(ready[-1][1], content)
        for path, part in ready:
            if path.exists() and not path.is_file():
                raise FileExistsError(f"{path} is not a regular file, and is not overwritten.")
            if force and os.path.lexists(path):
                before = scrap(path, "old")
                shutil.copy2(path, before, follow_symlinks=False)
                part.replace(path)
                undo.callback(before.replace, path)
            else:
                _put(path, part)
                undo.callback(path.unlink)
        undo.pop_all()  # success: nothing is undone
    for path in scraps:
        path.unlink(missing_ok=True)


def _make_folder(folder: Path, undo: ExitStack) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent, undo)
    folder.mkdir()
    undo.callback(folder.rmdir)


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def _put(path: Path, part: Path) -> None:
    """Rename a file, unless the name is taken."""
    try:
        os.link(part, path)  # unlike a rename, it overwrites nothing
    except FileExistsError:
        raise _is_there(path) from None
    except OSError:  # a file system without links
        _refuse_to_replace(path)
        part.replace(path)
