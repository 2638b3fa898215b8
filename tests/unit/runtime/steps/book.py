"""A run in a ledger in memory, and a log of what its steps did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent import Crash
from turnledger.ledger import Event, Ledger, run_id_for
from turnledger.runtime.steps import RunBlock, run

NAME = "order-17"
RUN = run_id_for(NAME)


class Book:
    """A ledger, what was done to the world, and the run of one name."""

    def __init__(self) -> None:
        self.ledger = Ledger.open("memory://")
        self.done: list[Any] = []

    def run(self, **options: Any) -> RunBlock:
        return run(NAME, ledger=self.ledger, **options)

    def did(self) -> list[Any]:
        """What was done since the last time this was asked."""
        done, self.done = self.done, []
        return done

    def events(self, *tags: str) -> list[Event]:
        found = [record.event for record in self.ledger.read(RUN)]
        return [one for one in found if not tags or one.tag in tags]

    def tags(self) -> list[str]:
        return [event.tag for event in self.events()]

    @property
    def status(self) -> str:
        return self.ledger.run(RUN).status

    def crashed(self, body: Any) -> None:
        """Run a body in the block, which a crash must end."""
        with pytest.raises(Crash), self.run() as entered:
            body(entered)
