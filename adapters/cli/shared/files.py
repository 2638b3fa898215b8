"""Files that a person names, read whole: up to a size, so that no device or mistake fills memory.

What is read in pieces (exports, ledgers) needs no such bound and is not read here.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from turnledger.ledger import InvalidInputError

# More than any append, blob or conversation may be; a file of many conversations can be split.
MOST = 256 * 1024 * 1024
_PIECE = 1024 * 1024


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
