"""The pytest plugin: a recorded run as a test.

    def test_bug(turnledger_replay):
        turnledger_replay("histories/test_bug.jsonl", loop)

It is loaded with every pytest of an environment that has the package, so it adds one fixture,
no option and no marker, and imports the package itself only when the fixture is used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

    from turnledger.adapters.testing.histories import Factory
    from turnledger.ledger.runs.append_request import RunId
    from turnledger.runtime import Replayed


class ReplayHistory(Protocol):
    """What the fixture `turnledger_replay` is."""

    def __call__(
        self,
        history: str | os.PathLike[str],
        factory: Factory | str,
        *,
        run: RunId | None = None,
        until: int | None = None,
    ) -> tuple[Replayed, ...]:
        """Replay a history on today's code; the test fails at the first difference.

        `history` is a file that `turnledger export` wrote, relative to the test's own.
        `factory` builds the loop; it takes a ledger, or nothing. Or it is an Agent, a workflow,
        or the path of a script with blocks, relative to the test's file. Every run of the file that
        was asked for what the loop takes is run again; or `run`, and that up to version `until`.
        """


@pytest.fixture
def turnledger_replay(request: pytest.FixtureRequest) -> ReplayHistory:
    """Runs a recorded history again on today's code, without models, tools and network."""
    folder = request.path.parent

    def replay(
        history: str | os.PathLike[str],
        factory: Factory | str,
        *,
        run: RunId | None = None,
        until: int | None = None,
    ) -> tuple[Replayed, ...]:
        __tracebackhide__ = True
        from turnledger.adapters.testing.histories import (
            HistoryError,
            HistoryFailedError,
            replay_history,
        )

        path = _from_here(folder / history)
        if isinstance(factory, str | Path):
            factory = _from_here(folder / factory)
        try:
            return replay_history(path, factory, run=run, until=until)
        except (HistoryError, HistoryFailedError) as error:
            said = str(error)
        # Outside of the `except`: what led to it is said already.
        from turnledger.adapters.terminal_text import visible_lines

        pytest.fail(visible_lines(said), pytrace=False)

    return replay


def histories(folder: str | os.PathLike[str]) -> list[ParameterSet]:
    """The histories of a folder, relative to the calling file, for `parametrize`.

        @pytest.mark.parametrize("history", histories("histories"))
        def test_history(history, turnledger_replay):
            turnledger_replay(history, loop)

    A folder without any is an error: such a test would never fail.
    """
    caller = sys._getframe(1).f_globals.get("__file__") or ""
    where = Path(caller).parent / folder
    found = sorted(where.glob("*.jsonl"))
    if not found:
        raise pytest.Collector.CollectError(f"There are no histories (*.jsonl) in {where}.")
    return [pytest.param(path, id=path.stem) for path in found]


def _from_here(path: Path) -> Path:
    """As short as it can be said, for messages; it is the same file."""
    path = Path(os.path.normpath(path))
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
