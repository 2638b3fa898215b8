"""Directory: files below one directory, reached in a way that can't lead out of it.

A path is followed step by step, each step opened from the descriptor of the one before and never
through a link (`dir_fd`, `O_NOFOLLOW`), so nothing that changes meanwhile leads elsewhere. A link
is read and its target followed in the same way, as far as it stays within.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Lock
from typing import NamedTuple

from turnledger.runtime.checkpoints.file_tree import UNFINISHED
from turnledger.runtime.errors import WorkspaceError

MOST_ENTRIES = 50_000  # of one directory, and of one walk
MOST_STEPS = 32  # of a path; deeper directories are not walked
_MOST_CHARACTERS = 1024
_MOST_BYTES_OF_A_NAME = 255
_MOST_LINKS = 20
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | _OPEN
# O_NONBLOCK: a FIFO or a device that takes a file's place must not keep the program waiting.
_READ = os.O_RDONLY | os.O_NONBLOCK | _OPEN
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
# For the one temporary name that snapshots leave out.
_REPLACING = Lock()


class Place(NamedTuple):
    """Where a path leads: an entry of an open directory, which need not exist.

    Attributes:
        parent: Descriptor of the directory that the entry is in.
        name: Of the entry; empty if it is the top directory.
        mode: As `stat` has it; 0 if there is no such entry.
        directory: Descriptor of the entry itself, if it is a directory.
    """

    parent: int
    name: str
    mode: int
    directory: int | None = None


class Entry(NamedTuple):
    """An entry that a walk found: path from where the walk began, mode, size, link target."""

    path: str
    mode: int
    size: int
    target: str = ""

    @property
    def shown(self) -> str:
        """The path as text, with "/" after a directory and the target after a link."""
        if stat.S_ISDIR(self.mode):
            return f"{printable(self.path)}/"
        return printable(f"{self.path} -> {self.target}" if self.target else self.path)


def printable(text: str) -> str:
    """Escape what can't be printed: control characters, bytes of a name that are not UTF-8."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def steps_of(path: str) -> list[str]:
    """Split a path into names; WorkspaceError if it is invalid."""
    shown = printable(path if len(path) <= 100 else f"{path[:100]}…")
    if len(path) > _MOST_CHARACTERS:
        raise WorkspaceError(f"longer than {_MOST_CHARACTERS} characters", path=shown)
    if not path.isprintable():
        raise WorkspaceError("has characters that a path can't have", path=shown)
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise WorkspaceError('has "..": write the path from "/", the workspace', path=shown)
    if len(steps) > MOST_STEPS:
        raise WorkspaceError(f"deeper than {MOST_STEPS} directories", path=shown)
    if any(len(step.encode()) > _MOST_BYTES_OF_A_NAME for step in steps):
        raise WorkspaceError(f"a name is longer than {_MOST_BYTES_OF_A_NAME} bytes", path=shown)
    if UNFINISHED in steps:
        raise WorkspaceError("this name is reserved", path=shown)
    return steps


class Directory:
    """A directory; "/" is the directory itself. Errors are WorkspaceError and OSError."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = root

    @contextmanager
    def at(self, path: str, *, follow: bool = True, create: bool = False) -> Iterator[Place]:
        """Find where a path leads.

        Args:
            path: The path.
            follow: Whether a link that is the last step is followed.
            create: Make the directories that the path goes through.
        """
        left, links = deque(steps_of(path)), 0
        names: list[str] = [""]
        opened = [_opened_root(self._root)]
        try:
            while left:
                step, here = left.popleft(), opened[-1]
                if step in ("", "."):
                    continue
                if step == "..":  # of a link's target
                    if len(opened) == 1:
                        raise WorkspaceError("a link leads outside", path=path)
                    os.close(opened.pop())
                    names.pop()
                    continue
                mode = _mode(step, here)
                if stat.S_ISLNK(mode) and (left or follow):
                    links += 1
                    target = os.readlink(step, dir_fd=here)
                    if target.startswith("/"):
                        raise WorkspaceError("a link leads outside", path=path)
                    if links > _MOST_LINKS:
                        raise WorkspaceError("its links lead to further links", path=path)
                    left.extendleft(reversed(target.split("/")))
                elif stat.S_ISDIR(mode):
                    opened.append(os.open(step, _DIRECTORY, dir_fd=here))
                    names.append(step)
                elif not left:
                    yield Place(here, step, mode)
                    return
                elif mode or not create:
                    why = "is not a directory" if mode else "does not exist"
                    raise WorkspaceError(f"{printable(step)!r} {why}", path=path)
                else:
                    with suppress(FileExistsError):  # made by a tool that runs in parallel
                        os.mkdir(step, dir_fd=here)
                    left.appendleft(step)
            yield Place(opened[max(len(opened) - 2, 0)], names[-1], stat.S_IFDIR, opened[-1])
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def entries(self, path: str) -> list[Entry]:
        """The entries of a directory, sorted by name."""
        with self._directory(path) as directory:
            return _entries(directory)

    def walk(self, path: str) -> Generator[Entry, None, None]:
        """Iterate over all entries below a directory, sorted, following no link."""
        with self._directory(path) as directory:
            yield from _below(directory, "", 1)

    def read(self, path: str, most: int) -> tuple[bytes, int]:
        """Return the bytes of a file, of at most so many, and its mode."""
        with self.at(path) as place:
            if not place.mode:
                raise WorkspaceError("does not exist", path=path)
            _check_regular(place.mode, path)
            handle = os.open(place.name, _READ, dir_fd=place.parent)
            with os.fdopen(handle, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                _check_regular(mode, path)
                content = file.read(most + 1)
        if len(content) > most:
            raise WorkspaceError(f"larger than {most} bytes", path=path)
        return content, mode

    def create(self, path: str, content: bytes) -> None:
        """Create a file, and the directories that it is in."""
        with self.at(path, follow=False, create=True) as place:
            if place.mode:
                raise WorkspaceError("exists already: change it with edit_file", path=path)
            _write(place.name, place.parent, content, 0o666)

    def put(self, path: str, content: bytes, mode: int) -> None:
        """Put a file or, by its mode, a link in the place of what is there, in one step."""
        with self.at(path, follow=False, create=True) as place, _REPLACING:
            if place.directory is not None:
                raise WorkspaceError("is a directory", path=path)
            _replace(place, content, mode)

    def edit(self, path: str, most: int, change: Callable[[bytes], bytes]) -> None:
        """Change the bytes of a file of at most so many, in one step.

        Other names of it (hard links) keep the bytes that it had.
        """
        with _REPLACING:  # from reading on: another edit must not be lost
            content, mode = self.read(path, most)
            changed = change(content)
            with self.at(path) as place:
                _replace(place, changed, mode)

    def make_directory(self, path: str) -> None:
        """Make a directory, and those that it is in, unless it exists."""
        with self.at(f"{path}/any", follow=False, create=True):
            pass

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with everything in it."""
        with self.at(path, follow=False) as place:
            if not place.name:
                raise WorkspaceError("is the workspace itself", path=path)
            if not place.mode:
                raise WorkspaceError("does not exist", path=path)
            if place.directory is None:
                os.unlink(place.name, dir_fd=place.parent)
            else:
                shutil.rmtree(place.name, dir_fd=place.parent)

    @contextmanager
    def _directory(self, path: str) -> Iterator[int]:
        with self.at(path) as place:
            if place.directory is None:
                why = "is not a directory" if place.mode else "does not exist"
                raise WorkspaceError(why, path=path)
            yield place.directory


def _opened_root(root: str | os.PathLike[str]) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceError(f"The directory {root} can't be opened: {error.strerror}.") from error


def _mode(name: str, directory: int) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _check_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise WorkspaceError("is a directory", path=path)
    if not stat.S_ISREG(mode):
        raise WorkspaceError("is neither a file nor a directory", path=path)


def _replace(place: Place, content: bytes, mode: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(UNFINISHED, dir_fd=place.parent)
    if stat.S_ISLNK(mode):
        os.symlink(os.fsdecode(content), UNFINISHED, dir_fd=place.parent)
    else:
        _write(UNFINISHED, place.parent, content, stat.S_IMODE(mode))
    os.replace(UNFINISHED, place.name, src_dir_fd=place.parent, dst_dir_fd=place.parent)


def _write(name: str, directory: int, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(name, _CREATE, mode, dir_fd=directory), "wb") as file:
        file.write(content)


def _entries(directory: int) -> list[Entry]:
    with os.scandir(directory) as scanned:
        names = sorted(entry.name for entry in islice(scanned, MOST_ENTRIES))
    found: list[Entry] = []
    for name in names:
        with suppress(FileNotFoundError):  # removed meanwhile
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            is_link = stat.S_ISLNK(status.st_mode)
            target = os.readlink(name, dir_fd=directory) if is_link else ""
            found.append(Entry(name, status.st_mode, status.st_size, target))
    return found


def _below(directory: int, above: str, depth: int) -> Iterator[Entry]:
    for entry in _entries(directory):
        yield entry._replace(path=above + entry.path)
        if stat.S_ISDIR(entry.mode) and depth < MOST_STEPS:
            try:
                below = os.open(entry.path, _DIRECTORY, dir_fd=directory)
            except OSError:  # removed or replaced meanwhile, or not readable
                continue
            try:
                yield from _below(below, f"{above}{entry.path}/", depth + 1)
            finally:
                os.close(below)
