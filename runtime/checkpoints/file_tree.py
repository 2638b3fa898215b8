"""Reads a directory for a manifest: a key for each entry, and its bytes.

    notes/todo.txt      a file
    bin/run//x          an executable file
    latest//l           a symbolic link, whose target is its content
    drafts/             an empty directory

No path has two slashes in a row, so keys are unambiguous. Links are not followed, and those that
lead out of the directory are refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Literal, NamedTuple

from turnledger.runtime.errors import ResourceSnapshotError, SnapshotRestoreError

Kind = Literal["file", "executable", "link", "directory", "other"]

# The temporary name of a file that is being restored: never part of a snapshot.
UNFINISHED = ".turnledger-restoring"
# Directories within each other: what walks through them may be recursive, and paths have a limit.
MOST_DEPTH = 128
# What walks through directories is recursive, and the system's paths have at most 4096 bytes.
_MOST_DEPTH = 128
_MOST_PATH_BYTES = 2048
_MARKS: dict[Kind, str] = {"executable": "//x", "link": "//l", "directory": "/", "file": ""}


class Stamp(NamedTuple):
    """File metadata that changes with the content, except within one tick of the disk's clock."""

    modified: int
    changed: int
    size: int
    inode: int
    device: int
    mode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        moments = (status.st_mtime_ns, status.st_ctime_ns)
        return cls(*moments, status.st_size, status.st_ino, status.st_dev, status.st_mode)


class Found(NamedTuple):
    """An entry of the directory: its relative path, its kind and its stamp."""

    path: str
    kind: Kind
    stamp: Stamp

    @property
    def key(self) -> str:
        """Its key in a manifest."""
        return self.path + _MARKS.get(self.kind, "")


def walk(root: str, below: str = "") -> Iterator[Found]:
    """Iterate over the entries of a directory at any depth, sorted; directories only if empty.

    ResourceSnapshotError if directories are nested too deep.
    """
    with os.scandir(os.path.join(root, below)) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = f"{below}/{entry.name}" if below else entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode) and entry.name == UNFINISHED:
            yield Found(path, "other", Stamp.of(status))
        elif stat.S_ISDIR(status.st_mode):
            if is_too_deep(path):
                raise ResourceSnapshotError(
                    f"more than {_MOST_DEPTH} directories within each other, or more than "
                    f"{_MOST_PATH_BYTES} bytes",
                    path=path,
                )
            within = list(walk(root, path))
            yield from within or [Found(path, "directory", Stamp.of(status))]
        elif entry.name != UNFINISHED:
            yield Found(path, _kind(status.st_mode), Stamp.of(status))


def is_too_deep(path: str) -> bool:
    """Whether a directory is nested deeper than is snapshotted, or its path is longer."""
    return path.count("/") >= _MOST_DEPTH or len(os.fsencode(path)) > _MOST_PATH_BYTES


def look(root: str, path: str) -> Found:
    """Return the entry at a path."""
    status = os.lstat(os.path.join(root, path))
    is_directory = stat.S_ISDIR(status.st_mode)
    return Found(path, "directory" if is_directory else _kind(status.st_mode), Stamp.of(status))


def _kind(mode: int) -> Kind:
    if stat.S_ISLNK(mode):
        return "link"
    if not stat.S_ISREG(mode):
        return "other"
    return "executable" if mode & stat.S_IXUSR else "file"


def parsed(key: str) -> tuple[str, Kind]:
    """Parse a key into path and kind; SnapshotRestoreError if it is invalid."""
    kind = next(kind for kind, mark in _MARKS.items() if key.endswith(mark))
    path = key.removesuffix(_MARKS[kind])
    if "\0" in path or any(part in ("", ".", "..", UNFINISHED) for part in path.split("/")):
        raise SnapshotRestoreError(
            f"Invalid path {key!r} in the snapshot: expected one within the directory; nothing was "
            "changed."
        )
    return path, kind


def leads_out(path: str, target: str) -> bool:
    """Whether a link at this path may lead out of the directory."""
    parts = target.split("/")
    up = next((n for n, part in enumerate(parts) if part not in ("..", ".")), len(parts))
    climbed = parts[:up].count("..")
    return target.startswith("/") or ".." in parts[up:] or climbed > path.count("/")


def read(root: str, found: Found, max_bytes: int) -> bytes:
    """Return the bytes of an entry; ResourceSnapshotError if it can't be snapshotted."""
    path = os.path.join(root, found.path)
    if found.kind == "directory":
        return b""
    if found.kind == "link":
        target = os.readlink(path)
        if leads_out(found.path, target):
            raise ResourceSnapshotError(
                f"a link to {target!r}, out of the directory", path=found.path
            )
        return os.fsencode(target)
    if found.kind == "other":
        raise ResourceSnapshotError("neither a file nor a link nor a directory", path=found.path)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ResourceSnapshotError(
            f"larger than {max_bytes} bytes, the limit for one file", path=found.path
        )
    return content
