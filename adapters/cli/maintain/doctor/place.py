"""What the machine reports of a ledger's place: mounts, free space, access, damaged pages."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

import msgspec

MOUNTS, MAPS = Path("/proc/self/mounts"), Path("/proc/self/maps")
# Pages of a larger file are not checked: it would take too long.
LARGE_FILE = 512 * 1024 * 1024


class Mount(msgspec.Struct, frozen=True):
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]


class Place(msgspec.Struct, frozen=True):
    """What the machine reports of the place where a file is, or is to be."""

    path: Path
    mounts: str = ""
    maps: str = ""
    free: int | None = None
    free_inodes: int | None = None
    mode: int | None = None
    # Whether every user of the machine can enter all folders on the way to it.
    open_to_all: bool = True
    writable: bool = True
    # Files beside it that may not be written to.
    closed: str = ""
    # It and files beside it that others than their owner can read.
    exposed: str = ""
    # The result of SQLite's quick_check; None if it was not run.
    pages: str | None = None

    @property
    def mount(self) -> Mount | None:
        return mount_of(self.path, self.mounts)

    @property
    def options(self) -> frozenset[str]:
        return self.mount.options if self.mount is not None else frozenset()


def look_at(path: Path) -> Place:
    """Ask the machine; what it does not report stays unknown."""
    free = inodes = mode = None
    with suppress(OSError):
        disk = os.statvfs(path if path.is_dir() else path.parent)
        free = disk.f_bavail * disk.f_frsize
        # A file system that allocates inodes as it needs them reports none.
        inodes = disk.f_favail if disk.f_files else None
    with suppress(OSError):
        mode = path.stat().st_mode
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    beside = [Path(f"{path}{end}") for end in ("-locks", "-wal", "-shm")]
    open_to_all = _is_open_to_all(path)
    others = 0o077 if open_to_all else 0o070
    closed = [str(one) for one in beside if one.exists() and not os.access(one, os.W_OK)]
    return Place(
        path=path.resolve(),
        mounts=_text(MOUNTS),
        maps=_text(MAPS),
        free=free,
        free_inodes=inodes,
        mode=mode,
        open_to_all=open_to_all,
        exposed=", ".join(str(one) for one in (path, *beside) if _mode(one) & others),
        writable=writable,
        closed=", ".join(closed),
        pages=_pages(path),
    )


def mount_of(path: Path, mounts: str) -> Mount | None:
    """The file system that holds a path, from the text of /proc/self/mounts."""
    best: Mount | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        # The kernel writes spaces and the like as octal escapes.
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[1])
        longer = best is None or len(point) >= len(best.point)
        if longer and path.is_relative_to(point):
            best = Mount(point, fields[2], frozenset(fields[3].split(",")))
    return best


def _pages(path: Path) -> str | None:
    if not path.is_file() or path.stat().st_size > LARGE_FILE:
        return None
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except (sqlite3.Error, OSError, ValueError) as error:
        return str(error)


def _is_open_to_all(path: Path) -> bool:
    with suppress(OSError):
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)
    return False


def _mode(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mode
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
