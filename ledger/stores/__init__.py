"""The stores: memory, SQLite, PostgreSQL. `open_store` picks one by its URL."""

from turnledger.ledger.stores.open import open_store

__all__ = ["open_store"]
