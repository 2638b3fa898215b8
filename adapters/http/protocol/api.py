"""Routes of the API: each with its role, its answers and the problems that it may give.

`Api.add` is the only way to add one, so that none is without a role, and the document is made of
what is added here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from fastapi import FastAPI
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.access import Role, require
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.protocol.problems import Kind

Method: TypeAlias = Literal["GET", "POST", "DELETE"]


class Answer(NamedTuple):
    """An answer of an operation: what it says, and the type of its JSON by media type."""

    description: str
    content: dict[str, Any]
    headers: tuple[str, ...] = ()


class Operation(NamedTuple):
    """An operation as the document describes it."""

    method: Method
    path: str
    role: Role
    answers: dict[int, Answer]
    refuses: tuple[Kind, ...]
    body: dict[str, Any]
    tag: str


class Api:
    """The application's routes.

    Args:
        app: The application that they are added to.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self.operations: list[Operation] = []

    def add(
        self,
        method: Method,
        path: str,
        endpoint: Callable[..., Any],
        *,
        role: Role,
        answers: dict[int, Answer],
        refuses: Sequence[Kind] = (),
        body: dict[str, Any] | None = None,
    ) -> None:
        """Add an operation; the first line of the endpoint's docstring is its summary.

        Args:
            method: The method.
            path: The path, with parameters in braces.
            endpoint: Answers it; a coroutine.
            role: The least role that a caller needs; "public" for none.
            answers: What it answers, by status.
            refuses: The problems that it may give, beside those of all operations and of bodies.
            body: The types of its body, by media type: a Struct type, or a dict that is a schema.
        """
        summary, _, rest = (inspect.getdoc(endpoint) or "").partition("\n")
        tag = path.removeprefix("/v1/").split("/")[0] if path.startswith("/v1/") else "server"
        refused = (*refuses, *_of_bodies(body or {}))
        self.operations.append(Operation(method, path, role, answers, refused, body or {}, tag))
        self._app.add_api_route(
            path,
            endpoint,
            methods=[method],
            dependencies=[require(role)],
            response_model=None,
            response_class=Response,
            summary=summary.rstrip("."),
            description=rest.partition("Args:")[0].strip(),
            tags=[tag],
            openapi_extra={"x-role": role},
            operation_id=endpoint.__name__.strip("_"),
        )


def _of_bodies(body: dict[str, Any]) -> tuple[Kind, ...]:
    """The problems that any operation with such a body may give."""
    if not body:
        return ()
    not_json = (problems.NOT_JSON,) if JSON in body else ()
    return (*not_json, problems.WRONG_TYPE, problems.TOO_LARGE)
