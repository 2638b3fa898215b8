"""SnapshotableFilesystem: a directory as a resource that is snapshotted with the session.

A snapshot is a manifest, from path to blob name, with the bytes of what changed. Blob names are
the ledger's (`ledger.events.blobs`), so that bytes which a ledger has are never stored again.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import msgspec

from turnledger.ledger import Clock, Limits, ResourceSnapshotted, SystemClock, blob_name
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.projections.digests import canonical, combine
from turnledger.runtime.checkpoints.file_restore import Wanted, check, restore
from turnledger.runtime.checkpoints.file_tree import Found, Stamp, look, parsed, read, walk
from turnledger.runtime.errors import ResourceSnapshotError, SnapshotRestoreError

# Nanoseconds. Times of files have a granularity: a change within it does not change them.
_TICK = 2_000_000_000
# How often a file is read that changes meanwhile.
_READS = 5
# Paths in one event, to stay below the size limit of an event.
_PATHS = 5000

# Returns bytes by their blob name.
Blobs: TypeAlias = Mapping[str, bytes] | Callable[[str], bytes]


class _Form(msgspec.Struct, frozen=True):
    files: dict[str, str]
    blobs: dict[str, str] = {}


@dataclass(frozen=True)
class FilesystemSnapshot:
    """A directory at one point in time: all its files by the blob names of their bytes.

    `changed` and `removed` are the difference to an earlier snapshot, and `blobs` the bytes
    that are new. Without an earlier one, that is everything.
    """

    files: Mapping[str, str]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A digest of the whole directory."""
        return combine("files", canonical(dict(self.files))).hex()

    def events(self, resource: str) -> list[ResourceSnapshotted]:
        """Return the difference as events; the last one has the digest of the whole."""
        changed = list(self.changed.items())
        pieces = [dict(changed[n : n + _PATHS]) for n in range(0, len(changed), _PATHS)] or [{}]
        return [
            ResourceSnapshotted(
                resource=resource,
                files=files,
                removed=self.removed if number == 0 else (),
                digest=self.digest if number == len(pieces) - 1 else "",
            )
            for number, files in enumerate(pieces)
        ]

    def to_plain(self) -> dict[str, Any]:
        """Return the snapshot as plain JSON, with the bytes that it has."""
        blobs = {name: b64encode(content).decode() for name, content in self.blobs.items()}
        return {"files": dict(self.files), "blobs": blobs}

    @classmethod
    def from_plain(cls, data: Any) -> FilesystemSnapshot:
        """Decode a snapshot from plain JSON; SnapshotRestoreError if it is invalid."""
        try:
            form = msgspec.convert(data, _Form)
            blobs = {name: b64decode(text, validate=True) for name, text in form.blobs.items()}
        except ValueError as error:
            raise SnapshotRestoreError(f"Invalid snapshot of a directory: {error}") from error
        return cls(form.files, blobs, form.files)


class _Cached(NamedTuple):
    """The blob name of a file's bytes at the time it had this stamp.

    It is settled if the file had not changed for a while before it was read: any later change
    then changes the stamp.
    """

    stamp: Stamp
    name: str
    is_settled: bool


@explain_methods()
class SnapshotableFilesystem:
    """A directory, with everything in it, as a resource of a run.

    Files, empty directories, links that stay within and the permission to execute are kept;
    times and owners are not. A file with the same size, times and inode as when it was last
    read is not read again, unless it had only just been changed then.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        max_file_bytes: int | None = None,
    ) -> None:
        """Snapshot this directory.

        Args:
            root: The directory; `restore` makes it if it does not exist.
            clock: Tells whether a file has only just been changed; by default the system's.
            max_file_bytes: The largest file; by default the ledger's limit of blobs.
        """
        try:
            self.root = Path(root).resolve()
        except ValueError as error:
            raise InvalidInputError(f"Invalid root {short_repr(root)}: {error}.") from error
        self._clock = clock or SystemClock()
        self._max_file_bytes = max_file_bytes or Limits().max_blob_bytes
        self._lock = Lock()
        self._cache: dict[str, _Cached] = {}

    def __repr__(self) -> str:
        return f"SnapshotableFilesystem({str(self.root)!r})"

    def snapshot(self, since: Mapping[str, str] | None = None) -> FilesystemSnapshot:
        """Snapshot the directory, with the bytes of what is not in the manifest `since`.

        ResourceSnapshotError names a file that can't be snapshotted.
        """
        before = dict(since or {})
        stored = frozenset(before.values())
        files: dict[str, str] = {}
        blobs: dict[str, bytes] = {}
        with self._lock:
            found = self._found()
            for one in found:
                name, content = self._named(one)
                if name not in stored and name not in blobs:
                    if content is None:
                        name, content = self._read(one)
                    blobs[name] = content
                files[one.key] = name
            paths = {one.path for one in found}
            self._cache = {path: one for path, one in self._cache.items() if path in paths}
        return FilesystemSnapshot(
            files,
            blobs,
            {path: name for path, name in files.items() if before.get(path) != name},
            tuple(path for path in before if path not in files),
        )

    def restore(
        self, snapshot: FilesystemSnapshot | Mapping[str, Any], blobs: Blobs | None = None
    ) -> None:
        """Restore the directory: exactly these files, and no others.

        Files that are unchanged are left alone. SnapshotRestoreError, before anything is
        changed, if a path leads out of the directory or bytes are missing.

        Args:
            snapshot: A snapshot, also as plain JSON, or a manifest (path to blob name).
            blobs: The bytes of a manifest, by name.
        """
        if isinstance(snapshot, Mapping):
            if blobs is None:
                snapshot = FilesystemSnapshot.from_plain(snapshot)
            else:
                snapshot = FilesystemSnapshot.from_plain({"files": snapshot})
        where = snapshot.blobs if blobs is None else blobs
        with self._lock:
            restore(str(self.root), self._wanted(snapshot.files, where))

    def check(self, snapshot: FilesystemSnapshot) -> None:
        """SnapshotRestoreError if a snapshot can't be restored; changes nothing."""
        with self._lock:
            self._wanted(snapshot.files, snapshot.blobs)

    # --- reading and comparing ---

    def _found(self) -> list[Found]:
        try:
            found = list(walk(str(self.root)))
        except OSError as error:
            raise ResourceSnapshotError(
                f"it can't be read: {error}", path=str(error.filename)
            ) from error
        for one in found:
            try:
                one.path.encode()
            except UnicodeEncodeError as error:
                raise ResourceSnapshotError(
                    "its name is not Unicode text", path=repr(one.path)
                ) from error
        return found

    def _named(self, found: Found) -> tuple[str, bytes | None]:
        """Return the blob name of an entry, and the bytes if they had to be read for it."""
        cached = self._cache.get(found.path)
        if cached is not None and cached.is_settled and cached.stamp == found.stamp:
            return cached.name, None
        return self._read(found)

    def _read(self, found: Found) -> tuple[str, bytes]:
        """Read an entry; returns its blob name and bytes, of a time when it did not change."""
        root = str(self.root)
        try:
            for _ in range(_READS):
                began = self._clock.micros() * 1000
                content, now = read(root, found, self._max_file_bytes), look(root, found.path)
                if now.stamp == found.stamp or found.kind == "directory":
                    name, latest = blob_name(content), max(now.stamp.modified, now.stamp.changed)
                    self._cache[found.path] = _Cached(now.stamp, name, latest < began - _TICK)
                    return name, content
                if now.kind != found.kind:
                    break
                found = now
        except OSError as error:
            raise ResourceSnapshotError(f"it can't be read: {error}", path=found.path) from error
        raise ResourceSnapshotError("it changes while it is read", path=found.path)

    def _wanted(self, files: Mapping[str, str], blobs: Blobs) -> list[Wanted]:
        """Make the entries to restore, with the bytes of those that are not there already."""
        there: dict[str, Found] = {}
        # What can't be walked through is restored as a whole.
        with suppress(OSError, ResourceSnapshotError):
            there = {one.key: one for one in walk(str(self.root)) if one.kind != "other"}
        wanted: list[Wanted] = []
        for key, name in files.items():
            path, kind = parsed(key)
            is_there = key in there and self._is(there[key], name)
            wanted.append(Wanted(path, kind, None if is_there else _bytes_of(key, name, blobs)))
        check(wanted)
        return wanted

    def _is(self, found: Found, name: str) -> bool:
        try:
            return self._named(found)[0] == name
        except ResourceSnapshotError:
            return False


def _bytes_of(key: str, name: str, blobs: Blobs) -> bytes:
    try:
        content = blobs(name) if callable(blobs) else blobs[name]
    except LookupError as error:
        raise SnapshotRestoreError(
            f"The bytes of {key!r}, {name}, are missing; nothing was changed."
        ) from error
    if blob_name(content) != name:
        raise SnapshotRestoreError(
            f"The bytes of {key!r} do not have the name {name}; nothing was changed."
        )
    return content
