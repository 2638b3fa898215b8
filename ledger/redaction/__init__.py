"""Redaction: secrets are found and replaced before an event is hashed and stored."""

from turnledger.ledger.redaction.redactor import STANDARD, Redactor
from turnledger.ledger.redaction.rules import SecretPattern

__all__ = ["Redactor", "STANDARD", "SecretPattern"]
