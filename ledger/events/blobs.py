"""Bytes beside the events: media and files, named by what they are.

A blob's name is the hash of its bytes, so a name never means two things. Blobs are
written in the transaction of the event that names them, and never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from turnledger.ledger.events.messages import MediaContent
from turnledger.ledger.events.types import Event, MessageAppended, ResourceSnapshotted

PREFIX = "sha256:"


def blob_name(content: bytes) -> str:
    """The name of these bytes: what an event that means them writes down."""
    return PREFIX + sha256(content).hexdigest()


# The only kinds of events that can name blobs.
NAMING_BLOBS = frozenset({MessageAppended.tag, ResourceSnapshotted.tag})


def blobs_named(event: Event) -> Iterable[str]:
    """The names of the blobs that an event refers to."""
    if isinstance(event, MessageAppended):
        return [
            part.blob
            for part in event.message.parts
            if isinstance(part, MediaContent) and part.blob is not None
        ]
    if isinstance(event, ResourceSnapshotted):
        return event.files.values()
    return ()
