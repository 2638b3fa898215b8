"""Opens the store that a URL names. Each kind of store is imported only when it is asked for."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from turnledger.ledger.errors import InvalidInputError, InvalidUrlError, MissingDependencyError
from turnledger.ledger.redaction import STANDARD
from turnledger.ledger.stores.base import Store

# Seconds. SQLite and the system count a wait in numbers that overflow somewhere beyond.
LONGEST_WAIT = 24 * 60 * 60
# What connects to a server by HTTP. Named and not imported: it is in a package above this one.
CLIENT = ("turnledger.adapters.http.client.ledger_client", "LedgerClient")
# Parameters of `sqlite:///FILE?...`, see `open_sqlite`.
FILE_SETTINGS = ("check_file", "private")


def open_store(url: str | os.PathLike[str], *, wait: float, create: bool) -> Store:
    """The store that a path, `sqlite:///file`, `postgresql://...` or `memory://` names."""
    if not 0 <= wait <= LONGEST_WAIT:  # a NaN is neither
        raise InvalidInputError(
            f"Invalid wait {wait}: expected the seconds to wait for other writers, from 0 to "
            f"{LONGEST_WAIT} (a day)."
        )
    text = os.fspath(url)
    scheme = _scheme(text)
    if scheme == "memory":
        from turnledger.ledger.stores.memory import open_memory

        return open_memory(text.removeprefix("memory://"))
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(text, wait=wait, create=create)
    if scheme and scheme != "sqlite":
        raise InvalidUrlError(
            f"Unknown kind of ledger {STANDARD.text(str(url))}. Expected a path, sqlite:///FILE, "
            "postgresql://..., https://... or memory://."
        )
    path, query = split_sqlite(text)
    if not path:
        raise InvalidUrlError(f"No file in {url!s}: expected a path or sqlite:///FILE.")
    from pathlib import Path

    from turnledger.ledger.stores.sqlite.open import open_sqlite

    return open_sqlite(Path(path), wait=wait, create=create, **_settings(query))


def served_ledger(url: str | os.PathLike[str]) -> Any:
    """The class that connects to a ledger behind `http://` or `https://`; None for other URLs."""
    if _scheme(os.fspath(url)) not in ("http", "https"):
        return None
    module, name = CLIENT
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise MissingDependencyError("A ledger over HTTP", "http") from error


def without_secrets(url: str) -> str:
    """The URL without passwords, for tasks and logs: who opens it has to find them elsewhere."""
    if _scheme(url) not in ("postgresql", "postgres"):
        return url
    from turnledger.ledger.stores.postgres.connection import public_url

    return public_url(url)


def split_sqlite(url: str) -> tuple[str, str]:
    """The path and the parameters of `sqlite:///FILE?NAME=VALUE`; a path has no parameters."""
    if not url.startswith("sqlite:"):
        return url, ""
    path, _, query = url.removeprefix("sqlite://").removeprefix("/").partition("?")
    return path, query


def _settings(query: str) -> dict[str, bool]:
    """The parameters of a ledger in a file, each `on` (the default) or `off`."""
    settings = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in FILE_SETTINGS or value not in ("on", "off"):
            raise InvalidUrlError(
                f"Unknown parameter {part!r} of a SQLite ledger: expected "
                f"{' or '.join(f'{known}=off' for known in FILE_SETTINGS)}."
            )
        settings[name] = value == "on"
    return settings


def _scheme(text: str) -> str:
    if "://" not in text:
        return ""
    from urllib.parse import urlsplit

    try:
        return urlsplit(text).scheme
    except ValueError:  # whose own text may name the password
        raise InvalidUrlError(
            f"Invalid address {STANDARD.text(text)}: check its host and port."
        ) from None


def _open_postgres(url: str, *, wait: float, create: bool) -> Store:
    try:
        from turnledger.ledger.stores.postgres.store import open_postgres
    except ImportError as error:
        raise MissingDependencyError("A ledger in PostgreSQL", "postgres") from error
    return open_postgres(url, wait=wait, create=create)
