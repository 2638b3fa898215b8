"""Opens the store that a URL names. PostgreSQL is imported only when it is asked for."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from turnledger.ledger.errors import (
    InvalidInputError,
    InvalidUrlError,
    MissingDependencyError,
    NotALedgerError,
    StoreUnavailableError,
)
from turnledger.ledger.redaction.redactor import STANDARD
from turnledger.ledger.stores.base import Store
from turnledger.ledger.stores.memory import open_memory
from turnledger.ledger.stores.sqlite.errors import READ_ONLY, not_opened
from turnledger.ledger.stores.sqlite.store import SQLiteStore, file_size

# A SQLite file that is shorter has no header.
HEADER_BYTES = 512
# Seconds. SQLite and the system count a wait in numbers that overflow somewhere beyond.
LONGEST_WAIT = 24 * 60 * 60


def open_store(url: str | os.PathLike[str], *, wait: float, create: bool) -> Store:
    """The store that a path, `sqlite:///file`, `postgresql://...` or `memory://` names."""
    if not 0 <= wait <= LONGEST_WAIT:  # a NaN is neither
        raise InvalidInputError(
            f"Invalid wait {wait}: expected the seconds to wait for other writers, from 0 to "
            f"{LONGEST_WAIT} (a day)."
        )
    text = os.fspath(url)
    scheme = _scheme(text)
    if scheme == "memory":
        return open_memory(text.removeprefix("memory://"))
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(text, wait=wait, create=create)
    if scheme == "sqlite":
        text = text.removeprefix("sqlite://").removeprefix("/")
    elif scheme:
        raise InvalidUrlError(
            f"Unknown kind of ledger {STANDARD.text(str(url))}. Expected a path, sqlite:///FILE, "
            "postgresql://... or memory://."
        )
    if not text:
        raise InvalidUrlError(f"No file in {url!s}: expected a path or sqlite:///FILE.")
    return _open_sqlite(Path(text), wait=wait, create=create)


def _scheme(text: str) -> str:
    try:
        return urlsplit(text).scheme if "://" in text else ""
    except ValueError:  # whose own text may name the password
        raise InvalidUrlError(
            f"Invalid address {STANDARD.text(text)}: check its host and port."
        ) from None


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


def _open_sqlite(given: Path, *, wait: float, create: bool) -> Store:
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


def _open_postgres(url: str, *, wait: float, create: bool) -> Store:
    try:
        from turnledger.ledger.stores.postgres.store import open_postgres
    except ImportError as error:
        raise MissingDependencyError("A ledger in PostgreSQL", "postgres") from error
    return open_postgres(url, wait=wait, create=create)
