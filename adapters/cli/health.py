"""The checks of `doctor`: does the store, as it is set, keep what the ledger promises?

Pure functions over what a store says of itself and what the machine says of its disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

import msgspec

from ledger.events import CATALOGUE

# SQLite before this can corrupt a WAL that several connections write and checkpoint at once.
WAL_FIXED = (3, 51, 3)
MOUNTS = Path("/proc/self/mounts")
MIB = 1024 * 1024
LITTLE_SPACE, NO_SPACE = 1024 * MIB, 64 * MIB
LARGE_WAL = 256 * MIB
# A write transaction this old (seconds) noticeably holds followers of the ledger back.
LONG_TRANSACTION = 60.0
# Locks and shared memory of SQLite's WAL do not work across machines.
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre"),
        *("gpfs", "beegfs", "ocfs2", "gfs2", "9p", "davfs", "fuse.sshfs", "fuse.glusterfs"),
        *("fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.ceph"),
    }
)
VOLATILE = frozenset({"tmpfs", "ramfs"})


class Verdict(Enum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """One check: what was found, and what to do about it."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def examine(facts: Mapping[str, str], written: int | None) -> list[Check]:
    """All checks that apply to a store that says this of itself."""
    store = facts.get("store", "")
    checks = [_catalogue(written)]
    if store == "sqlite":
        checks.extend(_sqlite(facts))
    elif store.startswith("postgres"):
        checks.extend(_postgres(facts))
    elif store == "memory":
        checks.append(
            Check(
                "durability",
                Verdict.WARN,
                "memory",
                "Everything is gone with this process. Keep runs in a file or PostgreSQL.",
            )
        )
    return checks


def _catalogue(written: int | None) -> Check:
    found = f"written with {written}, this program knows {CATALOGUE}"
    if written is not None and written > CATALOGUE:
        return Check(
            "event catalogue",
            Verdict.WARN,
            found,
            "A newer turnledger wrote here. Upgrade this one to be able to read all events.",
        )
    return Check("event catalogue", Verdict.OK, found)


# --- SQLite ------------------------------------------------------------------------


def _sqlite(facts: Mapping[str, str]) -> Iterator[Check]:
    yield sqlite_version(facts.get("sqlite", "0"))
    journal = facts.get("journal_mode", "")
    yield Check(
        "journal mode",
        Verdict.OK if journal == "wal" else Verdict.FAIL,
        journal,
        "" if journal == "wal" else "The file is not in WAL mode: is its file system writable?",
    )
    level = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}.get(
        facts.get("synchronous", ""), facts.get("synchronous", "")
    )
    durable = level in ("FULL", "EXTRA")
    yield Check(
        "synchronous",
        Verdict.OK if durable else Verdict.FAIL,
        level,
        "" if durable else "Acknowledged events can be lost with power: FULL is needed.",
    )
    wal = int(facts.get("wal_bytes", "0"))
    yield Check(
        "size of the WAL",
        Verdict.WARN if wal > LARGE_WAL else Verdict.OK,
        f"{wal // MIB} MiB",
        "A long-lived reader keeps the WAL from shrinking: end it." if wal > LARGE_WAL else "",
    )
    path = Path(facts.get("file", "."))
    mounts = MOUNTS.read_text(errors="replace") if MOUNTS.exists() else ""
    yield file_system(path.resolve(), mounts)
    yield free_space(shutil.disk_usage(path.parent).free)


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


def mount_of(path: Path, mounts: str) -> tuple[str, str] | None:
    """The mount point that holds a path and its file system's type."""
    best: tuple[str, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].encode().decode("unicode_escape", "replace")
        longer = best is None or len(point) >= len(best[0])
        if longer and path.is_relative_to(point):
            best = (point, fields[2])
    return best


def file_system(path: Path, mounts: str) -> Check:
    """SQLite's locks need a file system of this machine's own."""
    found = mount_of(path, mounts)
    if found is None:
        return Check(
            "file system",
            Verdict.WARN,
            "unknown",
            "Make sure that it is a local disk: SQLite's locks do not work over a network.",
        )
    point, kind = found
    if kind in NETWORK:
        return Check(
            "file system",
            Verdict.FAIL,
            f"{kind} on {point}",
            "SQLite's WAL does not work over a network. Move the file to a local disk, or "
            "use PostgreSQL.",
        )
    if kind in VOLATILE:
        return Check(
            "file system",
            Verdict.WARN,
            f"{kind} on {point}",
            "It is in memory: everything is gone when the machine restarts.",
        )
    return Check("file system", Verdict.OK, f"{kind} on {point}")


def free_space(free: int) -> Check:
    found = f"{free // MIB} MiB free"
    if free >= LITTLE_SPACE:
        return Check("disk", Verdict.OK, found)
    verdict = Verdict.FAIL if free < NO_SPACE else Verdict.WARN
    return Check("disk", verdict, found, "Make room: appends fail when the disk is full.")


# --- PostgreSQL --------------------------------------------------------------------


def _postgres(facts: Mapping[str, str]) -> Iterator[Check]:
    yield _must_be_on(
        facts, "fsync", "A crash of the machine can destroy the database. Set fsync = on."
    )
    yield _must_be_on(
        facts,
        "synchronous_commit",
        "Acknowledged events can be lost. The ledger sets it to on for its own commits: "
        "something overrides that.",
        fine=("on", "remote_apply", "remote_write", "local"),
    )
    yield _must_be_on(
        facts,
        "full_page_writes",
        "A crash can leave torn pages. Set full_page_writes = on, unless the file system "
        "writes pages whole.",
        otherwise=Verdict.WARN,
    )
    yield _long_transaction(facts)


def _must_be_on(
    facts: Mapping[str, str],
    name: str,
    advice: str,
    *,
    fine: tuple[str, ...] = ("on",),
    otherwise: Verdict = Verdict.FAIL,
) -> Check:
    found = facts.get(name)
    if found is None:
        return Check(name, Verdict.WARN, "unknown", f"Look at it yourself: SHOW {name}.")
    good = found in fine
    return Check(name, Verdict.OK if good else otherwise, found, "" if good else advice)


def _long_transaction(facts: Mapping[str, str]) -> Check:
    """One old write transaction anywhere in the cluster delays every follower."""
    name = "oldest transaction"
    text = facts.get("longest_write_seconds", "unknown")
    try:
        seconds = float(text)
    except ValueError:
        return Check(name, Verdict.WARN, text, "Look at pg_stat_activity yourself.")
    if seconds < LONG_TRANSACTION:
        return Check(name, Verdict.OK, f"{seconds:.0f} s")
    return Check(
        name,
        Verdict.WARN,
        f"{seconds:.0f} s",
        "`tail` waits behind it (`read` and `log` don't). Find it: SELECT pid, xact_start, "
        "query FROM pg_stat_activity ORDER BY xact_start LIMIT 1.",
    )
