"""The API's document (OpenAPI 3.1): FastAPI's frame, with bodies and answers by msgspec.

FastAPI knows routes and parameters. The Structs of bodies and answers are merged into it as
components, and every problem that an operation may give is named with its types.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.api import Api, Operation
from turnledger.adapters.http.protocol.bodies import NDJSON
from turnledger.adapters.http.protocol.envelopes import ITEM
from turnledger.adapters.http.protocol.problems import MEDIA_TYPE, Kind

REF: Final = "#/components/schemas/{name}"
# Any operation may give these.
ALWAYS: Final = (
    problems.BAD_REQUEST,
    problems.HOST_REFUSED,
    problems.ORIGIN_REFUSED,
    problems.TOO_SLOW,
    problems.HEAD_TOO_LARGE,
    problems.TOO_MANY,
    problems.SERVER_FULL,
    problems.DAMAGED,
    problems.INTERNAL,
    problems.BUSY,
    problems.UNAVAILABLE,
)
WITH_ROLE: Final = (problems.UNAUTHORIZED, problems.FORBIDDEN)
HEADERS: Final = {
    "etag": {"description": "The version that was answered.", "schema": {"type": "string"}}
}
# Operations whose answer names a run, and where: what can be asked about it is linked.
NAMES_A_RUN: Final = {"append_events": "", "fork_run": "", "get_run": "", "list_runs": "/runs/0"}
VERSIONS: Final = ("path.version", "query.at", "query.to")
IF_MATCH: Final = "header.If-Match"
_QUOTED: Final = re.compile(r"\(`([^`]+)`\)")
PROBLEM: Final = {
    "title": "Problem",
    "description": "An error (RFC 9457). Its type is stable; further members depend on it.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": [kind.type for kind in problems.KINDS.values()]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {"type": "string", "description": "The class of the Python client's error."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string"},
                    "parameter": {"type": "string"},
                    "detail": {"type": "string"},
                },
                "required": ["detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
}


(_ITEM,), _ = msgspec.json.schema_components((ITEM,), ref_template=REF)


def document(app: FastAPI, api: Api) -> dict[str, Any]:
    """The document of an application."""
    made = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = made.setdefault("components", {})
    components["schemas"] = _components(api.operations)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    refused: dict[str, Any] = {}
    for operation in api.operations:
        described = made["paths"][operation.path][operation.method.lower()]
        _describe(described, operation)
        refused |= _share(described["responses"])
    components["responses"] = dict(sorted(refused.items()))
    components["links"] = _add_links(made["paths"])
    return made


def _share(responses: dict[str, Any]) -> dict[str, Any]:
    """Put references for the problems of an operation, which others have too; those, by name."""
    shared = {}
    for status, response in responses.items():
        if MEDIA_TYPE in response.get("content", ()):
            name = ".".join([status, *_QUOTED.findall(response["description"])])
            shared[name] = response
            responses[status] = {"$ref": f"#/components/responses/{name}"}
    return shared


def _add_links(paths: dict[str, Any]) -> dict[str, Any]:
    """Link the operations that name a run with those on a run; the links, by name."""
    described = [one for methods in paths.values() for one in methods.values()]
    links: dict[str, Any] = {}
    for source in described:
        name = source["operationId"]
        if name not in NAMES_A_RUN:
            continue
        at = f"$response.body#{NAMES_A_RUN[name]}"
        found = {
            f"{name}-{one['operationId']}": _link(one, at) for one in described if _of_run(one)
        }
        links |= found
        to = {
            link["operationId"]: {"$ref": f"#/components/links/{key}"}
            for key, link in found.items()
        }
        for status in ("200", "201"):
            if status in source["responses"]:
                source["responses"][status]["links"] = to
    return links


def _of_run(described: dict[str, Any]) -> bool:
    return any(
        (one["in"], one["name"]) == ("path", "run") for one in described.get("parameters", ())
    )


def _link(described: dict[str, Any], at: str) -> dict[str, Any]:
    names = {f"{one['in']}.{one['name']}" for one in described["parameters"]}
    parameters: dict[str, str] = {name: f"{at}/version" for name in VERSIONS if name in names}
    if IF_MATCH in names:
        parameters[IF_MATCH] = f'"{{{at}/version}}"'
    return {
        "operationId": described["operationId"],
        "parameters": {"path.run": f"{at}/run_id", **parameters},
    }


def _components(operations: Iterable[Operation]) -> dict[str, Any]:
    kinds = [kind for operation in operations for kind in _kinds(operation)]
    _, components = msgspec.json.schema_components(kinds, ref_template=REF)
    for one in components.values():
        if "description" in one:  # as far to the left on every Python
            one["description"] = inspect.cleandoc(one["description"])
    made = {name: _portable(one) for name, one in components.items()}
    ours = {"Item": _ITEM, "Problem": PROBLEM}
    assert not made.keys() & ours.keys(), "two types of one name in the document"
    return dict(sorted({**made, **ours}.items()))


def _portable(schema: Any) -> Any:
    """A schema for other languages: the union of all items by its name, and patterns without `\\Z`.

    There, `$` is the end and nothing else.
    """
    if isinstance(schema, list):
        return [_portable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema == _ITEM:
        return {"$ref": REF.format(name="Item")}
    made = {name: _portable(one) for name, one in schema.items()}
    if isinstance(made.get("pattern"), str):
        made["pattern"] = made["pattern"].replace(r"\Z", "$")
    return made


def _kinds(operation: Operation) -> Iterable[Any]:
    for answer in operation.answers.values():
        yield from (kind for kind in answer.content.values() if not isinstance(kind, dict))
    yield from (kind for kind in operation.body.values() if not isinstance(kind, dict))


def _schema(kind: Any) -> dict[str, Any]:
    if isinstance(kind, dict):
        return kind
    (schema,), _ = msgspec.json.schema_components((kind,), ref_template=REF)
    return schema


def _answer(media_type: str, kind: Any) -> dict[str, Any]:
    """The schema of an answer: that of a sequence is the list of its items, as in OpenAPI 3.2."""
    schema = _schema(kind)
    return {"type": "array", "items": schema} if media_type == NDJSON else schema


def _describe(described: dict[str, Any], operation: Operation) -> None:
    if described.get("description", "").startswith(described["summary"]):
        del described["description"]  # FastAPI's, of an endpoint that has no more to say
    described["responses"] = _responses(operation, bool(described.get("parameters")))
    if operation.body:
        content = {
            kind: {"schema": _portable(_schema(one))} for kind, one in operation.body.items()
        }
        described["requestBody"] = {"required": True, "content": content}
    if operation.role != "public":
        described["security"] = [{"token": []}]
    for parameter in described.get("parameters", ()):
        _never_null(parameter)


def _responses(operation: Operation, has_parameters: bool) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in sorted(operation.answers.items()):
        responses[str(status)] = {"description": answer.description}
        if answer.content:
            content = {kind: {"schema": _answer(kind, one)} for kind, one in answer.content.items()}
            responses[str(status)]["content"] = content
        if answer.headers:
            responses[str(status)]["headers"] = {name: HEADERS[name] for name in answer.headers}
    refused: defaultdict[int, list[Kind]] = defaultdict(list)
    for kind in refusals(operation, has_parameters):
        refused[kind.status].append(kind)
    for status, kinds in sorted(refused.items()):
        responses[str(status)] = {
            "description": "; ".join(f"{kind.title} (`{kind.name}`)" for kind in kinds),
            "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}},
        }
    return responses


def refusals(operation: Operation, has_parameters: bool) -> list[Kind]:
    """The problems that an operation may give: its own, and those that all have."""
    further = (problems.INVALID,) if has_parameters or operation.body else ()
    with_role = () if operation.role == "public" else WITH_ROLE
    return list(dict.fromkeys((*operation.refuses, *further, *with_role, *ALWAYS)))


def _never_null(parameter: dict[str, Any]) -> None:
    """Take null out of an optional parameter's schema: queries and headers have no null."""
    schema = parameter["schema"]
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        parameter["schema"] = {**kinds[0], **schema}
