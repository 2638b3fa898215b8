"""The items of a Responses input: what each may hold, and how they go together.

Nothing is stored here: an item that is only named is answered as if OpenAI had never seen it.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.servers.openai_shared import (
    Check,
    anything,
    array,
    check_data_url,
    check_fields,
    check_image_url,
    fields,
    function_name,
    mapping,
    nullable,
    one_of,
    refuse,
    refuse_type,
    refuse_value,
    string,
    text,
)
from tests.servers.serving import Refused

ITEMS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")
PARTS = ("input_text", "input_image", "output_text", "refusal", "input_file", "summary_text")
SAID = ("output_text", "refusal")
HEARD = ("input_text", "input_image", "input_file")
# What the model itself wrote: a run of these items is one turn.
WRITTEN = ("reasoning", "function_call")
DOCUMENTS = re.compile(
    r"text/.+|application/(pdf|json|xml|rtf|msword|vnd\.(ms|oasis|openxmlformats).+|csv|yaml"
    r"|javascript|typescript|x-(yaml|sh|latex|python|php|ruby|rust))"
)
DOCUMENT = "a document MIME type (e.g. 'data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ==')"
SEAL = "gAAAAAB"

status = nullable(one_of("in_progress", "completed", "incomplete"))
call_id_given = string(least=1, most=64)
summarised = fields({"type": one_of("summary_text"), "text": text}, "type", "text")


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


def check_input(value: Any, path: str) -> None:
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        refuse_type(value, path, "one of a string or array of input items")
    array(_item)(value, path)


def _item(value: Any, path: str) -> None:
    mapping(value, path)
    kind = value.get("type", "message")
    one_of(*ITEMS)(kind, f"{path}.type")
    if kind == "item_reference":
        raise Refused(404, f"Item with id '{value.get('id')}' not found.", param="input")
    if kind == "message":
        _message(value, path)
        return
    known, required = ITEM_FIELDS[kind]
    check_fields(value, path, known, required)


def _message(value: Any, path: str) -> None:
    if "role" in value:
        one_of("assistant", "system", "developer", "user")(value["role"], f"{path}.role")
    written = value.get("role") == "assistant"
    known = {
        "type": text,
        "role": text,
        "content": _content(SAID if written else HEARD),
        "status": status,
        "id": string(least=1, most=64, begins="msg_"),
    }
    if written:
        known["phase"] = nullable(one_of("commentary", "final_answer"))
    check_fields(value, path, known, ("role", "content"))


def _content(allowed: tuple[str, ...]) -> Check:
    def check(value: Any, path: str) -> None:
        if isinstance(value, str):
            return
        if not isinstance(value, list):
            refuse_type(value, path, "one of an array of objects or string")
        array(_part(allowed))(value, path)

    return check


def _part(allowed: tuple[str, ...]) -> Check:
    def check(value: Any, path: str) -> None:
        mapping(value, path)
        kind = value.get("type")
        if kind is None:
            where = f"{path}.type"
            refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
        if kind not in allowed:
            refuse_value(kind, path, allowed if kind in PARTS else PARTS)
        known, required = PART_FIELDS[kind]
        check_fields(value, path, {"type": text, **known}, required)
        if kind == "input_image":
            _image(value, path)
        if kind == "input_file":
            _file(value, path)

    return check


def _image(value: dict[str, Any], path: str) -> None:
    where = f"{path}.image_url"
    url = value.get("image_url")
    if url is not None:
        check_image_url(url, f"Invalid '{where}'.", where)
    elif value.get("file_id") is None:
        refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")


def _file(value: dict[str, Any], path: str) -> None:
    given = [name for name in ("file_id", "file_data", "file_url") if value.get(name) is not None]
    if not given:
        where = f"{path}.file_id"
        refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
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
            refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
        where = f"{path}.file_data"
        allows = DOCUMENTS.fullmatch
        check_data_url(
            value["file_data"], f"Invalid '{where}'.", where, DOCUMENT, lambda v: bool(allows(v))
        )


PART_FIELDS: dict[str, tuple[dict[str, Check], tuple[str, ...]]] = {
    "input_text": ({"text": text, "prompt_cache_breakpoint": anything}, ("text",)),
    "input_image": (
        {
            "image_url": nullable(text),
            "file_id": nullable(text),
            "detail": one_of("low", "high", "auto", "original"),
            "prompt_cache_breakpoint": anything,
        },
        (),
    ),
    "input_file": (
        {
            "file_data": text,
            "file_id": nullable(text),
            "file_url": text,
            "filename": text,
            "detail": one_of("auto", "low", "high"),
            "prompt_cache_breakpoint": anything,
        },
        (),
    ),
    "output_text": (
        {"text": text, "annotations": array(mapping), "logprobs": nullable(array(mapping))},
        ("text",),
    ),
    "refusal": ({"refusal": text}, ("refusal",)),
}
ITEM_FIELDS: dict[str, tuple[dict[str, Check], tuple[str, ...]]] = {
    "function_call": (
        {
            "type": text,
            "id": string(least=1, most=64, begins="fc_"),
            "call_id": call_id_given,
            "name": function_name,
            "arguments": text,
            "status": status,
            "caller": anything,
            "namespace": anything,
        },
        ("call_id", "name", "arguments"),
    ),
    "function_call_output": (
        {
            "type": text,
            "id": nullable(string(least=1, most=64, begins="fc")),
            "call_id": call_id_given,
            "output": _content(HEARD),
            "status": status,
            "caller": anything,
            "name": anything,
            "namespace": anything,
        },
        ("call_id", "output"),
    ),
    "reasoning": (
        {
            "type": text,
            "id": string(least=1, most=64, begins="rs_"),
            "summary": array(
                fields({"type": one_of("summary_text"), "text": text}, "type", "text")
            ),
            "content": nullable(array(mapping)),
            "encrypted_content": nullable(text),
            "status": status,
        },
        ("id", "summary"),
    ),
}


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
