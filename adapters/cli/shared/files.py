"""Files that a command reads or writes as a whole.

Reading has a size limit, so that no device or mistake fills memory; writing is atomic. Exports
and ledgers are read in pieces elsewhere, without a limit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from turnledger.ledger import InvalidInputError

# Larger than any append, blob or conversation may be; a file of many conversations can be split.
MOST = 256 * 1024 * 1024
_PIECE = 1024 * 1024
_DATABASE = b"SQLite format 3\0"
T = TypeVar("T")


def read_whole(file: BinaryIO, name: str, most: int = MOST) -> bytes:
    """The content of an open file; InvalidInputError if it has more than `most` bytes."""
    content = bytearray()
    # In pieces: one read of `most` bytes would allocate them all.
    while piece := file.read(min(_PIECE, most + 1 - len(content))):
        content += piece
        if len(content) > most:
            raise InvalidInputError(
                f"{name} is too large: it has more than {most} bytes. "
                "Check that it is the right file; if it is, split it."
            )
    return bytes(content)


def read_path(path: Path, most: int = MOST) -> bytes:
    """Like `read_whole`, for a path."""
    with path.open("rb") as file:
        return read_whole(file, str(path), most)


def written(path: Path | None, write: Callable[[BinaryIO], T]) -> T:
    """Write to stdout, or atomically to a file: it appears when it is complete and on disk."""
    if path is None:
        result = write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return result
    # The target of a link is replaced, not the link.
    path = path.resolve()
    if path.exists() and not path.is_file():
        # A device or a pipe is written to; it must not be replaced by a file.
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
    """Never replace a ledger's file, its WAL or its shared memory by an export of it."""
    name = path.name.removesuffix("-wal").removesuffix("-shm")
    for file in {path, path.with_name(name or path.name)}:
        if not file.is_file():
            continue
        with file.open("rb") as found:
            if found.read(len(_DATABASE)) == _DATABASE:
                raise InvalidInputError(
                    f"{path} is a SQLite database, or part of one, and is not overwritten. "
                    "Name another file."
                )
