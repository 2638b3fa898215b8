"""What a long state has not used for a while: kept in a temporary file instead of memory.

The file has no name in any folder, nobody else can open it, and it is gone when the last value
in it is, also after a SIGKILL. It holds nothing that can't be folded again. Where no such file
can be made or written, or where a disk is nearly full, values stay in memory as they are.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from errno import ENOSPC
from threading import Lock
from typing import IO, Any, Final, Generic, TypeVar, overload
from weakref import finalize, ref
from zlib import crc32

from turnledger.ledger import TurnledgerError
from turnledger.projections.persistent.pickling import PACKING_ERRORS, packed, unpacked

T = TypeVar("T")

# A file is not written to any more when it has so many bytes: it can then go with its values.
_FULL = 64 * 1024 * 1024
# So much room is left to others on the disk: a ledger that can't be written is worse.
_RESERVE = 256 * 1024 * 1024
# So many values that were fetched last are still in memory.
_AT_HAND = 8
# What `Away` raises for a value that can't be put away: it stays where it is.
NOT_PUT_AWAY = (OSError, *PACKING_ERRORS)
_NOTHING: Final[Any] = object()


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
        # Not at the interpreter's end: others may still look at a state then.
        finalize(self, self._file.close).atexit = False

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

    __slots__ = ("__weakref__", "_check", "_file", "_size", "_start", "_value")

    def __init__(self, value: T) -> None:
        """Put it there. One of NOT_PUT_AWAY if that can't be."""
        content = packed(value)
        self._file, self._start = _latest.add(content)
        self._size = len(content)
        self._check = crc32(content)
        self._value: T = _NOTHING

    def fetched(self) -> T:
        """The value: equal to what was put away, and with the same JSON."""
        value = self._value
        if value is _NOTHING:
            value = self._value = self._read()
            _at_hand.append(ref(self))
            if len(_at_hand) > _AT_HAND:
                _let_go()
        return value

    def _read(self) -> T:
        try:
            content = self._file.read(self._start, self._size)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise StateFileError(str(error)) from error
        if crc32(content) != self._check:
            raise StateFileError("it is not as it was written")
        return unpacked(content)  # type: ignore[no-any-return]


# What was fetched last. They hold their values, this holds none of them.
_at_hand: deque[ref[Away[Any]]] = deque()


def _let_go(left: int = _AT_HAND) -> None:
    while len(_at_hand) > left:
        try:
            away = _at_hand.popleft()()
        except IndexError:  # another thread was quicker
            return
        if away is not None:
            away._value = _NOTHING


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

    def __reduce__(self) -> tuple[object, ...]:
        """Copied as what it holds: the file is this process's own."""
        return (tuple, (tuple(self),))


def away(items: Sequence[T]) -> Sequence[T]:
    """The same items in a file; as they are if that can't be."""
    try:
        return AwayList(items)
    except NOT_PUT_AWAY:
        return items


def held(items: Sequence[T]) -> Sequence[T]:
    """The same items in memory, for as long as this is held."""
    return items._items.fetched() if isinstance(items, AwayList) else items
