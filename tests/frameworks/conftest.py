"""The fixture over all stores, for stores and services that frameworks bring contracts for."""

from tests.conformance.store.conftest import ledger, store

__all__ = ["ledger", "store"]
