"""Mounts: files of the host that are copied into a workspace when a run starts.

The copy is recorded with the resource's first snapshot. A recovery, a fork and a replay take the
files from there: they read nothing of the host, which may be another machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.runtime.checkpoints.file_tree import leads_out
from turnledger.runtime.checkpoints.filesystem import SnapshotableFilesystem
from turnledger.runtime.errors import WorkspaceError
from turnledger.runtime.workspace.directory import Directory, steps_of

# All mounts of a section together: their bytes are one commit of the ledger.
MOST_FILES = 10_000
MOST_BYTES = 32 * 1024 * 1024


@explain_methods()
@dataclass(frozen=True)
class HostMount:
    """A file or directory of the host, and where its copy is in the workspace.

    Attributes:
        host_path: On the host, within one of the section's `allowed_host_roots`.
        mount_path: In the workspace; by default "/" and the last name of `host_path`.
    """

    host_path: str | os.PathLike[str]
    mount_path: str | None = None

    def __post_init__(self) -> None:
        _path(self.host_path, "host_path")
        if self.mount_path is not None and not isinstance(self.mount_path, str):
            raise InvalidInputError(
                f"Invalid mount_path {short_repr(self.mount_path)}: expected a path."
            )
        _ = self.target

    @property
    def target(self) -> str:
        """Where the copy is in the workspace."""
        if self.mount_path is not None:
            return "/" + "/".join(steps_of(self.mount_path))
        name = os.path.basename(os.fspath(self.host_path).rstrip("/"))
        if name in ("", ".", ".."):
            raise WorkspaceError(
                f"Invalid mount of {os.fspath(self.host_path)!r}: its last step is not a name. "
                "Say where the copy goes with mount_path."
            )
        return "/" + "/".join(steps_of(name))


class _Copy:
    """A file, link or directory to be copied: its path in the workspace, mode and bytes."""

    __slots__ = ("content", "mode", "path")

    def __init__(self, path: str, mode: int, content: bytes = b"") -> None:
        self.path, self.mode, self.content = path, mode, content


def checked_mounts(
    mounts: Iterable[HostMount], roots: Iterable[str | os.PathLike[str]]
) -> tuple[tuple[HostMount, ...], tuple[str, ...]]:
    """Check the types of mounts and roots; reads nothing of the host."""
    if isinstance(roots, str | os.PathLike):
        raise InvalidInputError("Invalid allowed_host_roots: expected a list of directories.")
    given = tuple(mounts)
    for mount in given:
        if not isinstance(mount, HostMount):
            raise InvalidInputError(f"Invalid mount {short_repr(mount)}: expected a HostMount.")
    return given, tuple(_path(root, "allowed_host_roots") for root in roots)


def copy_mounts(
    mounts: Iterable[HostMount], roots: Iterable[str], workspace: SnapshotableFilesystem
) -> None:
    """Copy mounts into a workspace; WorkspaceError, before anything is written, if one can't be."""
    copies, size = [], 0
    for mount in mounts:
        for one in _copies_of(mount, _found(mount, roots), MOST_BYTES - size):
            copies.append(one)
            size += len(one.content)
            if len(copies) > MOST_FILES:
                raise _refused(mount, f"the mounts have more than {MOST_FILES} files")
    to = Directory(workspace.root)
    for one in copies:
        try:
            if stat.S_ISDIR(one.mode):
                to.make_directory(one.path)
            else:
                to.put(one.path, one.content, one.mode)
        except OSError as error:
            raise WorkspaceError(f"can't be written: {error.strerror}", path=one.path) from error


def _found(mount: HostMount, roots: Iterable[str]) -> tuple[Directory, str]:
    """The allowed root that a mount is in, and its path from there."""
    path = os.path.abspath(mount.host_path)
    for root in map(os.path.abspath, roots):
        if os.path.commonpath((root, path)) == root:
            return Directory(root), os.path.relpath(path, root)
    raise _refused(mount, "it is not within one of the allowed_host_roots")


def _copies_of(mount: HostMount, found: tuple[Directory, str], most: int) -> Iterator[_Copy]:
    root, path = found
    try:
        with root.at(path) as place:
            mode = place.mode
        if not stat.S_ISDIR(mode):
            content, mode = root.read(path, most)
            yield _Copy(mount.target, stat.S_IFREG | _permissions(mode), content)
            return
        for entry in root.walk(path):
            copied = _Copy(f"{mount.target}/{entry.path}", entry.mode)
            steps_of(f"{copied.path}/any" if stat.S_ISDIR(entry.mode) else copied.path)
            below = f"{path}/{entry.path}"
            if stat.S_ISLNK(entry.mode):
                if leads_out(entry.path, entry.target):
                    raise WorkspaceError("a link leads out of the mount", path=below)
                copied.content = os.fsencode(entry.target)
            elif not stat.S_ISDIR(entry.mode):
                copied.content, mode = root.read(below, most)
                copied.mode = stat.S_IFREG | _permissions(mode)
                most -= len(copied.content)
            yield copied
    except WorkspaceError as error:
        raise _refused(mount, str(error)) from error
    except OSError as error:
        raise _refused(mount, f"{error.filename}: {error.strerror}") from error


def _permissions(mode: int) -> int:
    return 0o777 if mode & stat.S_IXUSR else 0o666


def _refused(mount: HostMount, why: str) -> WorkspaceError:
    return WorkspaceError(f"Can't mount {os.fspath(mount.host_path)}: {why}. Nothing was copied.")


def _path(value: object, what: str) -> str:
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidInputError(f"Invalid {what} {short_repr(value)}: expected a path.")
    return path
