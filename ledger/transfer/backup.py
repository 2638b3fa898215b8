"""Backup: a consistent copy of a whole ledger, as a SQLite ledger in one file.

Writers are not blocked. The file appears under its name when it is complete, verified and flushed
to disk, or not at all. Leases and access tokens are not copied: no worker has a claim in the copy,
and no token opens it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, TypeAlias

import msgspec

from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.errors import IntegrityFailureError, InvalidInputError, StoreUnavailableError
from turnledger.ledger.events.limits import BATCH_CEILING, Limits
from turnledger.ledger.ledger import Ledger
from turnledger.ledger.stores.base import Store
from turnledger.ledger.stores.memory import MemoryStore, MemoryTables
from turnledger.ledger.stores.sqlite.store import SQLiteStore
from turnledger.ledger.transfer.export import export_runs
from turnledger.ledger.transfer.import_ import import_runs

# Called with the current step, how much of it is done, and of how much if that is known.
Progress: TypeAlias = Callable[[str, int, int | None], None]

# How many pages are copied between calls of `progress`: some 8 MB.
PAGES_AT_ONCE = 2048
# A copy accepts all that the ledger holds: it may have been recorded with higher limits.
_VAST = 1 << 40
_TAKES_ALL = Limits(
    max_event_bytes=_VAST,
    max_batch_events=BATCH_CEILING,
    max_batch_bytes=_VAST,
    max_json_depth=200,
    max_blob_bytes=_VAST,
)
# How many problems an error lists.
NAMED = 5
# The files that a backup creates in its folder; nothing else in there is ever removed.
_LOCKS = "ledger.db-locks"
_FILES = (
    *("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal", "ledger.jsonl"),
    *(f"{_LOCKS}/gate", f"{_LOCKS}/write", f"{_LOCKS}/made", f"{_LOCKS}/alive-*"),
)


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a backup; `position` is the highest in the copy."""

    path: str
    runs: int
    records: int
    blobs: int
    bytes: int
    position: int
    verified: bool


@check_arguments
def back_up(
    ledger: Ledger,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> BackupReport:
    """Copy the whole ledger, as it is now, into a new SQLite ledger.

    The copy has everything that was acknowledged before the call, and only whole commits.

    Args:
        ledger: The ledger to copy, of any store.
        path: The new file.
        overwrite: Replace an existing file, but never one that is in use as a ledger.
        verify: Verify the copy before it gets its name.
        progress: Called with the step, how much of it is done, and the total if known.

    Raises:
        InvalidInputError: The path can't be used, or the ledger is behind a server.
        IntegrityFailureError: The ledger is damaged.
        StoreUnavailableError: The ledger can't be read, or the copy not be written.
    """
    notify = progress or (lambda doing, done, total: None)
    if ledger.url.startswith(("http://", "https://")):
        raise InvalidInputError(
            f"A backup needs the ledger's own store, and {ledger.url} is a server. Make it beside "
            "the server, with the path or the URL of the store; export_runs works from here."
        )
    with _our_errors(path):
        target = _named(path)
        _check_target(target, ledger, overwrite)
        with _workplace(target) as folder:
            copy = folder / "ledger.db"
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _mode(ledger)))
            _copy(ledger, copy, notify)
            counts = _tidied(copy)
            if verify:
                _verify(copy, counts["records"], notify)
            size = _finished(copy)
            _check_target(target, ledger, overwrite)
            _publish(copy, target, overwrite)
    return BackupReport(path=str(target), bytes=size, verified=verify, **counts)


@contextmanager
def _our_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailableError(f"The backup {path} failed: {error}.") from error
    except OSError as error:
        raise StoreUnavailableError(f"The backup {path} can't be written: {error}.") from error


# --- the target file ---------------------------------------------------------------------


def _named(path: str | os.PathLike[str]) -> Path:
    """The absolute path: the working directory may change meanwhile."""
    try:
        target = Path(path).absolute()
        target.resolve()
    except (ValueError, RuntimeError) as error:  # a NUL; before Python 3.13, links in a circle
        raise InvalidInputError(
            f"Invalid backup path {os.fspath(path)!r}: {error}. Name another file."
        ) from error
    return target


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _check_target(target: Path, ledger: Ledger, overwrite: bool) -> None:
    if isinstance(ledger.store, SQLiteStore):
        _check_apart(target, _file(ledger.store))
    if target.is_dir():
        raise InvalidInputError(f"{target} is a folder. Name a file.")
    if target.exists() and not target.is_file():
        raise InvalidInputError(f"{target} is a device or a pipe. Name a file.")
    if os.path.lexists(target) and not overwrite:  # a dangling link exists, too
        raise InvalidInputError(
            f"{target} exists and was not changed. Name another file, or replace it (--force; in "
            "Python, overwrite=True)."
        )
    for end in ("-wal", "-journal"):
        # SQLite would apply such a file to the new database.
        if any(os.path.lexists(f"{name}{end}") for name in (target, target.resolve())):
            raise InvalidInputError(
                f"{target}{end} exists: {target.name} is in use as a ledger, or its last user was "
                "killed. Nothing was changed. Name another file."
            )


def _check_apart(target: Path, file: Path) -> None:
    """Refuse a target that would replace a file of the ledger, or whose folder would."""
    place, locks = target.resolve(), Path(f"{file}-locks")
    if place == file:
        raise InvalidInputError(f"{target} is the ledger itself. Name another file.")
    beside = [Path(f"{file}{end}") for end in ("-wal", "-shm", "-journal")]
    if place in beside or locks in (place, *place.parents):
        raise InvalidInputError(f"{target} belongs to the ledger itself. Name another file.")
    if _part(target).resolve() == file.parent:
        raise InvalidInputError(
            f"{_part(target)}, where the copy would be made, holds the ledger itself. Name "
            "another file."
        )


@contextmanager
def _workplace(target: Path) -> Iterator[Path]:
    """The folder FILE.part, for one backup at a time; files of a killed one are removed."""
    folder = _part(target)
    handle = _opened(folder)
    try:
        try:
            # The kernel releases the lock even if this process is killed.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(handle), folder.lstat())
        except (BlockingIOError, FileNotFoundError):
            same = False
        if not same:
            raise InvalidInputError(f"Another backup to {target} is under way.")
        ours, others = _found_in(folder)
        if others:
            raise InvalidInputError(
                f"{others[0]} is not of a backup and was not changed. Move {folder.name} away, or "
                "name another file."
            )
        _remove(ours)
        try:
            yield folder
        finally:
            with suppress(OSError):
                _remove(_found_in(folder)[0])
                folder.rmdir()
    finally:
        os.close(handle)


def _opened(folder: Path) -> int:
    try:
        folder.mkdir(0o700, exist_ok=True)
        # A link may lead to a folder of another program, whose files must stay.
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if folder.is_symlink():
            raise InvalidInputError(
                f"{folder} is a link, and the copy would be made there. Move it away, or name "
                "another file."
            ) from None
        raise


def _found_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of backups, children before their folder; and all others."""
    ours: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*"), reverse=True):
        mode, name = path.lstat().st_mode, path.relative_to(folder).as_posix()
        if S_ISDIR(mode):
            known = name == _LOCKS
        else:
            known = S_ISREG(mode) and any(fnmatchcase(name, made) for made in _FILES)
        (ours if known else others).append(path)
    return ours, others


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


def _publish(copy: Path, target: Path, overwrite: bool) -> None:
    """Give the copy its name, atomically, and flush the folder."""
    if overwrite:
        copy.replace(target)
    else:
        try:
            os.link(copy, target)  # unlike a rename, it never replaces a new file
        except FileExistsError:
            raise InvalidInputError(f"{target} was created meanwhile.") from None
        except OSError:  # not every file system has links
            copy.rename(target)
    handle = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- the copy ----------------------------------------------------------------------------


def _mode(ledger: Ledger) -> int:
    """The permissions of a copy: those of the ledger's file; of another store, its owner's."""
    store = ledger.store
    return _file(store).stat().st_mode & 0o666 | 0o600 if isinstance(store, SQLiteStore) else 0o600


def _copy(ledger: Ledger, copy: Path, notify: Progress) -> None:
    store = ledger.store
    if isinstance(store, SQLiteStore):
        _copy_pages(store, copy, notify)
        return
    with closing(snapshot_of(store)) as snapshot:
        frozen = Ledger(snapshot, codec=ledger.codec, clock=SystemClock())
        _copy_runs(frozen, copy, notify)


def _file(store: SQLiteStore) -> Path:
    return Path(store.diagnostics()["file"]).resolve()


def _copy_pages(store: SQLiteStore, copy: Path, notify: Progress) -> None:
    """Copy by SQLite's online backup, within one read transaction.

    Writers append to the WAL meanwhile. It can't be reset while this transaction reads, so it
    grows by what is written, and no more. A read-only connection never checkpoints.
    """
    with _pages_of(store) as here, closing(sqlite3.connect(copy)) as there:
        here.isolation_level = None
        here.execute("BEGIN")
        here.execute("SELECT count(*) FROM meta").fetchone()  # the snapshot is taken here
        there.execute("PRAGMA synchronous=OFF")  # flushed once, at the end
        here.backup(
            there,
            pages=PAGES_AT_ONCE,
            progress=lambda _, left, total: notify("copying pages", total - left, total),
        )


def _pages_of(store: SQLiteStore) -> AbstractContextManager[sqlite3.Connection]:
    if store.pool.read_only:
        return store.pool.read_only_connection()
    return closing(store.pool.connect_bare("mode=ro"))


def snapshot_of(store: Store) -> Store:
    """A read-only snapshot of a memory or PostgreSQL store; close it after use."""
    if isinstance(store, MemoryStore):
        return MemoryStore(_tables_of(store.tables))
    if store.is_served:
        raise InvalidInputError(
            "A backup needs the ledger's own store, and this one is a server's. Do it beside the "
            "server, with the path or the URL of the store."
        )
    from turnledger.ledger.stores.postgres.snapshot import PostgresSnapshot
    from turnledger.ledger.stores.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    return PostgresSnapshot(store)


def _tables_of(tables: MemoryTables) -> MemoryTables:
    """A copy of the tables, under their lock."""
    copied = MemoryTables()
    with tables.lock:
        copied.rows = list(tables.rows)
        copied.by_run = {run: list(places) for run, places in tables.by_run.items()}
        copied.runs = dict(tables.runs)
        copied.blobs = dict(tables.blobs)
    return copied


def _copy_runs(source: Ledger, copy: Path, notify: Progress) -> None:
    """Copy by an export, which checks every record, and an import; positions are new."""
    with copy.with_suffix(".jsonl").open("w+b") as file:
        export_runs(source, file, progress=lambda done: notify("copying records", done, None))
        size = file.tell()
        # No redactor: the copy must be exact, and the ledger has redacted what it records.
        with Ledger.open(copy, limits=_TAKES_ALL, redactor=None) as target:
            import_runs(target, file, progress=lambda done: notify("writing bytes", done, 2 * size))


def _tidied(copy: Path) -> dict[str, Any]:
    """Delete the leases and access tokens, and count what is in the copy."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA secure_delete=ON")  # overwrite them in free pages, too
        db.execute("DELETE FROM leases")
        # A ledger of an older format that could only be read has no such table.
        if db.execute("SELECT 1 FROM sqlite_master WHERE name='access_tokens'").fetchone():
            db.execute("DELETE FROM access_tokens")

        def number(what: str) -> int:
            found: int | None = db.execute(f"SELECT {what}").fetchone()[0]
            return found or 0

        return {
            "runs": number("count(*) FROM runs"),
            "records": number("count(*) FROM events"),
            "blobs": number("count(*) FROM blobs"),
            "position": number("max(position) FROM events"),
        }


def _verify(copy: Path, records: int, notify: Progress) -> None:
    with Ledger.open(copy, limits=_TAKES_ALL) as ledger:
        report = ledger.verify_all(lambda done: notify("verifying records", done, records))
    if report.ok:
        return
    named = "\n".join(f"  {p if p.run_id else p.what}" for p in report.problems[:NAMED])
    raise IntegrityFailureError(
        f"The ledger is damaged, so no backup was made:\n{named}\nRun `turnledger verify` for all "
        "problems. To copy the ledger as it is: --no-verify (in Python, verify=False)."
    )


def _finished(copy: Path) -> int:
    """Make the copy a single file without a WAL, flush it, and return its size."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
    handle = os.open(copy, os.O_RDWR)
    try:
        os.fsync(handle)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)
