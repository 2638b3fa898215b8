"""The ledger: events, records, stores, and the API to append and read.

The public names are imported on first use and listed in `__init__.pyi`.
"""

if __name__ != "turnledger.ledger":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.ledger, not the bare name ledger.")

from turnledger._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
