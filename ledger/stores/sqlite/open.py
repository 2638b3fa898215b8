"""Opens a ledger in a SQLite file, or creates one; refuses what is not a ledger's file."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from turnledger.ledger.errors import InvalidUrlError, NotALedgerError, StoreUnavailableError
from turnledger.ledger.stores.sqlite.errors import READ_ONLY, not_opened
from turnledger.ledger.stores.sqlite.store import MADE, SQLiteStore, file_size

# A SQLite file that is shorter has no header.
HEADER_BYTES = 512


def open_sqlite(
    given: Path, *, wait: float, create: bool, check_file: bool = True, private: bool = True
) -> SQLiteStore:
    """Open the ledger in a file; a path that does not exist is created if `create`.

    Args:
        given: The file, or a link to it.
        wait: Seconds to wait for other writers.
        create: Make the ledger if there is no file.
        check_file: Check after each commit that the path still names the file that was opened.
        private: Make a new file readable by its owner only, whatever the umask allows. The files
            beside it have the permissions of the file.
    """
    path = _resolved(given)
    locks = Path(f"{path}-locks")
    exists = made_locks = False
    try:
        # In this order: another process that is making it makes the file first, then the WAL.
        has_wal = file_size(Path(f"{path}-wal")) > 0
        exists, stamp = path.exists(), _stamp(path)
        if exists:
            _refuse_other_files(path, create=create)
        elif has_wal:
            raise StoreUnavailableError(
                f"{path} was removed: {path}-wal is still there, with commits of a ledger. Put the "
                "file back; for a new ledger, move the WAL away first."
            )
        elif not create:
            raise StoreUnavailableError(
                f"There is no ledger at {path}. Name one with --db or TURNLEDGER_DB; `turnledger "
                "run` and `turnledger append` make a new one."
            )
        elif not path.parent.is_dir():
            raise StoreUnavailableError(
                f"{path} can't be opened: there is no folder {path.parent}. Make it, or choose "
                "another place."
            )
        made_locks = not locks.exists()
        mode = path.stat().st_mode & 0o666 if exists else 0o600 if private else 0o666
        locks.mkdir(mode | (mode & 0o444) >> 2, exist_ok=True)  # who reads may enter
        if not exists:
            # A killed process may leave an empty file, which is then still to become a ledger.
            (locks / MADE).unlink(missing_ok=True)
            # Not if it is there by now: closing it again would drop SQLite's locks on it.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        return SQLiteStore.open(path, wait=wait, check_file=check_file)
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
    # In this order: another process that is making it writes the file first, then the WAL and
    # the mark.
    was_made = file_size(Path(f"{path}-wal")) > 0 or Path(f"{path}-locks", MADE).exists()
    size = file_size(path)
    if size >= HEADER_BYTES:
        return
    if size > 0 or was_made:
        raise NotALedgerError(
            f"{path} is not a usable database: {size} bytes are too few. If it was a ledger, it "
            "was cut off. It is left as it was; go on from a backup or an export. Only if a new "
            "ledger shall be made there, delete the file."
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
