"""Blobs: bytes of media, files and tool schemas, stored beside the events by their hash.

Events refer to a blob by name, so the hash chain covers its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from turnledger.ledger.events.messages import MediaContent
from turnledger.ledger.events.types import (
    CustomEvent,
    EvaluationStarted,
    Event,
    MessageAppended,
    ModelReplied,
    ResourceSnapshotted,
)

PREFIX = "sha256:"


def blob_name(content: bytes) -> str:
    """The name of a blob with these bytes, "sha256:...": an event refers to it by this."""
    return PREFIX + sha256(content).hexdigest()


# The tags of the only events that can name blobs.
NAMING_BLOBS = frozenset(
    kind.tag
    for kind in (EvaluationStarted, MessageAppended, ResourceSnapshotted, CustomEvent, ModelReplied)
)


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
    if isinstance(event, EvaluationStarted):
        return [tool.spec for tool in event.tools if tool.spec]
    if isinstance(event, CustomEvent | ModelReplied):
        return event.blobs
    return ()
