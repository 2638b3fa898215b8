"""Projections: pure folds of a run's events into views, states and tables.

The public names are imported on first use and listed in `__init__.pyi`.
"""

if __name__ != "turnledger.projections":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.projections, not the bare name projections.")

from turnledger._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
