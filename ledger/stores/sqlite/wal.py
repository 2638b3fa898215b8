"""The ledger's files beside SQLite: are they those that were opened, and repairs of the WAL.

After a failed commit or checkpoint the WAL's index is invalidated, and the WAL's tail cut.

While others read, SQLite moves a part of the WAL into the database and notes in the WAL's index
(`-shm`) how much, before anything was flushed. If flushing fails later, the system may throw those
pages away, and the note is wrong: readers would go by old pages, and SQLite would write the WAL
from its beginning again, over the only copy. So after any such failure the index is declared
invalid. The next reader or writer makes another one from the WAL, in which nothing counts as moved.

That would bring back what a failed commit left behind the valid part of the WAL: a frame counts
if its checksum fits, whether or not it was ever flushed. So that frame is made invalid first.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from turnledger.ledger.errors import StoreUnavailableError
from turnledger.ledger.stores.sqlite.connection import keep_index_open, leave_wal

# The first four bytes of a WAL, for the two byte orders of its checksums.
_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
# Two copies of the index's header: how far the WAL is valid. All zero means that there is none.
_HEADER_BYTES = 96
# In it, in the machine's byte order: whether it is made, the page size, the last valid frame.
_HEADER = struct.Struct("=12x B x H I")
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24


class OpenFiles:
    """The ledger's file and its WAL as they were opened, to check that commits still reach them.

    SQLite writes to descriptors: after the file or the WAL was removed, replaced or cut, commits
    go on to succeed, and the next process that opens the path finds none of them. Checked by
    `os.stat` only: closing a descriptor of the database would drop SQLite's locks on it.
    """

    __slots__ = (
        "_cut",
        "_file",
        "_path",
        "_wal",
        "_wal_path",
        "_wal_size",
        "is_checked",
        "is_made",
        "lost",
    )

    def __init__(self, path: str, *, is_checked: bool = True) -> None:
        self.is_checked = is_checked
        # Whether the file is a ledger already: an empty one may still become one.
        self.is_made = False
        # Why nothing more is acknowledged; empty while all is well.
        self.lost = ""
        self._path, self._wal_path = path, f"{path}-wal"
        self._file = _identity(path) or (0, 0)
        # The WAL's is known when the writer has connected, or from its first commit on.
        self._wal: tuple[int, int] | None = None
        self._wal_size = 0
        # Whether the WAL got shorter between two commits.
        self._cut = False

    def connected(self) -> None:
        """The writer has a new connection. Without one, SQLite may have deleted the WAL."""
        self._wal, self._wal_size = _identity(self._wal_path), 0

    def before_commit(self) -> None:
        """Note whether the WAL got shorter: SQLite would write behind the gap."""
        if self.is_checked and self._wal_size:
            try:
                self._cut = os.stat(self._wal_path).st_size < self._wal_size
            except OSError:
                self._cut = False  # it is missing, which is found after the commit

    def after_commit(self, *, wrote: bool) -> None:
        """Raise if what was committed is not in the files that the path names.

        Args:
            wrote: Whether the commit changed anything, so that there must be a WAL.

        Raises:
            StoreUnavailableError: The outcome is unknown, and nothing more is acknowledged.
        """
        if not self.is_checked:
            return
        try:
            # What is so after nearly every commit, without a further call.
            file, wal = os.stat(self._path), os.stat(self._wal_path)
            if (
                (file.st_dev, file.st_ino) == self._file
                and (wal.st_dev, wal.st_ino) == self._wal
                and file.st_size
                and wal.st_size
                and not self._cut
            ):
                self._wal_size = wal.st_size
                return
        except OSError:
            pass  # which of them it is, and what that means, is found out here:
        found = self._changed_file() or self._changed_wal(wrote=wrote)
        if not found:
            return
        if found != _REMOVED_WAL:
            # A checkpoint would write into a file that is not ours, or zeros into ours. From a WAL
            # that was only removed, it brings all commits into the database.
            leave_wal(self._file)
        self.lost = (
            f"{found.format(self._path)} while the ledger was open, so what is written now may "
            "be lost: nothing more is acknowledged, and the outcome of this commit is unknown. "
            "Stop all processes that use the ledger and put the file back, or restore a backup. "
            "Then open it again, and append the same events again, with the same ids."
        )
        raise StoreUnavailableError(self.lost)

    def check_file(self) -> None:
        """Raise before connecting to another file than the one that was opened."""
        if self.is_checked and (found := self._changed_file()):
            raise StoreUnavailableError(
                f"{found.format(self._path)} while the ledger was open. Close the ledger, put the "
                "file back or restore a backup, and open it again."
            )

    def are_ours(self) -> bool:
        """Whether the files by their names are those that SQLite has open."""
        return not self.lost and not (
            self.is_checked and (self._changed_file() or self._changed_wal(wrote=False))
        )

    def _changed_file(self) -> str:
        try:
            found = os.stat(self._path)
        except OSError:
            return "{} was removed"
        if (found.st_dev, found.st_ino) != self._file:
            return "{} was replaced by another file"
        return "{} was cut to nothing" if self.is_made and not found.st_size else ""

    def _changed_wal(self, *, wrote: bool) -> str:
        try:
            found = os.stat(self._wal_path)
        except OSError:
            return _REMOVED_WAL if wrote or self._wal else ""
        if self._wal is None:
            self._wal = found.st_dev, found.st_ino
        if (found.st_dev, found.st_ino) != self._wal:
            return "{}-wal was replaced by another file"
        if (wrote and not found.st_size) or (self._cut and not _has_header(self._wal_path)):
            return "{}-wal was cut to nothing"
        self._wal_size = found.st_size
        return ""


_REMOVED_WAL = "{}-wal was removed"


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _has_header(wal: str) -> bool:
    """Whether a WAL begins as one. A checkpoint by another program may cut it: then it does."""
    try:
        with open(wal, "rb") as file:  # SQLite has no locks on this file
            return file.read(4) in _WAL_MAGIC
    except OSError:
        return False


def invalidate_index(path: Path) -> None:
    """Have the WAL's index made again from the WAL. Only under the lock between processes."""
    with suppress(FileNotFoundError):  # then the next one is made from the WAL anyway
        os.pwrite(keep_index_open(path), bytes(_HEADER_BYTES), 0)


def invalidate_wal_tail(path: Path) -> None:
    """After a failed commit: make invalid what it left behind the valid part of the WAL.

    A process that makes an index from the WAL would count it, and it may never be on disk,
    whatever is flushed later. Only under the lock between processes.
    """
    with suppress(FileNotFoundError):
        _cut(path, os.pread(keep_index_open(path), _HEADER.size, 0))


def _cut(path: Path, header: bytes) -> None:
    if len(header) < _HEADER.size:
        return
    is_made, page, frames = _HEADER.unpack(header)
    if not is_made:
        return  # then no commit has written since it was invalidated
    # SQLite stores the page size 65536 as 1: two bytes can't hold it.
    place = _WAL_HEADER_BYTES + frames * (_FRAME_HEADER_BYTES + (65536 if page == 1 else page))
    wal = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(wal).st_size > place:
            # Frames count up to the first invalid one, and one for page 0 is never valid.
            os.pwrite(wal, bytes(_FRAME_HEADER_BYTES), place)
    finally:
        os.close(wal)  # SQLite takes its locks on the index, none on this file
