"""Makes SQLite forget what it believes to have moved from the WAL into the database.

While others read, SQLite moves a part of the WAL and notes in the WAL's index (`-shm`) how much,
before anything was flushed. If flushing fails later, a system may throw those pages away, and the
note is wrong: readers would go by old pages, and the WAL would be begun anew with the only copy in
it. So after any such failure the index is declared invalid, and whoever reads or writes next makes
another one from the WAL, in which nothing counts as moved. What a commit that failed left behind
the valid part of the WAL must not come back by that, so its first frame is made invalid.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

# Two copies of the index's header: how far the WAL is valid. All zero is "there is none".
_HEADER_BYTES = 96
# In it, in the machine's own order: whether it is made, the size of a page, the last valid frame.
_HEADER = struct.Struct("=12x B x H I")
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
# Not closed while SQLite may use it: that would free all locks that this process has on it.
_KEPT_OPEN: dict[tuple[int, int], int] = {}


def distrust_index(path: Path) -> None:
    """To be called under the writer's lock: nobody else is writing to the index then."""
    with suppress(FileNotFoundError):  # then the next one is made from the WAL anyway
        os.pwrite(_index_file(path), bytes(_HEADER_BYTES), 0)


def _index_file(path: Path) -> int:
    index = Path(f"{path}-shm")
    found = index.stat()
    file = _KEPT_OPEN.get((found.st_dev, found.st_ino))
    if file is None:
        _let_go_of_deleted()
        file = os.open(index, os.O_RDWR | os.O_CLOEXEC)
        _KEPT_OPEN[found.st_dev, found.st_ino] = file
    return file


def _let_go_of_deleted() -> None:
    """An index is deleted when nobody has the ledger open any more; its room is not free yet."""
    for number, file in list(_KEPT_OPEN.items()):
        if os.fstat(file).st_nlink == 0 and _KEPT_OPEN.pop(number, None) is not None:
            os.close(file)


def cut_wal(path: Path) -> None:
    """After a commit that failed: what it left in the WAL is made invalid.

    Whoever makes an index from the WAL would count it, and it may never be on disk, whatever is
    flushed later. To be called under the writer's lock.
    """
    with suppress(FileNotFoundError):
        _cut(path, os.pread(_index_file(path), _HEADER.size, 0))


def _cut(path: Path, header: bytes) -> None:
    if len(header) < _HEADER.size:
        return
    is_made, page, frames = _HEADER.unpack(header)
    if not is_made:
        return  # and nobody has written since
    place = _WAL_HEADER_BYTES + frames * (_FRAME_HEADER_BYTES + (65536 if page == 1 else page))
    wal = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(wal).st_size > place:
            os.pwrite(wal, bytes(_FRAME_HEADER_BYTES), place)
    finally:
        os.close(wal)  # SQLite has no locks on this one
