"""Files that a command reads and writes whole.

Reading stops at a size, so that no device or mistake fills memory; a file that is written appears
when it is complete. What is read in pieces (exports, ledgers) has no such bound and is not here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from turnledger.ledger import InvalidInputError

# More than any append, blob or conversation may be; a file of many conversations can be split.
MOST = 256 * 1024 * 1024
_PIECE = 1024 * 1024
_DATABASE = b"SQLite format 3\0"
T = TypeVar("T")


def read_whole(file: BinaryIO, name: str, most: int = MOST) -> bytes:
    """What is in a file that is open; InvalidInputError if it does not end in time."""
    content = bytearray()
    # In pieces: asking for all at once would set aside the most that there may be.
    while piece := file.read(min(_PIECE, most + 1 - len(content))):
        content += piece
        if len(content) > most:
            raise InvalidInputError(
                f"{name} has more than {most} bytes, which is more than this can be. "
                "Is it the right file? If it is, split it."
            )
    return bytes(content)


def read_path(path: Path, most: int = MOST) -> bytes:
    """The same for a path."""
    with path.open("rb") as file:
        return read_whole(file, str(path), most)


def written(path: Path | None, write: Callable[[BinaryIO], T]) -> T:
    """Write to stdout, or to a file that appears when it is complete and on disk."""
    if path is None:
        result = write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return result
    # The file that a link means is replaced, not the link.
    path = path.resolve()
    if path.exists() and not path.is_file():
        # A device or a pipe takes what it gets, and must not be put out of the way for a file.
        with path.open("wb") as out:
            return write(out)
    _refuse_databases(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("xb") as out:
            result = write(out)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return result


def _refuse_databases(path: Path) -> None:
    """A ledger's file is never replaced by what was written from it; nor what belongs to it."""
    name = path.name.removesuffix("-wal").removesuffix("-shm")
    for file in {path, path.with_name(name or path.name)}:
        if not file.is_file():
            continue
        with file.open("rb") as found:
            if found.read(len(_DATABASE)) == _DATABASE:
                raise InvalidInputError(
                    f"{path} is a database, or part of one: it is left as it is. Name another file."
                )
