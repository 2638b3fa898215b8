"""Adapters to the outside: model providers, transcripts, pytest and the command line.

The provider adapters are here by name, imported on first use and listed in `__init__.pyi`: the
command line needs none of them.
"""

if __name__ != "turnledger.adapters":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.adapters, not the bare name adapters.")

from turnledger._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
