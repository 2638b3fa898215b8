"""Durable steps: named calls of any program, recorded as the calls of tools and models are."""

from turnledger._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
