"""Wire requests: an HTTP request as it is recorded and recognized, without headers and query.

A request is known by its digest, of the method, the path and the body after redaction. Bodies are
compared as JSON, multipart forms by their parts without the boundary, other bytes by their hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from email import message_from_bytes
from hashlib import sha256
from typing import Any

import msgspec

from turnledger.adapters.clients.endpoints import VARIES_BY_ITSELF, Endpoint, model_call
from turnledger.ledger.redaction import Redactor
from turnledger.projections.digests import canonical

# Longer texts would make an event larger than a ledger takes.
_LONGEST_TEXT = 256 * 1024
# Of a step; its key tells it from others with the same beginning.
_LONGEST_NAME = 200


@dataclass(frozen=True)
class WireRequest:
    """One request.

    Attributes:
        method: "POST".
        path: The URL's path.
        body: The body as JSON, after redaction.
        short_body: The same, with very long texts (media in base64) by their hash: as it is
            recorded.
        endpoint: The generating endpoint; None if it is not a model call.
        digest: Of method, path and body; hexadecimal.
    """

    method: str
    path: str
    body: Any
    short_body: Any
    endpoint: Endpoint | None
    digest: str

    @property
    def name(self) -> str:
        """The name of its step."""
        if self.endpoint is not None:
            return self.endpoint.name
        plain = "".join(sign if sign.isprintable() else "?" for sign in self.path)
        return f"{self.method} {plain}"[:_LONGEST_NAME]

    @property
    def model(self) -> str:
        """The model that is asked; Gemini has it in the path."""
        named = self.body.get("model") if isinstance(self.body, dict) else None
        if isinstance(named, str):
            return named
        return self.path.rpartition("/models/")[2].partition(":")[0] if self.endpoint else ""


def read_request(sdk: str, request: Any, redactor: Redactor | None) -> WireRequest:
    """Describe an HTTP request whose body has been read.

    Args:
        sdk: The SDK that made it, a key of the tables in `endpoints`.
        request: A Request of httpx or httpx2.
        redactor: The redactor of the ledger that it will be recorded in.
    """
    method, path = request.method.upper(), request.url.path
    body = _body(request.content, request.headers.get("content-type", ""))
    if isinstance(body, dict):
        body = {name: body[name] for name in body if name not in VARIES_BY_ITSELF[sdk]}
    if redactor is not None:
        path, body = redactor.text(path), redactor.value(body)
    digest = sha256(canonical([method, path, body])).hexdigest()
    endpoint = model_call(sdk, method, path)
    return WireRequest(method, path, body, _shortened(body), endpoint, digest)


def _body(content: bytes, content_type: str) -> Any:
    if not content:
        return None
    if content_type.startswith("multipart/"):
        return {"parts": _parts(content, content_type)}
    try:
        body = msgspec.json.decode(content)
        canonical(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        return _hashed(content)
    return body


def _parts(content: bytes, content_type: str) -> list[dict[str, Any]]:
    form = message_from_bytes(b"content-type: %b\r\n\r\n%b" % (content_type.encode(), content))
    parts = form.get_payload() if form.is_multipart() else [form]
    return [_part(part) for part in parts]


def _part(part: Any) -> dict[str, Any]:
    data: bytes = part.get_payload(decode=True) or b""
    described = {
        "name": part.get_param("name", header="content-disposition"),
        "filename": part.get_filename(),
        "type": part.get_content_type(),
    }
    if part.get_filename() is not None:
        return described | _hashed(data)
    return described | {"value": data.decode("utf-8", "replace")}


def _shortened(value: Any) -> Any:
    """A value with its very long texts by their hash; the same object if it has none."""
    if isinstance(value, str):
        return _hashed(value.encode()) if len(value) > _LONGEST_TEXT else value
    if isinstance(value, list):
        items = [_shortened(item) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, dict):
        entries = {name: _shortened(inner) for name, inner in value.items()}
        return value if all(entries[name] is value[name] for name in value) else entries
    return value


def _hashed(content: bytes) -> dict[str, Any]:
    return {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
