"""What a long state has not used for a while: kept in a temporary file instead of memory.

The file has no name in any folder, nobody else can open it, and it is gone when the last value
in it is, also after a SIGKILL. It holds nothing that can't be folded again. Where no such file
can be made or written, or where a disk is nearly full, values stay in memory as they are.
"""

from __future__ import annotations

import os
import pickle  # of our own values, into a file that only this process can read
import tempfile
from collections.abc import Iterator, Sequence
from errno import ENOSPC
from functools import lru_cache
from threading import Lock
from typing import IO, Any, Generic, TypeVar, overload
from weakref import finalize, ref

from ledger import TurnledgerError

T = TypeVar("T")

# A file is not written to any more when it has so many bytes: it can then go with its values.
_FULL = 64 * 1024 * 1024
# So much room is left to others on the disk: a ledger that can't be written is worse.
_RESERVE = 256 * 1024 * 1024
# So many values that were fetched last are still in memory.
_AT_HAND = 8


class StateFileError(TurnledgerError):
    """The temporary file with older parts of a state can't be read."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            "Older parts of this state lie in a temporary file, which can't be read any more: "
            f"{problem}. The ledger has everything: see to the disk of the folder for temporary "
            "files (TMPDIR), and fold the run again."
        )


class _File:
    """One temporary file; closed with the last value that lies in it."""

    def __init__(self) -> None:
        self.size = 0
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        finalize(self, self._file.close)

    def add(self, content: bytes) -> int:
        """Write it behind all else; where it begins."""
        start, fd = self.size, self._file.fileno()
        room = os.fstatvfs(fd)
        if room.f_bavail * room.f_frsize < _RESERVE + len(content):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        rest, at = memoryview(content), start
        while rest:
            written = os.pwrite(fd, rest, at)
            rest, at = rest[written:], at + written
        self.size = at
        return start

    def read(self, start: int, size: int) -> bytes:
        parts: list[bytes] = []
        fd, end = self._file.fileno(), start + size
        while start < end:
            part = os.pread(fd, end - start, start)
            if not part:
                raise OSError("it is cut off")
            parts.append(part)
            start += len(part)
        return b"".join(parts)


class _Latest:
    """The file that is written to now. It is held by what lies in it, not by this."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        self._lock = Lock()
        self._file: ref[_File] | None = None

    def add(self, content: bytes) -> tuple[_File, int]:
        with self._lock:
            file = None if self._file is None else self._file()
            if file is None or file.size >= _FULL:
                file = _File()
                self._file = ref(file)
            return file, file.add(content)


_latest = _Latest()
# A forked process does not write where its parent does, nor wait for a thread that is not there.
os.register_at_fork(after_in_child=_latest.begin_anew)


class Away(Generic[T]):
    """A value in a file."""

    __slots__ = ("_file", "_size", "_start")

    def __init__(self, value: T) -> None:
        """Put it there. OSError if the file can't be written, others if it is no such value."""
        content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        self._file, self._start = _latest.add(content)
        self._size = len(content)

    def fetched(self) -> T:
        """The value, equal to what was put away."""
        return _fetched(self)  # type: ignore[no-any-return]

    def _read(self) -> T:
        try:
            content = self._file.read(self._start, self._size)
        except OSError as error:
            raise StateFileError(str(error)) from error
        value: T = pickle.loads(content)  # noqa: S301 - see above
        return value


@lru_cache(maxsize=_AT_HAND)
def _fetched(away: Away[Any]) -> Any:
    return away._read()


class AwayList(Sequence[T]):
    """A sequence in a file; its length is known without looking."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: Sequence[T]) -> None:
        self._items = Away(tuple(items))
        self._size = len(items)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        return self._items.fetched()[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.fetched())

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._items.fetched())


def away(items: Sequence[T]) -> Sequence[T]:
    """The same items in a file; as they are if that can't be."""
    try:
        return AwayList(items)
    except (OSError, pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return items
