"""Restores a directory from a manifest: checks all of it first, then changes files.

A file is written under a temporary name and then renamed, so that a reader finds the old one or
the new one. An interrupted restore can be repeated.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

from turnledger.runtime.checkpoints.file_tree import UNFINISHED, Kind, is_too_deep, leads_out
from turnledger.runtime.errors import SnapshotRestoreError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Wanted(NamedTuple):
    """An entry that the directory is to have; content None means that it has it already."""

    path: str
    kind: Kind
    content: bytes | None


def check(wanted: Sequence[Wanted]) -> None:
    """SnapshotRestoreError if entries contradict each other, or links lead outside."""
    paths = Counter(one.path for one in wanted)
    for one in wanted:
        if paths[one.path] > 1:
            raise _refused(one.path, "is named twice")
    for one in wanted:
        for above in _above(one.path):
            if above in paths:
                raise _refused(one.path, f"is within {above!r}, which is not a directory")
        if one.kind == "directory" and one.content:
            raise _refused(one.path, "is a directory and has content")
        if one.kind == "link" and one.content is not None:
            target = os.fsdecode(one.content)
            if not target or "\0" in target or leads_out(one.path, target):
                raise _refused(one.path, f"is a link to {target!r}, out of the directory")


def restore(root: str, wanted: Sequence[Wanted]) -> None:
    """Make a directory have exactly these entries, which `check` has accepted."""
    directories = {one.path for one in wanted if one.kind == "directory"}
    directories.update(above for one in wanted for above in _above(one.path))
    kept = {one.path for one in wanted if one.kind != "directory"}
    try:
        os.makedirs(root, exist_ok=True)
        _make_removable(root)
        _remove_others(root, "", kept, directories)
        for path in sorted(directories):
            os.makedirs(os.path.join(root, path), exist_ok=True)
        for one in wanted:
            if one.content is not None and one.kind != "directory":
                _put(os.path.join(root, one.path), one.kind, one.content)
    except OSError as error:
        raise SnapshotRestoreError(
            f"The directory {root} is only partly restored: {error}. Fix that, and restore again."
        ) from error


def _make_removable(root: str) -> None:
    """Make everything in a directory removable, whatever a program left there.

    Directories that their owner may not enter are opened for it. Those nested too deep are moved
    to the top, where they are among those to remove. Links are not followed.
    """
    os.chmod(root, os.stat(root).st_mode | stat.S_IRWXU)
    top = os.open(root, _DIRECTORY)
    try:
        names = deque(os.listdir(top))
        while names:
            name = names.popleft()
            names.extend(_opened(top, top, name, name))
    finally:
        os.close(top)


def _opened(top: int, folder: int, name: str, path: str) -> Iterator[str]:
    """Open a directory and those within it; iterates over the names of what is moved."""
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        return
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{handle}", mode | stat.S_IRWXU)
        finally:
            os.close(handle)
    if is_too_deep(path):
        moved = f"{UNFINISHED}-{uuid4()}"
        os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=top)
        yield moved
        return
    within = os.open(name, _DIRECTORY, dir_fd=folder)
    try:
        for one in os.listdir(within):
            yield from _opened(top, within, one, f"{path}/{one}")
    finally:
        os.close(within)


def _remove_others(root: str, below: str, kept: set[str], directories: set[str]) -> None:
    with os.scandir(os.path.join(root, below)) as entries:
        found = list(entries)
    for entry in found:
        path = f"{below}/{entry.name}" if below else entry.name
        if not entry.is_dir(follow_symlinks=False):
            if path not in kept:
                os.unlink(entry.path)
        elif path in directories:
            _remove_others(root, path, kept, directories)
        else:
            shutil.rmtree(entry.path)


def _put(path: str, kind: Kind, content: bytes) -> None:
    unfinished = os.path.join(os.path.dirname(path), UNFINISHED)
    with suppress(FileNotFoundError):
        os.unlink(unfinished)
    if kind == "link":
        os.symlink(os.fsdecode(content), unfinished)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(unfinished, flags, 0o777 if kind == "executable" else 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    os.replace(unfinished, path)


def _above(path: str) -> Iterable[str]:
    """Return the directories that a path is in."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def _refused(path: str, why: str) -> SnapshotRestoreError:
    return SnapshotRestoreError(f"In the snapshot {path!r} {why}; nothing was changed.")
