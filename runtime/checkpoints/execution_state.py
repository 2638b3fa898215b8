"""ExecutionState: a session with its resources, snapshotted, recorded and restored as one.

A resource is anything with `snapshot` and `restore`, such as a directory. A CompositeSnapshot
holds everything itself and needs no ledger. With a ledger, changes of resources are recorded as
events and blobs, at the cost of what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from turnledger.ledger import Event, blob_name
from turnledger.ledger.arguments import explain_methods
from turnledger.runtime.agent.schema.values import read_json, to_plain
from turnledger.runtime.checkpoints.filesystem import FilesystemSnapshot, SnapshotableFilesystem
from turnledger.runtime.errors import SchemaError, SnapshotRestoreError
from turnledger.runtime.journal.known import Known
from turnledger.runtime.session.session import Session
from turnledger.runtime.session.snapshot import Snapshot, json_of

# The one file of a resource that is not a directory; not a valid path within a directory.
_ONLY_FILE = "snapshot//json"


class Snapshotable(Protocol):
    """A resource whose state can be stored as JSON and restored."""

    def snapshot(self) -> Any:
        """Return the present state: JSON, or a value that `to_plain` accepts."""
        ...

    def restore(self, snapshot: Any, /) -> None:
        """Restore the state of a snapshot, as JSON."""
        ...


class Recording(Protocol):
    """Where changes of resources are recorded: a journal, or a tool's overlay."""

    @property
    def known(self) -> Known: ...

    def add(self, *events: Event, blobs: Iterable[bytes] = ()) -> object: ...


@explain_methods()
@dataclass(frozen=True, slots=True)
class CompositeSnapshot:
    """The snapshots of a session and of its resources, by name, as JSON."""

    session: Snapshot
    resources: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Encode the snapshot as JSON text, including the content of files."""
        form = {"session": self.session.to_plain(), "resources": to_plain(self.resources)}
        return msgspec.json.encode(form).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> CompositeSnapshot:
        """Decode a snapshot; SnapshotRestoreError if the text is invalid."""
        form = json_of(text, "snapshot of a session and its resources")
        resources = form.get("resources", {}) if isinstance(form, dict) else None
        if not isinstance(form, dict) or not isinstance(resources, dict) or "session" not in form:
            raise SnapshotRestoreError(
                "Invalid snapshot of a session and its resources: expected an object with "
                '"session" and "resources".'
            )
        return cls(Snapshot.from_plain(form["session"]), resources)


@explain_methods()
class ExecutionState:
    """The state that a run works on: its session, and resources by name."""

    def __init__(
        self, *, session: Session, resources: Mapping[str, Snapshotable] | None = None
    ) -> None:
        self.session = session
        self.resources: dict[str, Any] = dict(resources or {})

    def snapshot(self, tag: str | None = None) -> CompositeSnapshot:
        """Snapshot everything; ResourceSnapshotError if a resource can't be snapshotted."""
        plain = {name: _plain(one.snapshot()) for name, one in self.resources.items()}
        return CompositeSnapshot(self.session.snapshot(tag), plain)

    def restore(self, snapshot: CompositeSnapshot) -> None:
        """Restore the session, then the resources that the snapshot has.

        Slices of undeclared types are kept until the type is declared: a tool may be the first
        to use it. SnapshotRestoreError if the snapshot can't be restored.
        """
        unknown = [name for name in snapshot.resources if name not in self.resources]
        if unknown:
            raise SnapshotRestoreError(
                f"The snapshot has unknown resources: {', '.join(unknown)}; nothing was changed."
            )
        for name, data in snapshot.resources.items():
            resource = self.resources[name]
            if isinstance(resource, SnapshotableFilesystem):
                resource.check(FilesystemSnapshot.from_plain(data))
        self.session.restore(snapshot.session, undeclared="keep")
        for name, data in snapshot.resources.items():
            self.resources[name].restore(data)

    # --- in a ledger ---

    def record(self, to: Recording) -> None:
        """Record what changed in the resources since they were last recorded."""
        for name, resource in self.resources.items():
            before = to.known.session.resources.get(name)
            found = _found(resource, before or {})
            if found.changed or found.removed or before is None:
                to.add(*found.events(name), blobs=found.blobs.values())

    def restore_recorded(self, known: Known, blob: Callable[[str], bytes]) -> None:
        """Restore the resources as they were recorded; `blob` returns bytes by name.

        `state.restore_recorded(journal.known, journal.blob)`. A resource that was never
        recorded stays as it is.
        """
        for name, resource in self.resources.items():
            files = known.session.resources.get(name)
            if files is None:
                continue
            if isinstance(resource, SnapshotableFilesystem):
                resource.restore(files, blob)
            else:
                resource.restore(_only_file(name, files, blob))


def resource_at(files: Mapping[str, str], blob: Callable[[str], bytes]) -> Any:
    """Return a recorded resource in the form of a CompositeSnapshot."""
    if _ONLY_FILE in files:
        return read_json(blob(files[_ONLY_FILE]).decode())
    return FilesystemSnapshot(files, {name: blob(name) for name in files.values()}).to_plain()


def _plain(snapshot: Any) -> Any:
    if isinstance(snapshot, FilesystemSnapshot):
        return snapshot.to_plain()
    return to_plain(snapshot)


def _found(resource: Any, before: Mapping[str, str]) -> FilesystemSnapshot:
    """Snapshot a resource as files."""
    if isinstance(resource, SnapshotableFilesystem):
        return resource.snapshot(before)
    content = msgspec.json.encode(to_plain(resource.snapshot()))
    name = blob_name(content)
    if before.get(_ONLY_FILE) == name:
        return FilesystemSnapshot(before)
    files = {_ONLY_FILE: name}
    return FilesystemSnapshot(files, {name: content}, files)


def _only_file(resource: str, files: Mapping[str, str], blob: Callable[[str], bytes]) -> Any:
    try:
        return read_json(blob(files[_ONLY_FILE]).decode())
    except (LookupError, SchemaError, UnicodeDecodeError) as error:
        raise SnapshotRestoreError(
            f"The record of the resource {resource!r} can't be read: {error}"
        ) from error
