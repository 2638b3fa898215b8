"""History of an event stream: recorded events after a position, in pages, from the store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from turnledger.adapters.http.live.messages import Message
from turnledger.ledger import Ledger, Record

# What is read and held for a client at a time, in messages and in bytes of their data.
PAGE, PAGE_BYTES = 200, 256 * 1024


class Page(NamedTuple):
    """Messages, and whether there are no more up to the position that was asked for."""

    messages: list[Message]
    is_last: bool


class History(Protocol):
    """Pages of recorded messages."""

    @property
    def run(self) -> str | None:
        """The run; None is the whole ledger."""

    def page(self, after: int, until: int) -> Page:
        """Messages above a position and up to another."""


class LedgerHistory:
    """The history of the whole ledger.

    Args:
        ledger: The ledger.
    """

    run = None

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def page(self, after: int, until: int) -> Page:
        """Messages above a position and up to another."""
        return _page(self._ledger.tail(after, page_size=PAGE), until)


class RunHistory:
    """The history of a run, with what it shares with its ancestors.

    Args:
        ledger: The ledger.
        run: The run.
    """

    def __init__(self, ledger: Ledger, run: str) -> None:
        self.run = run
        self._ledger = ledger
        # The version of the last record up to a position: pages are read in order.
        self._version: int | None = None

    def page(self, after: int, until: int) -> Page:
        """Messages above a position and up to another."""
        if self._version is None:
            self._version = self._find(after)
        records = self._ledger.read(self.run, self._version, page_size=PAGE)
        page = _page(records, until)
        self._version += len(page.messages)
        return page

    def _find(self, position: int) -> int:
        """The last version up to a position: positions grow with versions."""
        versions = range(1, self._ledger.head(self.run) + 1)
        if not position:
            return 0
        return bisect_right(
            versions, position, key=lambda version: self._ledger.record(self.run, version).position
        )


def _page(records: Iterator[Record], until: int) -> Page:
    messages: list[Message] = []
    size = 0
    for record in records:
        if record.position > until:
            break
        message = Message(record)
        messages.append(message)
        size += message.size
        if record.position == until:
            break  # to ask for more would wait for transactions under way
        if len(messages) == PAGE or size > PAGE_BYTES:
            return Page(messages, is_last=False)
    return Page(messages, is_last=True)
