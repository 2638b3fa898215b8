"""What PostgreSQL's trouble means for the caller: which error it becomes, and what to do.

Goes by PostgreSQL's codes, never by its words. That nothing was written is said only of
what failed before a commit.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from turnledger.ledger.errors import StoreBusyError, StoreUnavailableError

# The server ended the session, or says that it is about to.
_LOST = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
AGAIN = "Append the same events again, with the same ids."
RIGHTS = (
    'Have the owner of its tables grant what "What is in the schema" of '
    "docs/how-to/run-on-postgresql.md lists, or use another role."
)


class LostConnectionError(StoreUnavailableError):
    """The connection broke, and what was under way is certainly not committed."""


class RolledBackError(StoreUnavailableError):
    """The server refused something of a transaction, and all of it was rolled back."""


class CrowdedError(RolledBackError):
    """Rolled back, because of others; it may go through in a smaller group, or later."""


class ReadOnlyServerError(StoreUnavailableError):
    """The server takes no writes: it is a standby, or became one."""


def told(error: psycopg.Error) -> str:
    return " ".join(str(error).split())


def is_lost(error: psycopg.Error, db: psycopg.Connection[Any]) -> bool:
    state = error.sqlstate or ""
    return db.closed or state in _LOST or state.startswith("08")


def unavailable(
    error: psycopg.Error,
    doing: str,
    db: psycopg.Connection[Any] | None = None,
    *,
    writing: bool = False,
) -> StoreUnavailableError:
    """A database error in the ledger's own words; `writing` means before COMMIT."""
    text, nothing = told(error), "; nothing was written" if writing else ""
    if db is not None and is_lost(error, db):
        return LostConnectionError(
            f"The connection to PostgreSQL was lost while {doing}: {text}{nothing}."
        )
    if isinstance(error, errors.LockNotAvailable):
        return StoreBusyError(
            f"Others held a lock for too long while {doing} ({text}){nothing}. "
            "Try again, or open the ledger with a longer wait."
        )
    if isinstance(error, errors.QueryCanceled):
        return StoreBusyError(
            f"PostgreSQL took too long while {doing}, or somebody stopped it ({text}){nothing}. "
            "Try again, or open the ledger with a longer wait."
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ReadOnlyServerError(
            f"This server takes no writes: it is a standby, or set to read only ({text}). "
            "Name all servers in the URL, and ask for the one that writes: "
            "postgresql://...?host=a,b&target_session_attrs=read-write"
        )
    if isinstance(error, errors.DeadlockDetected | errors.SerializationFailure):
        return CrowdedError(f"Others were in the way while {doing} ({text}){nothing}. Try again.")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreUnavailableError(f"This role may not do that while {doing}: {text}. {RIGHTS}")
    if writing:
        return RolledBackError(
            f"PostgreSQL failed while {doing}: {text}{nothing}. Once that is mended: {AGAIN}"
        )
    return StoreUnavailableError(f"PostgreSQL failed while {doing}: {text}")
