"""The frameworks' packages, which are extras: a clear error where one is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnledger.ledger import MissingDependencyError


@contextmanager
def framework(package: str, *, extra: str, integration: str) -> Iterator[None]:
    """Import a framework inside this; MissingDependencyError says what to install.

    Args:
        package: The framework's import name.
        extra: The extra of `turnledger` that brings it.
        integration: The module of `turnledger` that needs it.
    """
    try:
        yield
    except ImportError as error:
        # Another module of that name lacks what the framework's has.
        missing = error.name or ""
        if missing != package and not package.startswith(f"{missing}."):
            raise  # the framework is there, and what it needs is not
        raise MissingDependencyError(integration, extra) from error
