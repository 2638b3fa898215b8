"""Damaged runs in commands over all runs: skipped, named on stderr, and told by the exit code."""

from __future__ import annotations

from collections.abc import Iterable

from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import say
from turnledger.ledger.errors import TurnledgerError, error_text


class SkippedRuns:
    """Names each damaged run once; `code` is the command's exit code so far."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def __call__(self, run_id: str, error: Exception | str) -> None:
        """Skip a run, for an error."""
        if run_id in self._named:
            return
        self._named.add(run_id)
        what = str(error) if isinstance(error, TurnledgerError | str) else error_text(error)
        advice = "" if "turnledger verify" in what else f" Run `turnledger verify {run_id}`."
        say(f"Skipped run {run_id}, which is damaged: {what}{advice}")

    def records(self, places: Iterable[str]) -> None:
        """Name records that a table does not count, given as "run version"."""
        for place in places:
            run_id, _, version = place.rpartition(" ")
            self(run_id, f"version {version} can't be read and is not counted.")

    @property
    def code(self) -> ExitCode:
        return ExitCode.INTEGRITY_FAILURE if self._named else ExitCode.OK
