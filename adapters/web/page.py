"""Serves the page's files: a few fixed paths, and one document for all addresses of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

# Nothing but the page's own files runs, is shown or is asked; no text becomes markup.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    "": "text/plain",
}
# The page's addresses; the page itself says what is wrong with one that names nothing.
_ADDRESS: Final = re.compile(r"/(?:|doubts|runs/[^/]+|compare/[^/]+/[^/]+|e/[^/]+)")


class _File(NamedTuple):
    content: bytes
    media_type: str
    tag: str


class Page:
    """The built page, read once."""

    def __init__(self) -> None:
        folder = files("turnledger.adapters.web") / "static"
        self._files = dict(_files(folder, ""))

    def is_document(self, path: str) -> bool:
        """Whether a path is an address of the page: a person may come to it by any link."""
        return _ADDRESS.fullmatch(path) is not None

    def answer(self, scope: Scope) -> Response | None:
        """The answer to a request for one of the page's files or addresses; None for others."""
        if scope["method"] not in ("GET", "HEAD"):
            return None
        path = scope["path"]
        file = self._files.get("/index.html" if self.is_document(path) else path)
        if file is None:
            return None
        headers = {
            "content-security-policy": POLICY,
            # A site whose link was followed keeps no hold of the page's window.
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-cache",  # asked each time, and answered with 304
            "etag": file.tag,
        }
        if Headers(scope=scope).get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, _File]]:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _files(entry, name)
        else:
            content = entry.read_bytes()
            kind = _TYPES["." + entry.name.rpartition(".")[2] if "." in entry.name else ""]
            yield name, _File(content, kind, f'"{sha256(content).hexdigest()[:32]}"')
