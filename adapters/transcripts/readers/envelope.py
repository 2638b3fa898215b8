"""Envelopes: finds the request and the provider's answer in differently wrapped dumps.

A request by itself, a request with its answer beside it (`request` and `response`), either of
them under `body` (a batch file's lines), an answer alone, or just the list inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from turnledger.adapters.transcripts.json_cursor import Node

_REQUESTS = ("request", "body", "params", "kwargs", "payload")
_ANSWERS = ("response", "completion", "answer", "output", "result", "body", "message")
# How many wrappings are taken off: an answer in a body in a response in a batch's line.
_LAYERS = 4


def request_in(root: Node, *fields: str) -> Node:
    """The object that has one of these fields: this one, or one that it is the wrapping of."""
    return _inside(root, fields, _REQUESTS) or root


def answer_in(root: Node, *fields: str) -> Node | None:
    """The answer, which has one of these fields: this object, or one that it is the wrapping of."""
    return _inside(root, fields, _ANSWERS)


def _inside(node: Node, fields: Sequence[str], wrappings: Sequence[str]) -> Node | None:
    for _ in range(_LAYERS):
        if not node.is_object:
            return None
        if node.get(*fields) is not None:
            return node
        for name in wrappings:
            under = node.get(name)
            if under is not None and under.is_object:
                node = under
                break
        else:
            return None
    return None


def refuse(root: Node, wanted: str) -> NoReturn:
    """Refuse data in which there is no conversation of the format."""
    root.fail(f"not a transcript of that format: {wanted!r} is missing.")
