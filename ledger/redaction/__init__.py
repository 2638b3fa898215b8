"""Redaction: secrets are found and replaced before an event is hashed and stored."""
