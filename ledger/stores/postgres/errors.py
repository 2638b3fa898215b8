"""PostgreSQL's errors as the ledger's: by SQLSTATE, with what to do.

Never by the server's words, which come in its own language. An error says that nothing was
written only if it came before the commit.
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
    """The connection broke; the transaction was certainly not committed."""


class RolledBackError(StoreUnavailableError):
    """The server refused a statement, and the whole transaction was rolled back."""


class CrowdedError(RolledBackError):
    """Rolled back because of other writers; may succeed in a smaller group, or later."""


class ReadOnlyServerError(StoreUnavailableError):
    """The server takes no writes: it is a standby, or became one."""


def told(error: psycopg.Error) -> str:
    """The server's message in one line."""
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
    """The ledger's error for one of PostgreSQL's.

    Args:
        error: What psycopg raised.
        doing: What was under way, for the message.
        db: The connection; without it, a lost connection is not told apart.
        writing: Before a commit, so that nothing was written.
    """
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
            f"PostgreSQL took too long while {doing}, or it was cancelled ({text}){nothing}. "
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
            f"PostgreSQL failed while {doing}: {text}{nothing}. Once that is fixed: {AGAIN}"
        )
    return StoreUnavailableError(f"PostgreSQL failed while {doing}: {text}")
