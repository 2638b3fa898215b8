"""Session: the typed state of a run, which its tools and prompts read and change."""

from turnledger.runtime.session.overlay import Overlay
from turnledger.runtime.session.session import (
    Session,
    SessionMutation,
    SliceMutation,
    SliceView,
    enable_inner_message_recording,
)
from turnledger.runtime.session.snapshot import Snapshot, SnapshotSlice

__all__ = [
    "Overlay",
    "Session",
    "SessionMutation",
    "SliceMutation",
    "SliceView",
    "Snapshot",
    "SnapshotSlice",
    "enable_inner_message_recording",
]
