"""Where shepherds are recorded and run again: each run with the options it was made with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from tests.replay.shepherd import Job, Shepherd, check_again
from turnledger.ledger import Event, Ledger, new_run_id
from turnledger.runtime.replaying.replay import Replayed


class Farm:
    """A ledger, and agents that are all made alike.

    Args:
        ledger: Where they are recorded.
        every: A run is run again up to every version, not only to the first and the last of a tag.
    """

    def __init__(self, ledger: Ledger, every: bool = True) -> None:
        self.ledger = ledger
        self._every = every
        self.options: dict[str, Any] = {}

    def loop(self, **changed: Any) -> Shepherd:
        """A live agent; what is changed is for this one only."""
        return Shepherd(self.ledger, **{**self.options, **changed})

    def dead(self) -> Shepherd:
        """The agent once more, with a ledger of its own and nobody to ask."""
        changed: dict[str, Any] = {"live": False, "listeners": None}
        return Shepherd(Ledger.open("memory://"), **{**self.options, **changed})

    def record(self, fails: type[BaseException] | None = None, **options: Any) -> UUID:
        """A run of an agent with these options, that ends well or with this error."""
        self.options = options
        run = new_run_id()
        if fails is None:
            self.loop().execute(Job(), run_id=run)
            return run
        with pytest.raises(fails):
            self.loop().execute(Job(), run_id=run)
        return run

    def recover(
        self, run: UUID, fails: type[BaseException] | None = None, **changed: Any
    ) -> Shepherd:
        """Another process goes on with it."""
        loop = self.loop(**changed)
        if fails is None:
            loop.recover(run)
            return loop
        with pytest.raises(fails):
            loop.recover(run)
        return loop

    def check(self, run: UUID, *tags: str) -> Replayed:
        """It replays in every way; and these are among what was recorded."""
        found = self.tags(run)
        missing = [tag for tag in tags if tag not in found]
        assert not missing, f"never recorded: {missing}; there are {found}"
        return check_again(self.ledger, run, self.dead, self._every)

    def events(self, run: UUID) -> list[Event]:
        return [record.event for record in self.ledger.read(run)]

    def tags(self, run: UUID) -> list[str]:
        return [record.tag for record in self.ledger.read(run)]


@contextmanager
def farm_at(url: str) -> Iterator[Farm]:
    """A farm whose ledger is at this address."""
    with Ledger.open(url) as ledger:
        yield Farm(ledger)
