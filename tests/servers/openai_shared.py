"""What OpenAI's two APIs have in common: the shape of errors, and how a value is refused.

A check takes a value and the path that leads to it, and raises `Refused` in OpenAI's words. What
a request of one API may hold is told in the module of that API.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from tests.servers.sdk_types import Api, violation_of
from tests.servers.serving import Refused

CREATED = 1_767_225_600
KEY_MISSING = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header "
    "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
)
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")

# JSON types in OpenAI's words, by those of pydantic.
EXPECTED = {
    "a valid string": "a string",
    "a valid array": "an array",
    "a valid number": "a decimal",
    "a valid integer": "an integer",
    "a valid boolean": "a boolean",
}

Check: TypeAlias = Callable[[Any, str], None]


# --- errors ---------------------------------------------------------------------------


def refuse(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    """400, as OpenAI says it."""
    raise Refused(400, message, param=param, code=code)


def error_body(status: int, message: str, kind: str | None, more: dict[str, Any]) -> dict[str, Any]:
    """The body of an error. A kind is a type if it sounds like one, and a code otherwise."""
    error_type, code = _usual(status)
    if kind == "insufficient_quota":
        error_type = code = kind
    elif kind is not None and kind.endswith("_error"):
        error_type = kind
    elif kind is not None:
        code = kind
    return {
        "error": {
            "message": message,
            "type": error_type,
            "param": more.get("param"),
            "code": more.get("code", code),
        }
    }


def _usual(status: int) -> tuple[str, str | None]:
    if status == 401:
        return "invalid_request_error", "invalid_api_key"
    if status == 429:
        return "rate_limit_error", "rate_limit_exceeded"
    return ("server_error" if status >= 500 else "invalid_request_error"), None


def check_request(
    paths: tuple[str, ...], method: str, path: str, headers: Mapping[str, str], body: Any
) -> None:
    """What is refused before the fields are looked at."""
    route = path.partition("?")[0]
    if route not in paths:
        raise Refused(404, f"Invalid URL ({method} {route})")
    if method != "POST":
        raise Refused(405, f"Not allowed to {method} on {route}.")
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Refused(401, KEY_MISSING, code=None)
    sent_as = headers.get("content-type", "")
    if sent_as.partition(";")[0].strip().lower() != "application/json":
        refuse(
            f"Unsupported content type: '{sent_as}'. "
            "This API method only accepts 'application/json' requests.",
            code="unsupported_content_type",
        )
    if not isinstance(body, dict):
        refuse("We could not parse the JSON body of your request.")


# --- types ----------------------------------------------------------------------------


def check_types(api: Api, body: dict[str, Any]) -> None:
    """Refused, in OpenAI's words, where the SDK's types for a request refuse it."""
    found = violation_of(api, body)
    if found is None:
        return
    where = found.at()
    match found.kind:
        case "unknown":
            refuse(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
        case "missing":
            refuse_missing(where)
        case "value":
            refuse_value(found.given, where, found.expected)
        case "type":
            expected = found.expected.removeprefix("Input should be ")
            refuse_type(found.given, where, EXPECTED.get(expected, expected))


def refuse_missing(path: str) -> NoReturn:
    refuse(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")


def kind_of(value: Any) -> str:
    """How OpenAI calls the type of a JSON value."""
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a decimal",
        str: "a string",
        list: "an array",
    }
    return names.get(type(value), "an object")


def refuse_type(value: Any, path: str, expected: str) -> NoReturn:
    refuse(
        f"Invalid type for '{path}': expected {expected}, but got {kind_of(value)} instead.",
        path,
        "invalid_type",
    )


def refuse_value(value: Any, path: str, supported: str) -> NoReturn:
    refuse(f"Invalid value: '{value}'. Supported values are: {supported}.", path, "invalid_value")


# --- limits: what the types do not say of values that they take -----------------------


def string(
    *, least: int = 0, most: int | None = None, pattern: str | None = None, begins: str = ""
) -> Check:
    def check(value: Any, path: str) -> None:
        if len(value) < least:
            refuse(
                f"Invalid '{path}': empty string. Expected a string with minimum length {least}, "
                "but got an empty string instead.",
                path,
                "empty_string",
            )
        if most is not None and len(value) > most:
            refuse(
                f"Invalid '{path}': string too long. Expected a string with maximum length "
                f"{most}, but got a string with length {len(value)} instead.",
                path,
                "string_above_max_length",
            )
        if pattern is not None and not re.fullmatch(pattern, value):
            refuse(
                f"Invalid '{path}': string does not match pattern. Expected a string that matches "
                f"the pattern '^{pattern}$'.",
                path,
                "invalid_value",
            )
        if not value.startswith(begins):
            refuse(
                f"Invalid '{path}': '{value}'. Expected an ID that begins with "
                f"'{begins.rstrip('_')}'.",
                path,
                "invalid_value",
            )

    return check


function_name = string(least=1, most=64, pattern="[a-zA-Z0-9_-]+")


def number(low: float, high: float) -> Check:
    return _ranged(low, high, "decimal")


def integer(low: int, high: int | None = None) -> Check:
    return _ranged(low, high, "integer")


def _ranged(low: float, high: float | None, word: str) -> Check:
    def check(value: Any, path: str) -> None:
        if value < low:
            refuse(
                f"Invalid '{path}': {word} below minimum value. Expected a value >= {low}, "
                f"but got {value} instead.",
                path,
                f"{word}_below_min_value",
            )
        if high is not None and value > high:
            refuse(
                f"Invalid '{path}': {word} above maximum value. Expected a value <= {high}, "
                f"but got {value} instead.",
                path,
                f"{word}_above_max_value",
            )

    return check


def array(check_item: Check | None = None, *, least: int = 0, most: int | None = None) -> Check:
    """A list of so many, each within its own limits; what is no list is left alone."""

    def check(value: Any, path: str) -> None:
        if not isinstance(value, list):
            return
        if len(value) < least:
            refuse(
                f"Invalid '{path}': empty array. Expected an array with minimum length {least}, "
                "but got an empty array instead.",
                path,
                "empty_array",
            )
        if most is not None and len(value) > most:
            refuse(
                f"Invalid '{path}': array too long. Expected an array with maximum length {most}, "
                f"but got an array with length {len(value)} instead.",
                path,
                "array_above_max_length",
            )
        for index, item in enumerate(value if check_item else ()):
            check_item(item, f"{path}[{index}]")

    return check


def limits(**known: Check) -> Check:
    """An object whose fields of these names, where it has them, are within their limits."""

    def check(value: dict[str, Any], path: str) -> None:
        prefix = f"{path}." if path else ""
        for name, limit in known.items():
            if value.get(name) is not None:
                limit(value[name], prefix + name)

    return check


def check_metadata(value: Any, path: str) -> None:
    if len(value) > 16:
        refuse(
            f"Invalid '{path}': too many properties. Expected an object with at most 16 "
            f"properties, but got an object with {len(value)} properties instead.",
            path,
            "object_above_max_properties",
        )
    for name, given in value.items():
        string(most=64)(name, path)
        string(most=512)(given, f"{path}.{name}")


# --- data within a request ------------------------------------------------------------


def check_data_url(
    value: str, opening: str, path: str, wanted: str, allows: Callable[[str], bool]
) -> None:
    """A `data:` URL in base64, of a type that is allowed."""

    def no(reason: str) -> NoReturn:
        refuse(
            f"{opening} Expected a base64-encoded data URL with {wanted}, but got {reason}.",
            path,
            "invalid_value",
        )

    if not value.startswith("data:"):
        no("a value without the 'data:' prefix")
    head, comma, data = value.removeprefix("data:").partition(",")
    media_type, _, encoding = head.partition(";")
    if not comma or encoding != "base64":
        no("an invalid base64-encoded value")
    if not allows(media_type):
        no(f"unsupported MIME type '{media_type}'")
    if not data:
        no("empty base64-encoded bytes")
    if not is_base64(data):
        no("an invalid base64-encoded value")


def check_image_url(value: str, opening: str, path: str) -> None:
    """An address of an image, or the image itself."""
    if re.match(r"https?://[^/\s]", value):
        return
    wanted = "an image MIME type (e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU=')"
    check_data_url(value, opening, path, wanted, IMAGE_TYPES.__contains__)


def is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


def pieces(whole: str) -> list[str]:
    """A text as a stream brings it: in up to four pieces."""
    size = max(1, -(-len(whole) // 4))
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def call_id(turn: int, index: int) -> str:
    """The id of a call that the script gave none: as long as a real one, the same each time."""
    return f"call_{turn:012d}{index:012d}"
