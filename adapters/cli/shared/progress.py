"""Progress bars on stderr: shown on a terminal only, and removed at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from turnledger.adapters.cli.shared.output import console_on
from turnledger.ledger import Ledger
from turnledger.ledger.integrity.verify import every_run


@contextmanager
def bar(title: str) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A bar; call what it yields with the step's name, how much is done, and the total."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
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
    """A bar for one step; a `total` that is a function is called only if the bar is shown."""
    with bar(title) as tell:
        if tell is None:
            yield None
            return
        show, whole = tell, total() if callable(total) else total
        yield lambda done: show(title, done, whole if whole is None else max(done, whole))


def events_in(ledger: Ledger) -> int:
    """How many events the whole ledger holds."""
    return sum(row.length for row in every_run(ledger.store))


def verifying(ledger: Ledger) -> AbstractContextManager[Callable[[int], None] | None]:
    """A bar for verifying the whole ledger."""
    return counting("verifying", lambda: events_in(ledger))
