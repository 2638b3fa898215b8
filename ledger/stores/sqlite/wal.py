"""Repairs of the WAL after a failed commit or checkpoint: invalidate its index, cut its tail.

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

# Two copies of the index's header: how far the WAL is valid. All zero means that there is none.
_HEADER_BYTES = 96
# In it, in the machine's byte order: whether it is made, the page size, the last valid frame.
_HEADER = struct.Struct("=12x B x H I")
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
# Index files that stay open, by device and inode. POSIX locks belong to a process and a file:
# closing any descriptor of the file would free all locks that SQLite has on it in this process.
_kept_open: dict[tuple[int, int], int] = {}


def invalidate_index(path: Path) -> None:
    """Have the WAL's index made again from the WAL. Only under the lock between processes."""
    with suppress(FileNotFoundError):  # then the next one is made from the WAL anyway
        os.pwrite(_index_file(path), bytes(_HEADER_BYTES), 0)


def _index_file(path: Path) -> int:
    index = Path(f"{path}-shm")
    found = index.stat()
    file = _kept_open.get((found.st_dev, found.st_ino))
    if file is None:
        _close_deleted()
        file = os.open(index, os.O_RDWR | os.O_CLOEXEC)
        _kept_open[found.st_dev, found.st_ino] = file
    return file


def _close_deleted() -> None:
    """Close files that were deleted, as an index is with the last connection to the ledger.

    SQLite has no locks on them any more, and they take room on the disk until they are closed.
    """
    for number, file in list(_kept_open.items()):
        if os.fstat(file).st_nlink == 0 and _kept_open.pop(number, None) is not None:
            os.close(file)


def invalidate_wal_tail(path: Path) -> None:
    """After a failed commit: make invalid what it left behind the valid part of the WAL.

    A process that makes an index from the WAL would count it, and it may never be on disk,
    whatever is flushed later. Only under the lock between processes.
    """
    with suppress(FileNotFoundError):
        _cut(path, os.pread(_index_file(path), _HEADER.size, 0))


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
