"""The session: state of a run that its tools and prompts read and change."""

from turnledger.runtime.session.accessors import SessionMutation, SliceMutation, SliceView
from turnledger.runtime.session.session import Overlay, Session, enable_inner_message_recording
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
