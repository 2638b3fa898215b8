"""Writing a test of a run: its history, and a few lines for pytest that run it again."""

from __future__ import annotations

import keyword
import os
import re
import shutil
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import click

from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.user_code import load_factory
from turnledger.ledger import Ledger, export_runs
from turnledger.ledger.errors import error_text
from turnledger.ledger.transfer.file_format import Totals

FOLDER = "histories"


class App(NamedTuple):
    """What builds a loop, as it is imported."""

    module: str
    name: str

    @classmethod
    def of(cls, text: str | None) -> App:
        """From `module:factory`; nothing is imported."""
        if text is None:
            raise click.UsageError(
                "--test needs --app MODULE:FACTORY: a run does not say what code it was run by."
            )
        module, _, name = text.partition(":")
        for word in (*module.split("."), name):
            if not word.isidentifier() or keyword.iskeyword(word):
                raise click.BadParameter(
                    f"{text!r} is no module:factory that a test can import", param_hint="--app"
                )
        return cls(module, name)

    @property
    def used_as(self) -> str:
        """The factory's name in the test: one that pytest takes for no test of its own."""
        return "loop" if self.name.lower().startswith("test") else self.name

    def refused(self, why: str) -> click.BadParameter:
        return click.BadParameter(f"{self.module}:{self.name} {why}", param_hint="--app")


def write_test(ledger: Ledger, run: UUID, test: Path, app: str | None, *, force: bool) -> None:
    """Write a run's history and its test, both or neither, and say whether it passes now."""
    wanted = App.of(app)
    if test.suffix != ".py":
        raise click.BadParameter(f"{test} is no Python file", param_hint="--test")
    history = test.parent / FOLDER / f"{test.stem}.jsonl"
    if not force:
        _refuse_to_replace(test)
    content = BytesIO()
    totals = export_runs(ledger, content, [run])
    # The same run gives the same bytes: such a history may stay.
    is_kept = history.is_file() and history.read_bytes() == content.getvalue()
    if not force and not is_kept:
        _refuse_to_replace(history)
    verdict = _verdict(content, run, history, wanted)
    text = test_text(wanted, test, run, totals)
    # The history first: a test is never there without it.
    files = [] if is_kept else [(history, content.getvalue())]
    publish([*files, (test, text.encode())], force=force)
    say(f"Wrote {test} and {history} ({totals.records} records).")
    say(verdict)
    if not re.fullmatch(r"test_.*|.*_test", test.stem):
        say(f"pytest looks for test_*.py and *_test.py: name {test.name} when you call it.")


def test_text(app: App, test: Path, run: UUID, totals: Totals) -> str:
    """The test, as somebody would have written it."""
    name = re.sub(r"\W", "_", test.stem)
    name = name if name.startswith("test_") else f"test_{name}"
    alias = "" if app.used_as == app.name else f" as {app.used_as}"
    history = f'"{FOLDER}/{test.stem}.jsonl"'
    call = f"turnledger_replay({history}, {app.used_as})"
    if totals.runs > 1:
        # What it descends from went its own way, perhaps with other code.
        arguments = (history, app.used_as, f'run="{run}"')
        lines = "".join(f"        {argument},\n" for argument in arguments)
        call = f"turnledger_replay(\n{lines}    )"
    return (
        f"from {app.module} import {app.name}{alias}\n\n\n"
        f"def {name}(turnledger_replay):\n"
        f'    """Run {run} goes as it went."""\n'
        f"    {call}\n"
    )


def _verdict(content: BytesIO, run: UUID, history: Path, app: App) -> str:
    """Whether the test passes with today's code; an error if it is no test of this code."""
    from turnledger.adapters.testing.histories import HistoryError, HistoryFailedError, replay_file

    factory = load_factory(f"{app.module}:{app.name}")
    content.seek(0)
    try:
        replay_file(content, str(history), factory, run=run)
    except HistoryFailedError as failed:
        return f"It fails with today's code: {failed.summary}"
    except HistoryError as error:
        raise app.refused(f"does not fit: {error}") from error
    except Exception as error:
        raise app.refused(f"failed: {error_text(error)}") from error
    return "It passes with today's code."


# --- both or neither ---------------------------------------------------------------------------


def _refuse_to_replace(path: Path) -> None:
    if os.path.lexists(path):
        raise _is_there(path)


def _is_there(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} is there already. --force replaces it.")


def publish(files: list[tuple[Path, bytes]], *, force: bool) -> None:
    """Put files in their places, all or none; what is there is replaced with `force` only."""
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
                raise FileExistsError(f"{path} is no file, and is not replaced by one.")
            if force and os.path.lexists(path):
                before = scrap(path, "old")
                shutil.copy2(path, before, follow_symlinks=False)
                part.replace(path)
                undo.callback(before.replace, path)
            else:
                _put(path, part)
                undo.callback(path.unlink)
        undo.pop_all()  # it worked: nothing is undone
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
    """Give a file its name, unless there is one of that name."""
    try:
        os.link(part, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise _is_there(path) from None
    except OSError:  # a file system without links
        _refuse_to_replace(path)
        part.replace(path)
