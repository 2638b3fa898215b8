"""The items of a Responses input: what each may hold, and how they go together.

Nothing is stored here: an item that is only named is answered as if OpenAI had never seen it.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.servers.openai_shared import (
    array,
    check_data_url,
    check_image_url,
    limits,
    refuse,
    refuse_missing,
    refuse_value,
    string,
)
from tests.servers.serving import Refused

SAID = ("output_text", "refusal")
# What the model itself wrote: a run of these items is one turn.
WRITTEN = ("reasoning", "function_call")
DOCUMENTS = re.compile(
    r"text/.+|application/(pdf|json|xml|rtf|msword|vnd\.(ms|oasis|openxmlformats).+|csv|yaml"
    r"|javascript|typescript|x-(yaml|sh|latex|python|php|ruby|rust))"
)
DOCUMENT = "a document MIME type (e.g. 'data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ==')"
SEAL = "gAAAAAB"
BEGINS = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fc",
    "reasoning": "rs_",
}


# --- ids of items ---------------------------------------------------------------------


def item_id(kind: str, turn: int, index: int, *, reasoned: bool) -> str:
    """The id of an item that the server made; it tells whether reasoning came before it."""
    return f"{kind}_{turn:012d}{index:04d}{'f' if reasoned else '0'}"


def reasoning_before(given: str) -> str | None:
    """The id of the reasoning that goes with an item, if the server made it with one."""
    made = re.fullmatch(r"(?:msg|fc)_(\d{12})\d{4}f", given)
    return made and item_id("rs", int(made[1]), 0, reasoned=False)


def sealed(reasoning_id: str) -> str:
    """The encrypted content of a reasoning item: only what this gives is taken back."""
    return SEAL + base64.urlsafe_b64encode(f"sealed {reasoning_id}".encode()).decode()


# --- items ----------------------------------------------------------------------------


def kind_of_item(item: dict[str, Any]) -> str:
    return str(item.get("type", "message"))


def is_written(item: dict[str, Any]) -> bool:
    """Whether the model wrote an item."""
    kind = kind_of_item(item)
    return kind in WRITTEN or (kind == "message" and item.get("role") == "assistant")


def item_limits(value: dict[str, Any], path: str) -> None:
    """Refused if an item, whose type is right, is one that OpenAI does not take."""
    kind = kind_of_item(value)
    if kind == "item_reference":
        raise Refused(404, f"Item with id '{value.get('id')}' not found.", param="input")
    limits(
        id=string(least=1, most=64, begins=BEGINS.get(kind, "")),
        call_id=string(least=1, most=64),
        name=string(least=1, most=64, pattern="[a-zA-Z0-9_-]+"),
        content=array(_said if value.get("role") == "assistant" else _heard),
        output=array(_heard),
    )(value, path)


def _said(value: dict[str, Any], path: str) -> None:
    # The type of a message that nobody stored takes these from every role.
    if value["type"] not in SAID:
        refuse_value(value["type"], path, "'output_text' and 'refusal'")


def _heard(value: dict[str, Any], path: str) -> None:
    if value["type"] == "input_image":
        _image(value, path)
    if value["type"] == "input_file":
        _file(value, path)


def _image(value: dict[str, Any], path: str) -> None:
    where = f"{path}.image_url"
    url = value.get("image_url")
    if url is not None:
        check_image_url(url, f"Invalid '{where}'.", where)
    elif value.get("file_id") is None:
        refuse_missing(where)


def _file(value: dict[str, Any], path: str) -> None:
    given = [name for name in ("file_id", "file_data", "file_url") if value.get(name) is not None]
    if not given:
        where = f"{path}.file_id"
        refuse_missing(where)
    if len(given) > 1:
        refuse(
            f"Mutually exclusive parameters: '{path}'. Ensure you are only providing one of: "
            "'file_id', 'file_data' or 'file_url'.",
            path,
            "mutually_exclusive_parameters",
        )
    if given == ["file_url"] and not re.match(r"https?://[^/\s]", value["file_url"]):
        where = f"{path}.file_url"
        refuse(
            f"Invalid '{where}'. Expected a valid URL, but got a value with an invalid format.",
            where,
            "invalid_value",
        )
    if given == ["file_data"]:
        if not value.get("filename"):
            where = f"{path}.filename"
            refuse_missing(where)
        where = f"{path}.file_data"
        allows = DOCUMENTS.fullmatch
        check_data_url(
            value["file_data"], f"Invalid '{where}'.", where, DOCUMENT, lambda v: bool(allows(v))
        )


# --- how the items go together --------------------------------------------------------


def check_items(items: list[dict[str, Any]], *, stored: bool) -> None:
    _check_ids(items)
    for index, item in enumerate(items):
        after = items[index + 1] if index + 1 < len(items) else None
        if kind_of_item(item) == "reasoning":
            _check_reasoning(item, after, stored=stored)
        elif is_written(item) and stored:
            _check_reasoned(item, items[:index])
    _check_calls(items)


def _check_ids(items: list[dict[str, Any]]) -> None:
    seen = set()
    for item in items:
        given = item.get("id")
        if given is not None and given in seen:
            refuse(
                f"Duplicate item found with id {given}. Remove duplicate items from your input "
                "and try again.",
                "input",
            )
        seen.add(given)


def _check_reasoning(item: dict[str, Any], after: dict[str, Any] | None, *, stored: bool) -> None:
    given, content = item["id"], item.get("encrypted_content")
    if content is None and not stored:
        raise Refused(
            404,
            f"Item with id '{given}' not found. Items are not persisted when `store` is set to "
            "false. Try again with `store` set to true, or remove this item from your input.",
            param="input",
        )
    if content is not None and content != sealed(given):
        refuse(
            f"The encrypted content for item {given} could not be verified.",
            code="invalid_encrypted_content",
        )
    # What is only named is looked up in the store, and so is what followed it: by its id.
    follows = after is not None and is_written(after)
    if not follows or (content is None and "id" not in (after or {})):
        refuse(
            f"Item '{given}' of type 'reasoning' was provided without its required following item.",
            "input",
        )


def _check_reasoned(item: dict[str, Any], before: list[dict[str, Any]]) -> None:
    given = item.get("id")
    wanted = reasoning_before(given) if given else None
    if wanted and not any(earlier.get("id") == wanted for earlier in before):
        refuse(
            f"Item '{given}' of type '{kind_of_item(item)}' was provided without its required "
            f"'reasoning' item: '{wanted}'.",
            "input",
        )


def _check_calls(items: list[dict[str, Any]]) -> None:
    called: dict[str, bool] = {}
    for item in items:
        kind, given = kind_of_item(item), item.get("call_id", "")
        if kind == "function_call":
            if given in called:
                refuse(f"Duplicate function call found with call_id {given}.", "input")
            called[given] = False
        elif kind == "function_call_output":
            if given not in called:
                refuse(
                    f"No tool call found for function call output with call_id {given}.", "input"
                )
            if called[given]:
                refuse(f"Duplicate function call output found with call_id {given}.", "input")
            called[given] = True
    for given, answered in called.items():
        if not answered:
            refuse(f"No tool output found for function call {given}.", "input")
