"""What a power cut leaves: the files as they are found, made from what a `LyingDisk` noted.

What was synced is there. Of the rest, anything may be: nothing, all, or pieces. Whatever a
failed sync was asked to write, no later sync writes: the system believes that it has done so.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.lying_disk import truncate_to, write_into

SECTOR = 512
SUFFIXES = {"db": "", "wal": "-wal", "journal": "-journal"}
LEFTOVERS = ("nothing", "all", "pieces", "beginning")


@dataclass
class _Inode:
    synced: bytearray = field(default_factory=bytearray)
    pending: list[list[Any]] = field(default_factory=list)


class Platter:
    """The disk as it is at a moment; `follow` takes it to the next."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names: dict[str, _Inode] = {"db": _Inode()}
        self._synced_names = dict(self._names)
        # The folder as it was after each change since it was last synced.
        self._folders: list[dict[str, _Inode]] = []
        self.acknowledged: list[str] = []
        self.syncs_failed = 0

    def follow(self, entry: list[Any]) -> None:
        """Do what was noted."""
        match entry:
            case ["opened", kind, is_new]:
                if is_new or kind not in self._names:
                    self._rename({**self._names, kind: _Inode()})
            case ["delete", kind]:
                self._rename({k: inode for k, inode in self._names.items() if k != kind})
            case ["write" | "truncate", kind, *_]:
                self._names[kind].pending.append(entry)
            case ["sync", kind]:
                inode = self._names[kind]
                _apply(inode.synced, inode.pending)
                inode.pending = []
                if kind != "db":  # SQLite syncs the folder with a new WAL or journal.
                    self._synced_names, self._folders = dict(self._names), []
            case ["sync failed", kind]:
                inode = self._names[kind]
                _apply(inode.synced, self._leftover("pieces", inode.pending))
                inode.pending = []
                self.syncs_failed += 1
            case ["acknowledged", ids]:
                self.acknowledged += ids
            case _:
                raise ValueError(f"a disk does not {entry[:2]}")

    def _rename(self, names: dict[str, _Inode]) -> None:
        self._names = names
        self._folders.append(names)

    def cut(self, path: Path, leftover: str) -> None:
        """Write the files as they would be found if the power failed now."""
        folders = [self._synced_names, *self._folders]
        if leftover == "nothing":
            names = folders[0]
        else:
            names = folders[-1] if leftover == "all" else self._random.choice(folders)
        # The WAL's index is memory that happens to have a name: SQLite makes it anew.
        Path(f"{path}-shm").unlink(missing_ok=True)
        # The folder of locks is that of the last image: it says that a ledger was made there.
        shutil.rmtree(f"{path}-locks", ignore_errors=True)
        for kind, suffix in SUFFIXES.items():
            found = Path(f"{path}{suffix}")
            found.unlink(missing_ok=True)
            if kind in names:
                content = bytearray(names[kind].synced)
                _apply(content, self._leftover(leftover, names[kind].pending))
                found.write_bytes(content)

    def _leftover(self, leftover: str, pending: list[list[Any]]) -> list[list[Any]]:
        """What of it reached the disk all the same."""
        if leftover == "nothing":
            return []
        if leftover == "all":
            return pending
        pieces = [piece for entry in pending for piece in _pieces(entry)]
        if leftover == "beginning":
            return pieces[: self._random.randint(0, len(pieces))]
        return [piece for piece in pieces if self._random.random() < 0.5]


def _pieces(entry: list[Any]) -> list[list[Any]]:
    if entry[0] != "write":
        return [entry]
    _, kind, offset, data = entry
    first = SECTOR - offset % SECTOR
    edges = [0, *range(first, len(data), SECTOR), len(data)]
    return [["write", kind, offset + a, data[a:b]] for a, b in pairwise(edges) if a < b]


def _apply(content: bytearray, entries: list[list[Any]]) -> None:
    for entry in entries:
        if entry[0] == "write":
            write_into(content, entry[2], entry[3])
        else:
            truncate_to(content, entry[2])
