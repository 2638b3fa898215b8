"""Pages of the HTTP API: its document (OpenAPI 3.1), and the reference that is made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

from docs.website.markdown import NOTE, table
from turnledger.adapters.http.app import App
from turnledger.adapters.http.protocol.api import Operation
from turnledger.adapters.http.protocol.document import ALWAYS, WITH_ROLE, refusals
from turnledger.adapters.http.protocol.envelopes import ENVELOPES
from turnledger.adapters.http.protocol.problems import ERRORS, KINDS, MEDIA_TYPE, Kind
from turnledger.ledger import Ledger
from turnledger.ledger.events.types import EVENT_TYPES

OUTSIDE = (
    "`turnledger serve` serves it. The [document](openapi.json) (OpenAPI 3.1) has all of it for "
    "programs, and the server gives it at `/openapi.json`."
)
REQUESTS = (
    "A request carries `Authorization: Bearer TOKEN`. A token has a role: a writer may do what a "
    "reader may, and an admin everything. Bodies and answers are JSON in UTF-8; "
    "`application/x-ndjson` is one JSON text a line."
)
SHAPE = (
    f"Every error is a document of RFC 9457, `{MEDIA_TYPE}`, with `type`, `title`, `status` and "
    "`detail`. The type never changes. `error` is the class that the Python client raises, if "
    "the ledger refused it: see [errors](errors.md)."
)


@cache
def _served() -> tuple[dict[str, Any], list[Operation]]:
    with Ledger.open("memory://") as ledger:
        app = App(ledger)
        return app.document(), app.api.operations


def served_document() -> dict[str, Any]:
    """The document that a server gives."""
    return _served()[0]


def openapi_document() -> str:
    """The document as a file."""
    return json.dumps(served_document(), indent=2, ensure_ascii=False) + "\n"


# --- operations --------------------------------------------------------------------


def http_page() -> str:
    """Every operation of the API: its role, parameters, body, answers and problems."""
    document, operations = _served()
    lines = [
        "# HTTP API",
        NOTE,
        OUTSIDE,
        REQUESTS,
        f"Any operation may give {_kinds(ALWAYS)}; one with a role, also {_kinds(WITH_ROLE)}.",
    ]
    for tag, group in groupby(sorted(operations, key=_tag), key=_tag):
        lines.append(f"## {tag.capitalize()}")
        for operation in group:
            described = document["paths"][operation.path][operation.method.lower()]
            lines.extend(_operation(operation, described))
    lines += ["## Types", "Events are [described by themselves](events.md)."]
    lines.extend(_types(document["components"]["schemas"]))
    return "\n\n".join(line for line in lines if line) + "\n"


def _tag(operation: Operation) -> str:
    return operation.tag


def _operation(operation: Operation, described: dict[str, Any]) -> Iterator[str]:
    yield f"### {operation.method} {operation.path}"
    yield f"{described['summary']}. Role: {operation.role}."
    yield " ".join(described.get("description", "").split())
    parameters = [
        (
            f"`{one['name']}`" + (", required" if one["required"] else ""),
            one["in"],
            type_text(one["schema"]),
            one.get("description", ""),
        )
        for one in described.get("parameters", ())
    ]
    yield table(("parameter", "in", "type", "meaning"), parameters)
    if operation.body:
        content = described["requestBody"]["content"].items()
        yield "Body: " + "; ".join(f"`{kind}`: {type_text(one['schema'])}" for kind, one in content)
    answers = [
        (str(status), answer.description, _content(described["responses"][str(status)]))
        for status, answer in sorted(operation.answers.items())
    ]
    yield table(("status", "answer", "content"), answers)
    all_of_them = refusals(operation, bool(parameters))
    if own := [kind for kind in all_of_them if kind not in (*ALWAYS, *WITH_ROLE)]:
        yield f"Problems: {_kinds(own)}."


def _content(response: dict[str, Any]) -> str:
    content = response.get("content", {})
    return "; ".join(f"`{kind}`: {type_text(one['schema'])}" for kind, one in content.items())


def _kinds(kinds: Iterable[Kind]) -> str:
    ordered = sorted(dict.fromkeys(kinds), key=lambda kind: (kind.status, kind.name))
    return ", ".join(f"[{kind.status} {kind.name}](problems.md#{kind.name})" for kind in ordered)


# --- types -------------------------------------------------------------------------


def _types(schemas: dict[str, Any]) -> Iterator[str]:
    elsewhere = {one.__name__ for one in (*ENVELOPES, *EVENT_TYPES.values())}
    for name, schema in schemas.items():
        if name in elsewhere:
            continue
        yield f"### {name}"
        yield " ".join(schema.get("description", "").split())
        required = schema.get("required", ())
        if "anyOf" in schema:
            yield type_text(schema)
        rows = [
            (f"`{field}`", type_text(one), "" if field in required else "may be absent")
            for field, one in schema.get("properties", {}).items()
        ]
        yield table(("field", "type", ""), rows)


def type_text(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        return _named(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return _several(several)
    kind = schema.get("type")
    if "prefixItems" in schema:
        return f"[{', '.join(map(type_text, schema['prefixItems']))}]"
    if kind == "array":
        return f"list of {type_text(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_text(schema['additionalProperties'])}"
    return _simple(schema, str(kind) if kind else "any JSON")


def _several(schemas: list[dict[str, Any]]) -> str:
    envelopes = {one.__name__ for one in ENVELOPES}
    names = {one.get("$ref", "").rpartition("/")[2] for one in schemas}
    if envelopes <= names:
        return '`{"type": …, "data": {…}, "event_id": …}` of any [event](events.md), or `blob`'
    return " or ".join(dict.fromkeys(map(type_text, schemas)))


def _named(name: str) -> str:
    kinds = {kind.__name__: kind.tag for kind in EVENT_TYPES.values()}
    if name in kinds:
        return f"[{name}](events.md#{kinds[name].replace('.', '')})"
    return f"[{name}](#{name.lower()})"


def _simple(schema: dict[str, Any], kind: str) -> str:
    names = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    text = {"uuid": "UUID", "date-time": "time", "binary": "bytes"}.get(
        schema.get("format", ""), names.get(kind, kind)
    )
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        text += f", {low:,} to {high:,}"
    if "default" in schema:
        text += f" (default `{json.dumps(schema['default'])}`)"
    return text


# --- problems ----------------------------------------------------------------------


def problems_page() -> str:
    """Every problem: its status, what it means, what to do, and its members."""
    lines = [
        "# Problems of the HTTP API",
        NOTE,
        SHAPE,
    ]
    for kind in KINDS.values():
        lines += [f"## {kind.name}", f"{kind.status}. {kind.title}.", kind.advice]
        lines.append(f"Type: `{kind.type}`.")
        members = [
            (f"`{error.__name__}`", ", ".join(f"`{one}`" for one in rule.members))
            for error, rule in ERRORS.items()
            if rule.kind is kind
        ]
        lines.append(table(("error", "members"), members))
    return "\n\n".join(line for line in lines if line) + "\n"
