"""Makes SQLite forget what it believes to have moved from the WAL into the database.

While others read, SQLite moves a part of the WAL and notes in the WAL's index (`-shm`) how much,
before anything was flushed. If flushing fails later, a system may throw those pages away, and the
note is wrong: readers would go by old pages, and the WAL would be begun anew with the only copy in
it. So after any such failure the index is declared invalid, and whoever reads or writes next makes
another one from the WAL, in which nothing counts as moved.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Two copies of the index's header: how far the WAL is valid. All zero is "there is none".
_HEADER_BYTES = 96
# Never closed: closing a file frees all locks that this process has on it, SQLite's too.
_KEPT_OPEN: dict[tuple[int, int], int] = {}


def distrust_index(path: Path) -> None:
    """To be called under the writer's lock: nobody else is writing to the index then."""
    with suppress(FileNotFoundError):  # then the next one is made from the WAL anyway
        index = Path(f"{path}-shm")
        found = index.stat()
        file = _KEPT_OPEN.get((found.st_dev, found.st_ino))
        if file is None:
            file = os.open(index, os.O_RDWR | os.O_CLOEXEC)
            _KEPT_OPEN[found.st_dev, found.st_ino] = file
        os.pwrite(file, bytes(_HEADER_BYTES), 0)
