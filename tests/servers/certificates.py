"""One certificate instead of all, for clients of servers that speak plain HTTP.

A client reads all certificates of the world when it is made, which takes longer than most tests.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

import certifi

NAME = "SSL_CERT_FILE"


@cache
def _one_certificate() -> Any:
    """A file with one certificate, there until the process ends."""
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
    file = NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115
    file.write(first + end)
    file.flush()
    return file


class FewCertificates:
    """While one is entered, clients of this process and of its children read one certificate.

    Servers end in any order: the last one that is left sets the variable back. It is one variable,
    and not a copy of all: LiteLLM sets some for good when it is imported.
    """

    _lock = Lock()
    _entered = 0
    _before: str | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not FewCertificates._entered:
                FewCertificates._before = os.environ.get(NAME)
                os.environ[NAME] = _one_certificate().name
            FewCertificates._entered += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            FewCertificates._entered -= 1
            if FewCertificates._entered:
                return
            if self._before is None:
                os.environ.pop(NAME, None)
            else:
                os.environ[NAME] = self._before
