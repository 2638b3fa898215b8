"""From a URL to a store. PostgreSQL is imported only when it is asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from ledger.errors import (
    InvalidUrlError,
    MissingDependencyError,
    NotALedgerError,
    StoreUnavailableError,
)
from ledger.recorder import LedgerRecorder
from ledger.stores.memory import MemoryLedgerFactory
from ledger.stores.sqlite import SQLiteLedgerFactory


def open_store(url: str | os.PathLike[str], *, wait: float, create: bool) -> LedgerRecorder:
    """The store that a path, `sqlite:///file`, `postgresql://...` or `memory://` names."""
    text = os.fspath(url)
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme == "memory":
        return MemoryLedgerFactory(
            {MemoryLedgerFactory.LEDGER_NAME: text.removeprefix("memory://")}
        ).application_recorder()
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(text, wait=wait, create=create)
    if scheme == "sqlite":
        text = text.removeprefix("sqlite://").removeprefix("/")
    elif scheme:
        raise InvalidUrlError(
            f"{url!s}: a ledger is a path, sqlite:///FILE, postgresql://... or memory://."
        )
    if not text:
        raise InvalidUrlError(f"{url!s} names no file.")
    return _open_sqlite(Path(text), wait=wait, create=create)


def _open_sqlite(given: Path, *, wait: float, create: bool) -> LedgerRecorder:
    # One file, one name: its locks lie beside it, whatever link or folder it was named by.
    path = given.resolve()
    if not path.exists() and not create:
        raise StoreUnavailableError(f"There is no ledger at {path}.")
    locks = Path(f"{path}-locks")
    was_there = locks.exists()
    try:
        locks.mkdir(exist_ok=True)
        path.touch()
    except OSError as error:
        raise StoreUnavailableError(f"The ledger {path} can't be opened: {error}") from error
    factory = SQLiteLedgerFactory(
        {
            SQLiteLedgerFactory.SQLITE_DBNAME: str(path),
            SQLiteLedgerFactory.LEDGER_WAIT: str(wait),
        }
    )
    try:
        return factory.application_recorder()
    except NotALedgerError:
        if not was_there:
            shutil.rmtree(locks, ignore_errors=True)
        raise


def _open_postgres(url: str, *, wait: float, create: bool) -> LedgerRecorder:
    try:
        from ledger.stores.postgres import open_postgres
    except ImportError as error:
        raise MissingDependencyError("A ledger in PostgreSQL", "postgres") from error
    return open_postgres(url, wait=wait, create=create)
