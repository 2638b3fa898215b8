"""A process that runs the eventsourcing library's ProjectionRunner over a ledger, and dies.

`python -m tests.crash.projecting URL VIEW POSITION MOMENT COUNT`: it processes events up to
POSITION into a SQLite file, and kills itself at the COUNT-th event at a moment.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder

from turnledger.ledger import Ledger, LedgerApplication, Record

MOMENTS = ("before", "within", "after")


class SeenEvents(SQLiteTrackingRecorder):
    """A view of event ids, written in the transaction of their tracking."""

    moment, count = "", 0

    def construct_create_table_statements(self) -> list[str]:
        seen = "CREATE TABLE IF NOT EXISTS seen (event_id TEXT, run_id TEXT, version INTEGER)"
        return [*super().construct_create_table_statements(), seen]

    def see(self, record: Record, tracking: Tracking) -> None:
        SeenEvents.count -= 1
        self._die("before")
        with self.datastore.transaction(commit=True) as cursor:
            values = (str(record.event_id), str(record.run_id), record.version)
            cursor.execute("INSERT INTO seen VALUES (?, ?, ?)", values)
            self._die("within")
            self._insert_tracking(cursor, tracking)
        self._die("after")

    def _die(self, moment: str) -> None:
        if self.count == 0 and self.moment == moment:
            os.kill(os.getpid(), signal.SIGKILL)


class Seeing(Projection[SeenEvents]):
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        self.view.see(domain_event, tracking)


def main() -> None:
    url, view, position, moment, count = sys.argv[1:]
    SeenEvents.moment, SeenEvents.count = moment, int(count)
    with (
        Ledger.open(url, create=False) as ledger,
        ProjectionRunner(
            application_class=LedgerApplication.over(ledger),
            projection_class=Seeing,
            view_class=SeenEvents,
            env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": view},
        ) as runner,
    ):
        runner.wait(int(position), timeout=60)


if __name__ == "__main__":
    main()
