"""The `eventsourcing` library's interfaces over a ledger: recorder, subscription, application.

They run the library's own tools; the project itself appends with `Ledger.append`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar
from uuid import UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.persistence import (
    ApplicationRecorder,
    InfrastructureFactory,
    IntegrityError,
    JSONTranscoder,
    Mapper,
    Notification,
    StoredEvent,
    Subscription,
)
from eventsourcing.popo import POPOFactory
from eventsourcing.utils import Environment

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.errors import ConcurrentAppendError, EventIdConflictError
from turnledger.ledger.ledger import Ledger
from turnledger.ledger.runs.append import AppendRequest, append
from turnledger.ledger.runs.append_request import build_request
from turnledger.ledger.runs.record import Draft, Record, as_row
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.base import PAGE


@dataclass(frozen=True)
class RecordedEvent(StoredEvent):
    """A record as the library's StoredEvent: its topic is the tag, its state the JSON."""

    record: Record

    @classmethod
    def of(cls, record: Record) -> RecordedEvent:
        """The stored event of a record."""
        return cls(record.run_id, record.version, record.tag, record.data.encode(), record)


@dataclass(frozen=True)
class RecordNotification(Notification):
    """A record as the library's Notification: its id is the position."""

    record: Record

    @classmethod
    def of(cls, record: Record) -> RecordNotification:
        """The notification of a record."""
        state = record.data.encode()
        return cls(record.run_id, record.version, record.tag, state, record.position, record)


class LedgerRecorder(ApplicationRecorder):
    """The library's recorder interface over an open ledger, on any store."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        """Append events, of one run or several, all or none; their positions.

        The topic is a tag of the catalogue and the state its JSON; both go through the checks and
        the redaction of `Ledger.append`. Event ids follow from run and version.

        Raises:
            IntegrityError: If a version is recorded already or does not follow the last one.
        """
        if kwargs:
            raise TypeError(f"Unknown arguments {sorted(kwargs)}: a ledger keeps no tracking.")
        runs: dict[UUID, list[StoredEvent]] = {}
        for stored in stored_events:
            runs.setdefault(UUID(str(stored.originator_id)), []).append(stored)
        requests = [self._request(run, events) for run, events in runs.items()]
        clock = self.ledger.clock

        def work(tx: Transaction) -> dict[tuple[str, int], int]:
            positions = {}
            for request in requests:
                outcome = append(tx, request, clock)
                if outcome.duplicate:  # to the library, a version that is there is a conflict
                    raise IntegrityError(f"Run {request.run_id} has these versions already.")
                rows = map(as_row, outcome.rows)
                positions.update({(row.run_id, row.version): row.position for row in rows})
            return positions

        try:
            positions = self.ledger.store.write(work)
        except (ConcurrentAppendError, EventIdConflictError) as error:
            raise IntegrityError(str(error)) from error
        return [positions[str(one.originator_id), one.originator_version] for one in stored_events]

    def _request(self, run: UUID, events: Sequence[StoredEvent]) -> AppendRequest:
        versions = [event.originator_version for event in events]
        if versions != list(range(versions[0], versions[0] + len(versions))):
            raise IntegrityError(f"Versions {versions} of run {run} are not consecutive.")
        codec = self.ledger.codec
        drafts = [
            Draft(codec.decode(event.topic, event.state), uuid5(run, str(version)))
            for version, event in zip(versions, events, strict=True)
        ]
        return build_request(run, drafts, versions[0] - 1, None, (), codec, self.ledger.clock)

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[RecordedEvent]:
        """A run's own events by version; of a fork not those that it shares with its parent."""
        rows = self.ledger.store.rows(
            str(originator_id), gt or 0, lte, backwards=desc, limit=limit or 2**31
        )
        return [RecordedEvent.of(Record(row, self.ledger.codec)) for row in rows]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[RecordNotification]:
        """Events of the whole ledger by position."""
        after = (start or 0) - (1 if inclusive_of_start and start else 0)
        found: list[RecordNotification] = []
        for record in self.ledger.tail(after, page_size=min(limit, PAGE) or 1):
            if len(found) == limit or (stop is not None and record.position > stop):
                break
            if not topics or record.tag in topics:
                found.append(RecordNotification.of(record))
        return found

    def max_notification_id(self) -> int | None:
        """The highest position; None for an empty ledger."""
        return self.ledger.store.last_position()

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """Past and future events of the whole ledger, from all processes, until stopped."""
        return LedgerSubscription(self, gt, topics)


class LedgerSubscription(Subscription[LedgerRecorder]):
    """The library's subscription: follows a ledger, and blocks until there are more events."""

    def __init__(
        self, recorder: LedgerRecorder, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder, gt, topics)
        self._stopping = Event()
        self._records = recorder.ledger.tail(gt or 0, follow=True, stop=self._stopping)

    def stop(self) -> None:
        """End the iteration, also of a thread that waits in it."""
        super().stop()
        self._stopping.set()

    def __next__(self) -> Notification:
        for record in self._records:
            if self._stopping.is_set():
                break
            if not self._topics or record.tag in self._topics:
                return RecordNotification.of(record)
        raise StopIteration


class LedgerMapper(Mapper[UUID]):
    """The library's mapper: a domain event is a `Record`, whose `event` is decoded on access."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(JSONTranscoder())
        self._ledger = ledger

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """The stored event of a record."""
        return RecordedEvent.of(domain_event)

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The record of a stored event."""
        if isinstance(stored_event, RecordedEvent | RecordNotification):
            return stored_event.record
        return self._ledger.record(stored_event.originator_id, stored_event.originator_version)


@check_methods()
class LedgerApplication(Application[UUID]):
    """The library's application over an open ledger, for its `ProjectionRunner`.

    The runner makes its application itself, from a class: `LedgerApplication.over(ledger)` is
    one. A projection's `process_event(record, tracking)` gets `Record`s; its `topics` are tags.
    Closing the application leaves the ledger open.
    """

    name = "turnledger"
    ledger: ClassVar[Ledger]

    @classmethod
    def over(cls, ledger: Ledger) -> type[LedgerApplication]:
        """A class whose instances read this ledger."""
        return type(cls.__name__, (cls,), {"name": cls.name, "ledger": ledger})

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        """A factory that opens nothing: the environment is that of the user's view."""
        return POPOFactory(Environment(self.name, {}))

    def construct_mapper(self) -> Mapper[UUID]:
        """The mapper of the ledger's events."""
        return LedgerMapper(self.ledger)

    def construct_recorder(self) -> ApplicationRecorder:
        """The recorder over the ledger."""
        return LedgerRecorder(self.ledger)
