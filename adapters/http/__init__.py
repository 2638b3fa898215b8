"""The HTTP API of a ledger: the server's application, and clients with the surface of Ledger.

The public names are imported on first use and listed in `__init__.pyi`.
"""

from turnledger._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
