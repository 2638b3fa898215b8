"""Envelopes: finds the request and the provider's answer in differently wrapped dumps.

A request by itself, a request with its answer beside it (`request` and `response`), either of
them under `body` (a batch file's lines), an answer alone, or just the list inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnledger.adapters.transcripts.json_cursor import Node, root_of

_REQUESTS = ("request", "body", "params", "kwargs", "payload")
_ANSWERS = ("response", "completion", "answer", "output", "result", "body", "message")
# How many wrappings are taken off: an answer in a body in a response in a batch's line.
_LAYERS = 4


def opened(
    data: Any, said: str, answer: str, *others: str
) -> tuple[Node, Node | None, Node | None]:
    """The request of a dump, the conversation in it, and the answer.

    Args:
        data: A request body, its conversation alone, or a dump of both sides.
        said: The request's field that holds the conversation.
        answer: The field by which an answer is known.
        others: Other fields by which a request is known.
    """
    root = root_of(data)
    if root.is_list:
        return Node({}), root, None
    request = _inside(root, (said, *others), _REQUESTS) or root
    conversation, answered = request.get(said), _inside(root, (answer,), _ANSWERS)
    if conversation is None and answered is None:
        root.fail(f"not a transcript of that format: {said!r} is missing.")
    return request, conversation, answered


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
