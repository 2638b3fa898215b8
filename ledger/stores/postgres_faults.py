"""What PostgreSQL's trouble means for the caller: which error it becomes, and what to do.

Goes by PostgreSQL's codes, never by its words.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

from ledger.errors import StoreBusyError, StoreUnavailableError
from ledger.stores.postgres_line import Line

# The server ended the session, or says that it is about to.
_LOST = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})


class LostConnectionError(StoreUnavailableError):
    """The connection broke, and what was under way is certainly not committed."""


class CrowdedError(StoreUnavailableError):
    """Rolled back, because of others; it may go through in a smaller group, or later."""


def is_lost(error: psycopg.Error, db: Line) -> bool:
    state = error.sqlstate or ""
    return db.closed or state in _LOST or state.startswith("08")


def unavailable(error: psycopg.Error, doing: str, db: Line | None = None) -> StoreUnavailableError:
    """A database error in the ledger's own words. Before COMMIT nothing was written."""
    text = " ".join(str(error).split())
    if db is not None and is_lost(error, db):
        return LostConnectionError(f"The connection to PostgreSQL was lost while {doing}: {text}")
    if isinstance(error, errors.LockNotAvailable):
        return StoreBusyError(
            f"Others held a lock for too long while {doing} ({text}); nothing was written. "
            "Try again, or open the ledger with a longer wait."
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailableError(
            f"This server takes no writes: it is a standby, or set to read only ({text}). "
            "Name all servers in the URL, and ask for the one that writes: "
            "postgresql://...?host=a,b&target_session_attrs=read-write"
        )
    if isinstance(error, errors.DeadlockDetected | errors.SerializationFailure):
        return CrowdedError(f"Other writers were in the way while {doing}; nothing was written.")
    return StoreUnavailableError(f"PostgreSQL failed while {doing}: {text}")
