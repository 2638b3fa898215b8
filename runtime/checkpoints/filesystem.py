"""A directory that is snapshotted with the session: what its files were, and back to that.

A snapshot is a manifest, from path to the name of the bytes, with the bytes of what changed.
Names are those of `ledger.events.blobs`, so that bytes which a ledger has are never stored again.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import msgspec

from turnledger.ledger import Clock, Limits, ResourceSnapshotted, SystemClock, blob_name
from turnledger.projections.digests import canonical, combine
from turnledger.runtime.checkpoints.file_restore import Wanted, check, put_back
from turnledger.runtime.checkpoints.file_tree import Found, Stamp, look, parsed, read, walk
from turnledger.runtime.errors import ResourceSnapshotError, SnapshotRestoreError

# Clocks of file systems tick: a change within the same tick leaves no trace in a file's times.
_TICK = 2_000_000_000
# How often a file that changes while it is read is read again.
_READS = 5
# Paths in one event, to stay below the limit of events.
_PATHS = 5000

# Where bytes are found by their names.
Blobs: TypeAlias = Mapping[str, bytes] | Callable[[str], bytes]


class _Form(msgspec.Struct, frozen=True):
    files: dict[str, str]
    blobs: dict[str, str] = {}


@dataclass(frozen=True)
class FilesystemSnapshot:
    """A directory at one moment: all its files by the names of their bytes.

    `changed` and `removed` are the difference to what was known before, and `blobs` the bytes
    that were not known then. Without a before, that is everything.
    """

    files: Mapping[str, str]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """One name for all of it."""
        return combine("files", canonical(dict(self.files))).hex()

    def events(self, resource: str) -> list[ResourceSnapshotted]:
        """The difference as a ledger records it; the last event has the digest of the whole."""
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
        """The snapshot as plain JSON, with the bytes that it has."""
        blobs = {name: b64encode(content).decode() for name, content in self.blobs.items()}
        return {"files": dict(self.files), "blobs": blobs}

    @classmethod
    def from_plain(cls, data: Any) -> FilesystemSnapshot:
        """The snapshot that plain JSON means; SnapshotRestoreError if it is none."""
        try:
            form = msgspec.convert(data, _Form)
            blobs = {name: b64decode(text, validate=True) for name, text in form.blobs.items()}
        except ValueError as error:
            raise SnapshotRestoreError(f"This is no snapshot of a directory: {error}") from error
        return cls(form.files, blobs, form.files)


class _Cached(NamedTuple):
    """What a file's bytes are called, as of when it had this stamp.

    It is settled if the file had been left alone for a while before it was read: a later
    change then shows in the stamp.
    """

    stamp: Stamp
    name: str
    is_settled: bool


class SnapshotableFilesystem:
    """A directory, with everything in it, as a resource of a run.

    Files, empty directories, links that stay within and the permission to execute are kept;
    times and owners are not. A file that is as large, as old and in the same place on the disk
    as when it was last read is not read again, unless it had only just been changed then.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        max_file_bytes: int | None = None,
    ) -> None:
        self.root = Path(root).resolve()
        self._clock = clock or SystemClock()
        self._most = max_file_bytes or Limits().max_blob_bytes
        self._lock = Lock()
        self._cache: dict[str, _Cached] = {}

    def __repr__(self) -> str:
        return f"SnapshotableFilesystem({str(self.root)!r})"

    def snapshot(self, since: Mapping[str, str] | None = None) -> FilesystemSnapshot:
        """The directory as it is now, with the bytes of what was not there `since`.

        ResourceSnapshotError names a file that can't be part of it.
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
        """Put the directory back: exactly these files, and nothing else.

        Takes a snapshot, also as plain JSON, or a manifest (path to name) and where the bytes
        are. What is as it should be is left alone. SnapshotRestoreError, before anything is
        changed, if a path leads out of the directory or bytes are missing.
        """
        if isinstance(snapshot, Mapping):
            if blobs is None:
                snapshot = FilesystemSnapshot.from_plain(snapshot)
            else:
                snapshot = FilesystemSnapshot.from_plain({"files": snapshot})
        where = snapshot.blobs if blobs is None else blobs
        with self._lock:
            put_back(str(self.root), self._wanted(snapshot.files, where))

    def check(self, snapshot: FilesystemSnapshot) -> None:
        """SnapshotRestoreError if a snapshot can't be restored; nothing is changed."""
        with self._lock:
            self._wanted(snapshot.files, snapshot.blobs)

    # --- how ---

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
        """The name of something's bytes, and the bytes if they had to be read for it."""
        cached = self._cache.get(found.path)
        if cached is not None and cached.is_settled and cached.stamp == found.stamp:
            return cached.name, None
        return self._read(found)

    def _read(self, found: Found) -> tuple[str, bytes]:
        """The name of something's bytes, and the bytes, read while nobody changed them."""
        root = str(self.root)
        try:
            for _ in range(_READS):
                began = self._clock.micros() * 1000
                content, now = read(root, found, self._most), look(root, found.path)
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
        """What there is to be, with the bytes of what is not there already."""
        there: dict[str, Found] = {}
        if self.root.is_dir():
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
            f"The bytes of {key!r}, {name}, are not to be found; nothing was changed."
        ) from error
    if blob_name(content) != name:
        raise SnapshotRestoreError(
            f"The bytes of {key!r} are not those that {name} means; nothing was changed."
        )
    return content
