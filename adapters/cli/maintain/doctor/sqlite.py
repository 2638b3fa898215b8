"""Rules of `doctor` for a ledger in a SQLite file: its settings, and the file system under it."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from turnledger.adapters.cli.maintain.doctor.place import Mount, mount_of
from turnledger.adapters.cli.maintain.doctor.rules import (
    FLUSHING,
    FREE_SPACE,
    MIB,
    Predicate,
    Rule,
    Subject,
    above,
    differs,
    equals,
    fact,
    fail,
    fine,
    warn,
)

# SQLite before this can corrupt a WAL that several connections write and checkpoint at once.
WAL_FIXED = "3.51.3"
LARGE_WAL = 256 * MIB
# Locks and shared memory of SQLite's WAL do not work across machines.
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre"),
        *("gpfs", "beegfs", "ocfs2", "gfs2", "9p", "davfs", "fuse.sshfs", "fuse.glusterfs"),
        *("fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.ceph", "orangefs", "panfs", "wekafs"),
        # Folders that a virtual machine or a container shares with its host: the same limits.
        *("virtiofs", "vboxsf", "prl_fs", "drvfs", "fakeowner"),
    }
)
VOLATILE = frozenset({"tmpfs", "ramfs"})
LEVELS = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}


def _level(subject: Subject) -> str:
    level = subject.get("synchronous")
    return LEVELS.get(level, level)


def _has_wal_bug(subject: Subject) -> bool:
    return _numbers(subject.get("sqlite")) < _numbers(WAL_FIXED)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# What SQLite reports of a file that could be opened.
SETTINGS_RULES = (
    Rule(
        "SQLite",
        fact("sqlite"),
        fine(
            _has_wal_bug,
            "The ledger's own lock around commits and checkpoints covers it, as long as only "
            "turnledger writes to the file. Open it read-only with other tools.",
            lambda s: f"{s.get('sqlite')}, with the WAL bug that {WAL_FIXED} fixes",
        ),
    ),
    Rule(
        "journal mode",
        fact("journal_mode"),
        fail(differs("journal_mode", "wal"), "Not in WAL mode: check that the disk is writable."),
        applies=differs("access", "read only"),
    ),
    Rule(
        "synchronous",
        _level,
        fail(
            lambda s: _level(s) not in ("FULL", "EXTRA"),
            "A power cut can lose acknowledged events: FULL is needed.",
        ),
    ),
    Rule(
        "file check",
        "each commit checks that the path names the file that was opened",
        warn(
            equals("file_check", "off"),
            "If the file is removed, replaced or cut while it is open, events are acknowledged "
            "and lost. Leave out check_file=off, unless the file system has no stable inodes.",
            "off (check_file=off)",
        ),
    ),
    Rule(
        "size of the WAL",
        lambda s: f"{(s.number('wal_bytes') or 0) / MIB:.0f} MiB",
        warn(above("wal_bytes", LARGE_WAL), "A long reader keeps the WAL from shrinking: end it."),
    ),
)

ACCESS_RULES = (
    Rule(
        "damage",
        "no damaged pages; `turnledger verify` checks the records",
        fine(
            lambda s: s.disk.pages is None,
            "Run turnledger verify, which reads all of it.",
            "not checked: the file is large, or does not exist",
        ),
        fail(
            lambda s: s.disk.pages != "ok",
            "Write nothing more to it. Copy it with the files beside it, then continue from a "
            "backup or an export.",
            lambda s: s.disk.pages or "",
        ),
    ),
    Rule(
        "access",
        "read and write",
        fail(
            lambda s: "ro" in s.disk.options,
            "Reading works, appending does not. Mount it with rw. If the kernel made it "
            "read-only, look for disk errors: dmesg.",
            lambda s: f"{s.disk.mount and s.disk.mount.point} is mounted read-only",
        ),
        fail(
            lambda s: s.disk.mode is not None and stat.S_ISDIR(s.disk.mode),
            "Give the file of a ledger, not a folder.",
            lambda s: f"{s.disk.path} is a folder",
        ),
        fail(
            lambda s: s.disk.closed and s.disk.writable,
            "Appends are refused. Change its owner or its permissions.",
            lambda s: f"{s.disk.closed} may not be written to by this user",
        ),
        fail(
            lambda s: s.get("access") == "read only" or not s.disk.writable,
            "Appends are refused. Change the owner or the permissions of the file, its folder "
            "and the files beside it.",
            lambda s: f"{s.disk.path} or its folder may not be written to by this user",
        ),
    ),
)


def _locks_mount(subject: Subject) -> Mount | None:
    locks = Path(subject.facts.get("locks", f"{subject.disk.path}-locks"))
    return mount_of(locks, subject.disk.mounts)


def _file_system(
    name: str, mount: Callable[[Subject], Mount | None], applies: Predicate | None = None
) -> Rule:
    """The check of the file system of the file, or of its locks."""

    def kind(subject: Subject) -> str:
        found = mount(subject)
        return found.kind if found is not None else ""

    def where(subject: Subject) -> str:
        found = mount(subject)
        return f"{found.kind} on {found.point}" if found is not None else "unknown"

    return Rule(
        name,
        where,
        warn(
            lambda s: mount(s) is None,
            "Make sure that it is a local disk: SQLite's locks do not work over a network.",
        ),
        fail(
            lambda s: kind(s) in NETWORK,
            "SQLite's WAL and locks do not work over a network. Move the file to a local disk, "
            "or use PostgreSQL.",
        ),
        warn(
            lambda s: kind(s) in VOLATILE,
            "It is in memory: everything is lost when the machine restarts.",
        ),
        warn(
            lambda s: kind(s) == "overlay",
            "It is a container's own layer, deleted with the container. Keep the file on a volume.",
        ),
        warn(
            lambda s: kind(s).startswith("fuse"),
            "Whether it keeps what it confirms, and locks, depends on the program behind it.",
        ),
        applies=applies,
    )


def _open_to_others(bit: int) -> Predicate:
    return lambda s: s.disk.open_to_all and (s.disk.mode or 0) & bit


def _mode(subject: Subject) -> str:
    inside = "" if subject.disk.open_to_all else ", in a folder that other users can't enter"
    return f"{stat.filemode(subject.disk.mode or 0)}{inside}"


FILE_RULES = (
    *ACCESS_RULES,
    _file_system("file system", lambda s: s.disk.mount),
    _file_system(
        "file system of the locks", _locks_mount, lambda s: _locks_mount(s) != s.disk.mount
    ),
    FLUSHING,
    FREE_SPACE,
    Rule(
        "privacy",
        _mode,
        warn(lambda s: s.disk.mode is None, "Check it with: ls -l.", "unknown"),
        fail(
            _open_to_others(stat.S_IWOTH),
            "Every user of this machine can change the ledger: chmod o-rwx.",
        ),
        warn(
            _open_to_others(stat.S_IROTH),
            "Every user of this machine can read the ledger, prompts and answers included: "
            "chmod o-rwx, for the files beside it too.",
        ),
        warn(
            lambda s: s.disk.exposed,
            "Others than the owner can read the ledger, prompts and answers included: chmod go-rwx "
            "for these files, unless that is meant (private=off).",
            lambda s: f"not for its owner only: {s.disk.exposed}",
        ),
    ),
)
