"""The checks of `doctor` for a ledger in a file: SQLite's settings, and the disk underneath.

`look_at` asks the machine; everything else is pure.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from turnledger.adapters.cli.maintain.doctor.check import Check, Verdict, judge, number_of

# SQLite before this can corrupt a WAL that several connections write and checkpoint at once.
WAL_FIXED = (3, 51, 3)
MOUNTS, MAPS = Path("/proc/self/mounts"), Path("/proc/self/maps")
# How the kernel writes spaces and the like.
ESCAPED = re.compile(r"\\([0-7]{3})")
MIB = 1024 * 1024
LITTLE_SPACE, NO_SPACE = 1024 * MIB, 64 * MIB
FEW_INODES = 1000
LARGE_WAL, LARGE_FILE = 256 * MIB, 512 * MIB
# Locks and shared memory of SQLite's WAL do not work across machines.
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre"),
        *("gpfs", "beegfs", "ocfs2", "gfs2", "9p", "davfs", "fuse.sshfs", "fuse.glusterfs"),
        *("fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.ceph", "orangefs", "panfs", "wekafs"),
        # What a virtual machine or a container shares with its host is no better.
        *("virtiofs", "vboxsf", "prl_fs", "drvfs", "fakeowner"),
    }
)
VOLATILE = frozenset({"tmpfs", "ramfs"})
# Options with which a flush that was confirmed may not be on the disk, or files come to
# hold something else after a power cut.
NO_FLUSH = frozenset({"nobarrier", "barrier=0", "volatile"})
LOOSE_ORDER = frozenset({"data=writeback", "nobh", "async_commit"})
# Libraries that turn fsync into nothing.
NO_FSYNC = ("eatmydata", "libnosync")


class Mount(msgspec.Struct, frozen=True):
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]


class Place(msgspec.Struct, frozen=True):
    """What the machine says of the place where a file is, or is to be."""

    path: Path
    mounts: str = ""
    maps: str = ""
    free: int | None = None
    free_inodes: int | None = None
    mode: int | None = None
    # Whether every user of the machine can enter all folders on the way to it.
    open_to_all: bool = True
    writable: bool = True
    # What lies beside it and may not be written to.
    closed: str = ""
    # What SQLite says of the file's pages; None if nobody looked.
    pages: str | None = None


def look_at(path: Path) -> Place:
    """Ask the machine; what it does not say stays unknown."""
    free = inodes = mode = None
    with suppress(OSError):
        disk = os.statvfs(path if path.is_dir() else path.parent)
        free = disk.f_bavail * disk.f_frsize
        # A file system that makes inodes as it needs them says that it has none.
        inodes = disk.f_favail if disk.f_files else None
    with suppress(OSError):
        mode = path.stat().st_mode
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    beside = (Path(f"{path}{end}") for end in ("-locks", "-wal", "-shm"))
    closed = [str(one) for one in beside if one.exists() and not os.access(one, os.W_OK)]
    return Place(
        path=path.resolve(),
        mounts=_text(MOUNTS),
        maps=_text(MAPS),
        free=free,
        free_inodes=inodes,
        mode=mode,
        open_to_all=_is_open_to_all(path),
        writable=writable,
        closed=", ".join(closed),
        pages=_pages(path),
    )


def _pages(path: Path) -> str | None:
    """What a quick look at all pages says; of a large file it would take too long."""
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


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def check_file(facts: Mapping[str, str], place: Place) -> Iterator[Check]:
    """All checks for a ledger in a file."""
    if "sqlite" in facts:
        yield sqlite_version(facts["sqlite"])
        yield from _settings(facts)
    yield damage(place)
    yield access(facts, place)
    yield file_system(place.path, place.mounts)
    locks = Path(facts.get("locks", f"{place.path}-locks"))
    if mount_of(locks, place.mounts) != mount_of(place.path, place.mounts):
        yield file_system(locks, place.mounts, "file system of the locks")
    yield flushing(place)
    yield free_space(place)
    yield privacy(place)


def _settings(facts: Mapping[str, str]) -> Iterator[Check]:
    if facts.get("access") != "read only":
        journal = facts.get("journal_mode", "unknown")
        yield judge(
            "journal mode",
            journal,
            None if journal == "wal" else Verdict.FAIL,
            "The file is not in WAL mode: is its file system writable?",
        )
    given = facts.get("synchronous", "unknown")
    level = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}.get(given, given)
    yield judge(
        "synchronous",
        level,
        None if level in ("FULL", "EXTRA") else Verdict.FAIL,
        "Acknowledged events can be lost with power: FULL is needed.",
    )
    wal = number_of(facts, "wal_bytes") or 0
    yield judge(
        "size of the WAL",
        f"{wal / MIB:.0f} MiB",
        Verdict.WARN if wal > LARGE_WAL else None,
        "A long-lived reader keeps the WAL from shrinking: end it.",
    )


def sqlite_version(version: str) -> Check:
    """Whether this SQLite has the WAL fault, and why that is no danger here."""
    parts = tuple(int(part) for part in version.split(".") if part.isdigit())
    if parts >= WAL_FIXED:
        return Check("SQLite", Verdict.OK, version)
    return Check(
        "SQLite",
        Verdict.OK,
        f"{version}, which has the WAL fault that {'.'.join(map(str, WAL_FIXED))} mends",
        "The ledger's own lock around commits and checkpoints covers it, as long as only "
        "turnledger writes to the file. Open it read-only with other tools.",
    )


def damage(place: Place) -> Check:
    """Whether the pages of the file hang together; what is in them, `verify` tells."""
    if place.pages is None:
        found = "not looked at: the file is large, or not there"
        return Check("damage", Verdict.OK, found, "Run turnledger verify, which reads all of it.")
    if place.pages == "ok":
        return Check("damage", Verdict.OK, "none seen in the pages; verify looks at the records")
    advice = "Write nothing more to it, copy it with all that lies beside it, and go on from a "
    return Check("damage", Verdict.FAIL, place.pages, f"{advice}backup or an export.")


def access(facts: Mapping[str, str], place: Place) -> Check:
    """Whether the ledger can be written at all."""
    mount = mount_of(place.path, place.mounts)
    if mount is not None and "ro" in mount.options:
        found = f"{mount.point} is mounted read-only"
        advice = "Reading works, appending does not. Mount it with rw. If the kernel did this by "
        return Check("access", Verdict.FAIL, found, f"{advice}itself, look for disk errors: dmesg.")
    if place.mode is not None and stat.S_ISDIR(place.mode):
        advice = "Give the file of a ledger, not a folder."
        return Check("access", Verdict.FAIL, f"{place.path} is a folder", advice)
    if place.closed and place.writable:
        advice = "Appends are refused. Change its owner or its rights."
        return Check(
            "access", Verdict.FAIL, f"{place.closed} may not be written to by this user", advice
        )
    if facts.get("access") == "read only" or not place.writable:
        found = f"{place.path} or its folder may not be written to by this user"
        advice = "Appends are refused. Change the owner or the rights of the file, its folder "
        return Check("access", Verdict.FAIL, found, f"{advice}and what lies beside it.")
    return Check("access", Verdict.OK, "read and write")


def mount_of(path: Path, mounts: str) -> Mount | None:
    """The file system that holds a path."""
    best: Mount | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        point = ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[1])
        longer = best is None or len(point) >= len(best.point)
        if longer and path.is_relative_to(point):
            best = Mount(point, fields[2], frozenset(fields[3].split(",")))
    return best


def file_system(path: Path, mounts: str, name: str = "file system") -> Check:
    """SQLite's locks need a file system of this machine's own."""
    found = mount_of(path, mounts)
    if found is None:
        return Check(
            name,
            Verdict.WARN,
            "unknown",
            "Make sure that it is a local disk: SQLite's locks do not work over a network.",
        )
    where = f"{found.kind} on {found.point}"
    if found.kind in NETWORK:
        advice = "SQLite's WAL and locks do not work over a network. Move the file to a local "
        return Check(name, Verdict.FAIL, where, f"{advice}disk, or use PostgreSQL.")
    if found.kind in VOLATILE:
        advice = "It is in memory: everything is gone when the machine restarts."
        return Check(name, Verdict.WARN, where, advice)
    if found.kind == "overlay":
        advice = (
            "It is a container's own layer, gone with the container. Keep the file on a volume."
        )
        return Check(name, Verdict.WARN, where, advice)
    if found.kind.startswith("fuse"):
        advice = "Whether it keeps what it confirms, and locks, depends on the program behind it."
        return Check(name, Verdict.WARN, where, advice)
    return Check(name, Verdict.OK, where)


def flushing(place: Place) -> Check:
    """Whether something makes fsync weaker than it says."""
    name = "flushing"
    if any(library in place.maps for library in NO_FSYNC):
        advice = "Every acknowledged event can be lost with power. Run without LD_PRELOAD."
        return Check(name, Verdict.FAIL, "a library that turns fsync off is loaded", advice)
    mount = mount_of(place.path, place.mounts)
    options = mount.options if mount is not None else frozenset[str]()
    if weak := sorted(options & NO_FLUSH):
        advice = "Acknowledged events can be lost with power. Mount it without that."
        return Check(name, Verdict.FAIL, f"mounted with {', '.join(weak)}", advice)
    if weak := sorted(options & LOOSE_ORDER):
        advice = "After a power cut a file may hold old blocks where it grew. Mount it without."
        return Check(name, Verdict.WARN, f"mounted with {', '.join(weak)}", advice)
    return Check(name, Verdict.OK, "nothing weakens fsync, as far as can be seen")


def free_space(place: Place, name: str = "disk") -> Check:
    if place.free is None:
        return Check(name, Verdict.WARN, "unknown", "Look at it yourself: df.")
    found = f"{place.free // MIB} MiB free"
    advice = "Make room: appends fail when the disk is full. Nothing acknowledged is lost."
    if place.free_inodes is not None and place.free_inodes < FEW_INODES:
        return Check(name, Verdict.FAIL, f"{found}, {place.free_inodes} inodes free", advice)
    if place.free >= LITTLE_SPACE:
        return Check(name, Verdict.OK, found)
    return Check(name, Verdict.FAIL if place.free < NO_SPACE else Verdict.WARN, found, advice)


def privacy(place: Place) -> Check:
    """Who else on this machine may read what agents and their users said."""
    if place.mode is None:
        return Check("privacy", Verdict.WARN, "unknown", "Look at it yourself: ls -l.")
    found = stat.filemode(place.mode)
    if not place.open_to_all:
        return Check("privacy", Verdict.OK, f"{found}, in a folder that others can't enter")
    others = place.mode & (stat.S_IROTH | stat.S_IWOTH)
    if others & stat.S_IWOTH:
        advice = "Every user of this machine can change the ledger: chmod o-rwx."
        return Check("privacy", Verdict.FAIL, found, advice)
    return judge(
        "privacy",
        found,
        Verdict.WARN if others else None,
        "Every user of this machine can read the ledger, prompts and answers included: "
        "chmod o-rwx, the files beside it too.",
    )
