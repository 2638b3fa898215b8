"""SQLite's errors as the ledger's: by result code, with what to do.

Never by SQLite's words, which may quote a path. An error says that nothing was written only if
it came before COMMIT.
"""

from __future__ import annotations

import errno
import sqlite3

from turnledger.ledger.errors import StoreBusyError, StoreUnavailableError

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_ADVICE = {
    sqlite3.SQLITE_FULL: "The disk is full: make room.",
    sqlite3.SQLITE_IOERR: (
        "The disk reported an error: it may be full, over a quota, at a limit for the size of "
        "files, read-only, or failing (the system's log tells)."
    ),
    sqlite3.SQLITE_READONLY: (
        "The ledger can only be read here: its file, its folder or its file system is "
        "read-only for this user. Make it writable, and open it again."
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "The ledger's files can't be opened: look whether the folder is there and writable, "
        "and whether the disk is full (SQLite needs about 100 KB beside the ledger, even to read)."
    ),
    sqlite3.SQLITE_PERM: "Look at the permissions of the ledger's files and their folder.",
    sqlite3.SQLITE_CORRUPT: (
        "The file is damaged: stop writing to it, copy it with all files beside it, see what "
        "`turnledger verify --all` says, and go on from an export or a backup."
    ),
}
_ADVICE[sqlite3.SQLITE_NOTADB] = _ADVICE[sqlite3.SQLITE_CORRUPT]
RETRY = "Then do the same again: the same events, with the same ids."
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def code_of(error: BaseException | None) -> int:
    """SQLite's primary result code, of the error or of its cause; 0 for any other error."""
    while error is not None:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None:
            return code & 0xFF
        error = error.__cause__
    return 0


def is_busy(error: BaseException) -> bool:
    """Whether another connection held a lock."""
    return code_of(error) in _BUSY


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that the file is damaged, or not a database."""
    return code_of(error) in _DAMAGED


def unavailable(error: Exception, doing: str) -> StoreUnavailableError:
    """For reading and opening: what failed, and what to do."""
    code = code_of(error)
    if code in _BUSY:
        return StoreBusyError(f"SQLite was busy while {doing} ({error}); nothing was written.")
    return StoreUnavailableError(f"SQLite failed while {doing}: {_told(error)}")


def unwritten(error: Exception, doing: str) -> StoreUnavailableError:
    """For what failed in a transaction before its commit."""
    if code_of(error) in _BUSY:
        return unavailable(error, doing)
    return StoreUnavailableError(
        f"SQLite failed while {doing}: {_told(error)} Nothing was written. {RETRY}"
    )


def unknown(error: Exception) -> StoreUnavailableError:
    """For a commit that failed: all of it may be on disk, or nothing."""
    return StoreUnavailableError(
        f"SQLite failed while committing, so the outcome is unknown: {_told(error)} {RETRY}"
    )


def _told(error: Exception) -> str:
    advice = _ADVICE.get(code_of(error), "")
    return f"{error}. {advice}".rstrip()


def not_opened(what: object, error: OSError) -> StoreUnavailableError:
    """For the ledger's file, or one beside it, that the system does not open."""
    advice = ""
    if error.errno in _NO_ROOM:
        advice = " Make room on the disk, and try again."
    elif error.errno in READ_ONLY:
        advice = " It has to be writable for this user, and so does its file system."
    return StoreUnavailableError(f"{what} can't be opened: {error}.{advice}")
