"""Access tokens: who may use a ledger over HTTP, in which role and until when.

They are rows beside the leases: not events, covered by no digest, in no export and no backup. A
token's text is `tl_ID_SECRET`: the id finds the row, and of the secret, 256 random bits, only the
SHA-256 is stored. No slow hash is needed, since nothing that random can be guessed.
"""

from __future__ import annotations

import hmac
import re
import secrets
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.clock import LAST_MOMENT, moment_text, to_datetime
from turnledger.ledger.errors import (
    IntegrityFailureError,
    InvalidInputError,
    InvalidTokenError,
    StoreUnavailableError,
    TokenExpiredError,
    TokenNotFoundError,
    TokenRevokedError,
    short_repr,
)
from turnledger.ledger.ledger import Ledger
from turnledger.ledger.runs.transaction import TokenRow, Transaction
from turnledger.ledger.stores.derived_data import is_storable

Role: TypeAlias = Literal["reader", "writer", "admin"]
# From the least rights to the most: each has those of the roles before it.
ROLES: Final[tuple[Role, ...]] = get_args(Role)
LONGEST_NAME: Final = 200
_ID_LENGTH: Final = 12
# The redactor knows this format too: ledger/redaction/tokens.py.
_TEXT = re.compile(r"tl_([0-9a-f]{12})_([0-9a-f]{64})")
_MICROSECOND = timedelta(microseconds=1)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An access token, without its secret; `expires_at` is None for one that does not expire."""

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewToken(msgspec.Struct, frozen=True):
    """A token that was just made. `text` is the secret: it is nowhere else, and not in the repr."""

    text: str
    token: Token

    def __repr__(self) -> str:
        return f"<NewToken {self.token.id}>"


@check_methods()
class Tokens:
    """The access tokens of a ledger: make, check, list and revoke them.

    Args:
        ledger: An open ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def new(
        self,
        role: Literal["reader", "writer", "admin"],
        *,
        name: str = "",
        expires_in: timedelta | None = None,
    ) -> NewToken:
        """Make a token. Its text is given here and never again.

        Args:
            role: What it allows: "reader", "writer" or "admin".
            name: A label for people, 200 characters at most.
            expires_in: How long it is valid; None is until it is revoked.
        """
        if len(name) > LONGEST_NAME or not is_storable(name):
            raise InvalidInputError(
                f"Invalid name {short_repr(name)}: expected at most {LONGEST_NAME} characters of "
                "text, without NUL."
            )
        now = self._ledger.clock.micros()
        expires_at = None if expires_in is None else now + expires_in // _MICROSECOND
        if expires_at is not None and not now < expires_at <= LAST_MOMENT:
            raise InvalidInputError(
                f"Invalid expires_in {expires_in}: expected more than nothing, and an end before "
                "the year 9000."
            )
        if not self._ledger.store.has_tokens:
            raise StoreUnavailableError(
                "This ledger has an older format, without access tokens, and could not be "
                "upgraded. Open it once where it can be written, as the owner of its tables."
            )
        token_id, secret = self._ledger.clock.new_id()[-_ID_LENGTH:], secrets.token_hex(32)
        label = self._ledger.redact_text(name)
        row = TokenRow(token_id, label, role, _hash(secret), now, expires_at, None)

        def work(tx: Transaction) -> None:
            # The same one is there if a commit without an answer is done again.
            if tx.token(token_id) not in (None, row):
                raise StoreUnavailableError(
                    f"There is an access token {token_id} already: the clock gave an id twice. "
                    "Nothing was written. Try again."
                )
            tx.put_token(row)

        self._ledger.store.write(work)
        return NewToken(f"tl_{token_id}_{secret}", _token(row))

    def check(self, text: str) -> Token:
        """The token with this text, which is valid now.

        Raises:
            InvalidTokenError: It is not a token of this ledger.
            TokenRevokedError: It was revoked.
            TokenExpiredError: Its time is up.
        """
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise InvalidTokenError
        row = self._ledger.store.token(parts[1])
        token = None if row is None else _token(row)
        # Of an unknown id, too: the time that it takes must not tell which ids exist.
        expected = b"" if row is None else row.secret_hash
        if not hmac.compare_digest(expected, _hash(parts[2])) or token is None or row is None:
            raise InvalidTokenError
        if row.revoked_at is not None:
            raise TokenRevokedError(token.id, revoked=moment_text(row.revoked_at))
        if row.expires_at is not None and row.expires_at <= self._ledger.clock.micros():
            raise TokenExpiredError(token.id, expired=moment_text(row.expires_at))
        return token

    def list(self) -> tuple[Token, ...]:
        """All tokens, also those that expired or were revoked, oldest first."""
        return tuple(map(_token, self._ledger.store.tokens()))

    def revoke(self, token_id: str) -> Token:
        """Make a token invalid from now on; no error if it was revoked before.

        Raises:
            TokenNotFoundError: There is no such token.
        """
        now = self._ledger.clock.micros()

        def work(tx: Transaction) -> TokenRow:
            row = tx.token(token_id)
            if row is None:
                raise TokenNotFoundError(token_id)
            if row.revoked_at is None:
                row = row._replace(revoked_at=now)
                tx.put_token(row)
            return row

        if not is_storable(token_id) or self._ledger.store.token(token_id) is None:
            raise TokenNotFoundError(token_id)
        return _token(self._ledger.store.write(work))


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def _token(row: TokenRow) -> Token:
    """A row as a token; IntegrityFailureError if the row was changed into something else."""
    try:
        checked = msgspec.convert(row, TokenRow)
        role = msgspec.convert(checked.role, Role)
    except msgspec.ValidationError as error:
        raise IntegrityFailureError(
            f"The row of access token {short_repr(row.token_id)} is damaged: {error}. Delete it "
            "from the table access_tokens."
        ) from error
    return Token(
        id=checked.token_id,
        name=checked.name,
        role=role,
        created_at=to_datetime(checked.created_at),
        expires_at=None if checked.expires_at is None else to_datetime(checked.expires_at),
        revoked_at=None if checked.revoked_at is None else to_datetime(checked.revoked_at),
    )
