"""Replay of a script: its blocks, `with turnledger.run(...)`, are run again against a history."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from turnledger.ledger import Ledger, TurnledgerError
from turnledger.ledger.errors import error_text
from turnledger.projections import state_at
from turnledger.runtime import Replayed
from turnledger.runtime.steps.block import RunBlock, replaying_from


class ScriptError(TurnledgerError):
    """A script did not go through the block of a run, or did not come to its end."""


def replay_script(ledger: Ledger, script: Path, runs: Sequence[UUID]) -> list[Replayed]:
    """Run a script as `python SCRIPT` does; its blocks replay from a ledger and perform nothing.

    What stands outside of the blocks runs as it is.

    Args:
        ledger: Has the runs.
        script: The script.
        runs: The runs whose blocks it must go through.

    Raises:
        ScriptError: It did not, or it raised an error that its run did not end with.
    """
    if not script.is_file():
        raise ScriptError(f"There is no script {script}.")
    raised: BaseException | None = None
    with replaying_from(ledger) as replayed, _as_main(script):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except (Exception, SystemExit) as error:
            raised = error
    blocks = {block.run_id: block for block in replayed.blocks}
    return [_replayed(ledger, script, run, blocks.get(run), raised) for run in runs]


@contextmanager
def _as_main(script: Path) -> Iterator[None]:
    """Arguments and import path of a script that is run by itself."""
    argv, path = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [str(script)], [str(script.resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _replayed(
    ledger: Ledger,
    script: Path,
    run: UUID,
    block: RunBlock | None,
    raised: BaseException | None,
) -> Replayed:
    """What came of a block, as a replay."""
    how = f" It raised {error_text(raised)}" if raised is not None else ""
    if block is None:
        raise ScriptError(f"{script} did not open the block of run {run}.{how}") from raised
    differs = block.divergence
    has_ended = ledger.run(run).status in ("completed", "failed")
    if differs is None and has_ended and not block.agrees:
        raise ScriptError(f"{script} did not end the block of run {run}.{how}") from raised
    state = state_at(ledger, run, differs.version if differs is not None else None)
    return Replayed(run, "execute", state.version, state, differs, 1)
