"""The formats of secrets that are known, by name: tokens, and what is known by what is around it.

How text is searched for them is `ledger.redacting`.
"""

from __future__ import annotations

from turnledger.ledger.secret_spelling import SecretFormat
from turnledger.ledger.secret_tokens import TOKENS
from turnledger.ledger.secret_values import OPTIONAL, VALUES

KNOWN: tuple[SecretFormat, ...] = (*TOKENS, *VALUES)

BY_NAME: dict[str, tuple[SecretFormat, ...]] = {
    one.name: tuple(other for other in (*KNOWN, *OPTIONAL) if other.name == one.name)
    for one in (*KNOWN, *OPTIONAL)
}
