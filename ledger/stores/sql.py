"""What a store notes about itself, read with care: a foreign hand may have been there."""

from __future__ import annotations

from typing import Any

from turnledger.ledger.errors import IntegrityFailureError


def catalogue_number(value: Any) -> int:
    """The event catalogue that the table `meta` names."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    raise IntegrityFailureError(
        f"The ledger should say which event catalogue wrote it, and says {value!r:.80}: the table "
        "meta was changed or is damaged. Go on from an export or a backup."
    )
