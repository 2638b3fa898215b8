"""The formats of secrets that are known, by name: tokens, and what is known by what is around it.

How text is searched for them is `ledger.redaction.redactor`.
"""

from __future__ import annotations

from turnledger.ledger.redaction.contextual import OPTIONAL, VALUES
from turnledger.ledger.redaction.patterns import SecretFormat
from turnledger.ledger.redaction.tokens import TOKENS

KNOWN: tuple[SecretFormat, ...] = (*TOKENS, *VALUES)

BY_NAME: dict[str, tuple[SecretFormat, ...]] = {
    one.name: tuple(other for other in (*KNOWN, *OPTIONAL) if other.name == one.name)
    for one in (*KNOWN, *OPTIONAL)
}
