"""A bar on stderr for a person who waits; nothing for a program, and nothing left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from turnledger.adapters.cli.shared.output import console_on
from turnledger.ledger import Ledger
from turnledger.ledger.integrity.verify import every_run


@contextmanager
def bar(title: str) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Gives what is to be told the name of the work, how much is done, and of how much."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console_on(sys.stderr), transient=True) as shown:
        task = shown.add_task(title, total=None)

        def tell(doing: str, done: int, total: int | None) -> None:
            shown.update(task, description=doing, completed=done, total=total)

        yield tell


@contextmanager
def counting(
    title: str, total: int | Callable[[], int | None] | None
) -> Iterator[Callable[[int], None] | None]:
    """The same for one kind of work; how much it is in all is asked only if somebody looks."""
    with bar(title) as tell:
        if tell is None:
            yield None
            return
        show, whole = tell, total() if callable(total) else total
        yield lambda done: show(title, done, whole if whole is None else max(done, whole))


def events_in(ledger: Ledger) -> int:
    """How many events the whole ledger holds."""
    return sum(row.version - row.parent_version for row in every_run(ledger.store))


@contextmanager
def verifying(ledger: Ledger) -> Iterator[Callable[[int], None] | None]:
    """A bar for a verification of the whole ledger."""
    with counting("verifying", lambda: events_in(ledger)) as progress:
        yield progress
