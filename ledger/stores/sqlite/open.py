"""Opens a ledger in a SQLite file, or creates one; refuses what is not a ledger's file."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from turnledger.ledger.errors import InvalidUrlError, NotALedgerError, StoreUnavailableError
from turnledger.ledger.stores.sqlite.errors import READ_ONLY, not_opened
from turnledger.ledger.stores.sqlite.store import SQLiteStore, file_size

# A SQLite file that is shorter has no header.
HEADER_BYTES = 512


def open_sqlite(given: Path, *, wait: float, create: bool) -> SQLiteStore:
    """Open the ledger in a file; a path that does not exist is created if `create`."""
    path = _resolved(given)
    locks = Path(f"{path}-locks")
    exists = made_locks = False
    try:
        exists, stamp = path.exists(), _stamp(path)
        if not exists and not create:
            raise StoreUnavailableError(f"There is no ledger at {path}.")
        if exists:
            _refuse_other_files(path, create=create)
        made_locks = not locks.exists()
        locks.mkdir(exist_ok=True)
        if not exists:
            path.touch()
        return SQLiteStore.open(path, wait=wait)
    except NotALedgerError:
        # If the file was replaced meanwhile, it may be a ledger now whose users need the locks.
        if made_locks and _stamp(path) == stamp:
            _remove(locks)
        raise
    except OSError as error:
        if exists and error.errno in READ_ONLY and os.access(path, os.R_OK):
            return SQLiteStore.open(path, wait=wait, read_only=True)
        raise not_opened(f"The ledger {path}", error) from error


def _resolved(given: Path) -> Path:
    """The file's one name: its locks are beside it, by whatever link it was named."""
    try:
        path = given.resolve()
    except ValueError as error:
        raise InvalidUrlError(f"Invalid file name {str(given)!r}: {error}.") from error
    except RuntimeError as error:  # before Python 3.13: links in a circle
        raise StoreUnavailableError(f"The ledger {given} can't be opened: {error}.") from error
    except OSError as error:
        raise not_opened(f"The ledger {given}", error) from error
    if os.path.islink(path):  # from Python 3.13 on: links in a circle
        raise StoreUnavailableError(f"The ledger {given} can't be opened: it links to itself.")
    return path


def _refuse_other_files(path: Path, *, create: bool) -> None:
    """Refuse what is not a file, and a file that was cut off.

    SQLite would take a file without a header for a new one, and throw its WAL away.
    """
    if not path.is_file():
        raise NotALedgerError(f"{path} is a folder, a device or a pipe: expected a file.")
    # In this order: another process that is making it writes the file first, then the WAL.
    has_wal = file_size(Path(f"{path}-wal")) > 0
    size = file_size(path)
    if size >= HEADER_BYTES:
        return
    if size > 0 or has_wal:
        raise NotALedgerError(
            f"{path} is not a usable database: {size} bytes are too few. If it was a ledger, it "
            "was cut off. It is left as it was; go on from a backup or an export."
        )
    if not create:
        raise StoreUnavailableError(f"There is no ledger at {path}: the file is empty.")


def _stamp(path: Path) -> tuple[int, ...]:
    """A value that changes when the file is replaced or written to."""
    try:
        now = path.stat()
    except OSError:
        return ()
    return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)


def _remove(locks: Path) -> None:
    """Remove a folder of locks that holds only what opening makes, no liveness file."""
    with suppress(OSError):
        if {file.name for file in locks.iterdir()} <= {"gate", "write"}:
            shutil.rmtree(locks)
