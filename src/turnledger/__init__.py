"""Turnledger: an append-only, event-sourced ledger for LLM agent runs.

The names that a first program needs are here and are imported on first use. The rest is in
`turnledger.ledger`, `turnledger.projections`, `turnledger.runtime` and `turnledger.adapters`.
"""

from turnledger._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
