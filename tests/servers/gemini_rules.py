"""What a conversation may be for Gemini's generateContent: who speaks when, what answers what.

A request is known to have the right shape here, with names in snake_case. Where the real API is
lenient about who speaks after whom, this is not.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

from tests.servers.gemini_shapes import decoded
from tests.servers.serving import Refused

REQUEST = "GenerateContentRequest"
# Of these a part has one.
PART_DATA = (
    "text",
    "inline_data",
    "function_call",
    "function_response",
    "file_data",
    "executable_code",
    "code_execution_result",
)
# What the documentation lets a client send where it has no signature of the model's.
NO_SIGNATURE = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
MIME_TYPES = (
    "text/plain",
    "application/json",
    "application/xml",
    "application/yaml",
    "text/x.enum",
)


def signature(turn: int, name: str) -> bytes:
    """What this server signs a step with: the first call that it makes in a reply."""
    return hashlib.sha256(f"gemini:{turn}:{name}".encode()).digest()


def refuse(where: str, what: str) -> NoReturn:
    raise Refused(400, f"* {REQUEST}.{where}: {what}\n")


def check_rules(request: dict[str, Any], model: str) -> None:
    """Refused if its parts do not go together."""
    contents = request.get("contents") or []
    if not contents:
        refuse("contents", "contents is not specified")
    for at, content in enumerate(contents):
        _content(content, f"contents[{at}]", alone=len(contents) == 1)
    if (system := request.get("system_instruction")) is not None:
        _system(system)
    _turns(contents)
    _signed(contents, model)
    names = _tools(request)
    _choice(request, names)
    _generation(request.get("generation_config") or {}, model, bool(names))


# --- contents -------------------------------------------------------------------------------


def _parts(content: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [part[kind] for part in content["parts"] if kind in part]


def _content(content: dict[str, Any], where: str, *, alone: bool) -> None:
    role = content.get("role", "user" if alone else None)
    if role not in ("user", "model"):
        raise Refused(400, "Please use a valid role: user, model.")
    content["role"] = role
    if not content.get("parts"):
        refuse(f"{where}.parts", "contents.parts must not be empty.")
    for at, part in enumerate(content["parts"]):
        _part(part, f"{where}.parts[{at}]", role)


def _part(part: dict[str, Any], where: str, role: str) -> None:
    kinds = set(PART_DATA) & part.keys()
    if not kinds or (part.get("text") == "" and "thought_signature" not in part):
        refuse(f"{where}.data", "required oneof field 'data' must have one initialized field")
    if len(kinds) > 1:
        raise Refused(
            400, f"Invalid value at '{where}' (oneof), oneof field 'data' is already set."
        )
    (kind,) = kinds
    wanted = {"function_call": "model", "function_response": "user"}.get(kind, role)
    if role != wanted:
        refuse(f"{where}.{kind}", f"{kind} must be in a turn with role '{wanted}'.")
    if role == "user" and (part.get("thought") or "thought_signature" in part):
        refuse(where, "thought must be in a turn with role 'model'.")
    data = part[kind]
    if kind in ("function_call", "function_response") and not data.get("name"):
        refuse(f"{where}.{kind}.name", "Name cannot be empty.")
    if kind == "function_response" and "response" not in data:
        refuse(f"{where}.{kind}.response", "missing field.")
    if kind == "inline_data" and not (data.get("mime_type") and data.get("data")):
        refuse(f"{where}.{kind}", "mime_type and data must be specified.")
    if kind == "file_data" and not (data.get("mime_type") and data.get("file_uri")):
        refuse(f"{where}.{kind}", "mime_type and file_uri must be specified.")
    if kind in ("inline_data", "file_data") and not re.fullmatch(
        r"[\w.+-]+/[\w.+-]+", data["mime_type"]
    ):
        raise Refused(400, f"Unsupported MIME type: {data['mime_type']}")


def _system(system: dict[str, Any]) -> None:
    if not system.get("parts"):
        refuse("system_instruction.parts", "contents.parts must not be empty.")
    for at, part in enumerate(system["parts"]):
        where = f"system_instruction.parts[{at}]"
        _part(part, where, "user")
        if "text" not in part:
            refuse(where, "only text is supported in system_instruction.")


# --- who speaks when --------------------------------------------------------------------------


def _turns(contents: Sequence[dict[str, Any]]) -> None:
    before: dict[str, Any] | None = None
    for content in contents:
        calls = _parts(before, "function_call") if before else []
        if _parts(content, "function_call") and (before is None or before["role"] != "user"):
            raise Refused(
                400,
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn.",
            )
        if (responses := _parts(content, "function_response")) and not calls:
            raise Refused(
                400,
                "Please ensure that function response turn comes immediately after a function "
                "call turn.",
            )
        if len(responses) != len(calls):
            raise Refused(
                400,
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn.",
            )
        _matched(calls, responses)
        before = content
    if contents[0]["role"] != "user":
        raise Refused(400, "Please ensure that multiturn requests start with a user role.")
    if any(one["role"] == two["role"] for one, two in pairwise(contents)):
        raise Refused(
            400, "Please ensure that multiturn requests alternate between user and model."
        )
    if contents[-1]["role"] != "user":
        raise Refused(
            400,
            "Please ensure that multiturn requests end with a user role or a function response.",
        )


def _matched(calls: Sequence[dict[str, Any]], responses: Sequence[dict[str, Any]]) -> None:
    """Responses may come in any order, but they are those to the calls, by id where one has it."""

    def named(several: Sequence[dict[str, Any]]) -> Counter[tuple[str | None, str]]:
        return Counter((one.get("id"), one["name"]) for one in several)

    if named(calls) != named(responses):
        raise Refused(
            400,
            "Please ensure that the function response parts have the names and ids of the "
            "function call parts of the function call turn.",
        )


def _signed(contents: Sequence[dict[str, Any]], model: str) -> None:
    """The calls since the user last spoke bear the signatures that they came with."""
    asks = [
        at
        for at, content in enumerate(contents)
        if content["role"] == "user" and not _parts(content, "function_response")
    ]
    turn = 0
    for at, content in enumerate(contents):
        if content["role"] == "user":
            continue
        turn += 1
        if asks and at < asks[-1]:
            continue
        calls = [part for part in content["parts"] if "function_call" in part]
        for place, part in enumerate(calls):
            _bears(part, place, turn, at, required=place == 0 and "gemini-3" in model)


def _bears(part: dict[str, Any], place: int, turn: int, at: int, *, required: bool) -> None:
    name = part["function_call"]["name"]
    given = part.get("thought_signature")
    if given is None:
        if required:
            raise Refused(
                400,
                "Function call is missing a thought_signature in functionCall parts. This is "
                "required for tools to work correctly, and missing thought_signature may lead to "
                "degraded model performance. Additional data, function call "
                f"`default_api:{name}` , position {at + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
            )
        return
    # As the text that stands in the request, or as the bytes that a client makes it of.
    free = [word.encode() for word in NO_SIGNATURE] + [decoded(word) for word in NO_SIGNATURE]
    if given not in free and (place > 0 or given != signature(turn, name)):
        raise Refused(400, "Corrupted thought signature.")


# --- tools ------------------------------------------------------------------------------------


def _tools(request: dict[str, Any]) -> list[str]:
    """The names of the functions that are declared."""
    names: list[str] = []
    for at, tool in enumerate(request.get("tools") or []):
        for index, function in enumerate(tool.get("function_declarations") or []):
            where = f"tools[{at}].function_declarations[{index}]"
            name = function.get("name", "")
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}", name):
                refuse(
                    f"{where}.name",
                    "Invalid function name. Must start with a letter or an underscore. Must be "
                    "alphameric (a-z, A-Z, 0-9), underscores (_), dots (.) or dashes (-), with a "
                    "maximum length of 64.",
                )
            if name in names:
                raise Refused(400, f"Duplicate function declaration found: {name}")
            names.append(name)
            _declared(function, where)
    return names


def _declared(function: dict[str, Any], where: str) -> None:
    if "parameters" in function and "parameters_json_schema" in function:
        refuse(where, "parameters and parameters_json_schema are mutually exclusive.")
    if (parameters := function.get("parameters")) is not None:
        if parameters.get("type") != "OBJECT":
            refuse(f"{where}.parameters", "parameters schema should be of type OBJECT.")
        _schema(parameters, f"{where}.parameters")
    if (free := function.get("parameters_json_schema")) is not None and (
        not isinstance(free, dict) or free.get("type") != "object"
    ):
        refuse(f"{where}.parameters_json_schema", "schema should be of type OBJECT.")


def _schema(schema: dict[str, Any], where: str) -> None:
    kind, properties = schema.get("type"), schema.get("properties") or {}
    if "additional_properties" in schema:
        refuse(f"{where}.additional_properties", "not supported by the Gemini Developer API.")
    if kind is None and "any_of" not in schema:
        refuse(f"{where}.type", "must be specified.")
    if kind == "OBJECT" and not properties:
        refuse(f"{where}.properties", "should be non-empty for OBJECT type")
    if kind == "ARRAY" and "items" not in schema:
        refuse(f"{where}.items", "missing field.")
    if "enum" in schema and kind != "STRING":
        refuse(f"{where}.enum", "only allowed for STRING type")
    for at, name in enumerate(schema.get("required") or []):
        if name not in properties:
            refuse(f"{where}.required[{at}]", "property is not defined")
    for name, inner in properties.items():
        _schema(inner, f"{where}.properties[{name}]")
    for at, inner in enumerate(schema.get("any_of") or []):
        _schema(inner, f"{where}.any_of[{at}]")
    if "items" in schema:
        _schema(schema["items"], f"{where}.items")


def _choice(request: dict[str, Any], names: Sequence[str]) -> None:
    config = (request.get("tool_config") or {}).get("function_calling_config")
    if config is None:
        return
    if not names:
        raise Refused(400, "Function calling config is set without function_declarations.")
    allowed = config.get("allowed_function_names") or []
    if allowed and config.get("mode") not in ("ANY", "VALIDATED"):
        raise Refused(
            400, "Please set allowed_function_names only when function calling mode is ANY."
        )
    for at, name in enumerate(allowed):
        if name not in names:
            refuse(
                f"tool_config.function_calling_config.allowed_function_names[{at}]",
                f"{name} is not a declared function.",
            )


# --- how to generate ------------------------------------------------------------------------


def _generation(config: dict[str, Any], model: str, functions: bool) -> None:
    where = "generation_config"
    ranges = {
        "temperature": (0, 2),
        "top_p": (0, 1),
        "candidate_count": (1, 8),
        "max_output_tokens": (1, None),
    }
    for name, (least, most) in ranges.items():
        value = config.get(name)
        if value is not None and (value < least or (most is not None and value > most)):
            refuse(f"{where}.{name}", f"must be in the range [{least}, {most or 'inf'}].")
    if len(config.get("stop_sequences") or []) > 5:
        refuse(f"{where}.stop_sequences", "at most 5 are allowed.")
    mime_type = config.get("response_mime_type") or "text/plain"
    if mime_type not in MIME_TYPES:
        allowed = ", ".join(f"`{one}`" for one in MIME_TYPES)
        refuse(f"{where}.response_mime_type", f"allowed mimetypes are {allowed}.")
    schemas = {"response_schema", "response_json_schema"} & config.keys()
    if len(schemas) == 2:
        refuse(where, "response_schema and response_json_schema are mutually exclusive.")
    if schemas and mime_type not in ("application/json", "text/x.enum"):
        refuse(f"{where}.{schemas.pop()}", "only allowed with response_mime_type application/json.")
    if "response_schema" in config:
        _schema(config["response_schema"], f"{where}.response_schema")
    if functions and mime_type == "application/json" and model.startswith("gemini-2"):
        raise Refused(
            400, "Function calling with a response mime type: 'application/json' is unsupported"
        )
