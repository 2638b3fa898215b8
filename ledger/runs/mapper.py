"""The library's mapper, over our codec: stored events to records' events and back.

The topic of a stored event is the event's tag, never an import path: a file can move
without breaking history.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from eventsourcing.persistence import JSONTranscoder, Mapper, StoredEvent

from turnledger.ledger.events.types import Event
from turnledger.ledger.runs.codec import Codec


class LedgerMapper(Mapper[UUID]):
    """Maps events by their tags, through the one codec."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(transcoder=JSONTranscoder())
        self.codec = codec

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """A record as the library stores it."""
        return StoredEvent(
            originator_id=domain_event.run_id,
            originator_version=domain_event.version,
            topic=domain_event.tag,
            state=domain_event.data.encode(),
        )

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The event that a stored event holds."""
        event: Event = self.codec.decode(stored_event.topic, stored_event.state)
        return event
