"""What a request to Gemini's generateContent may hold, read as its JSON of protocol buffers is.

Names may come in camelCase or in snake_case, and the official client mixes the two. What the
parts may be to each other is not here but in `gemini_rules`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from tests.servers.serving import Refused

# A field's type: `*` after it for a list, `{}` for a map; `Name(A|B)` is an enum. What is no
# plain type and no shape of its own here is taken as any object.
PART_DATA = (
    "text",
    "inline_data",
    "function_call",
    "function_response",
    "file_data",
    "executable_code",
    "code_execution_result",
)
SHAPES: dict[str, dict[str, str]] = {
    "GenerateContentRequest": {
        "model": "string",
        "contents": "Content*",
        "system_instruction": "Content",
        "tools": "Tool*",
        "tool_config": "ToolConfig",
        "safety_settings": "SafetySetting*",
        "generation_config": "GenerationConfig",
        "cached_content": "string",
        "service_tier": "string",
        "store": "bool",
    },
    "Content": {"parts": "Part*", "role": "string"},
    "Part": {
        "text": "string",
        "inline_data": "Blob",
        "function_call": "FunctionCall",
        "function_response": "FunctionResponse",
        "file_data": "FileData",
        "executable_code": "Struct",
        "code_execution_result": "Struct",
        "thought": "bool",
        "thought_signature": "bytes",
        "part_metadata": "Struct",
        "video_metadata": "Struct",
        "media_resolution": "Struct",
    },
    "Blob": {"mime_type": "string", "data": "bytes"},
    "FileData": {"mime_type": "string", "file_uri": "string"},
    "FunctionCall": {"id": "string", "name": "string", "args": "Struct"},
    "FunctionResponse": {
        "id": "string",
        "name": "string",
        "response": "Struct",
        "parts": "FunctionResponsePart*",
        "will_continue": "bool",
        "scheduling": "string",
    },
    "FunctionResponsePart": {"inline_data": "Blob"},
    "Tool": {
        "function_declarations": "FunctionDeclaration*",
        "google_search": "Struct",
        "code_execution": "Struct",
        "url_context": "Struct",
    },
    "FunctionDeclaration": {
        "name": "string",
        "description": "string",
        "behavior": "Behavior(UNSPECIFIED|BLOCKING|NON_BLOCKING)",
        "parameters": "Schema",
        "parameters_json_schema": "Value",
        "response": "Schema",
        "response_json_schema": "Value",
    },
    "Schema": {
        "type": "Type(TYPE_UNSPECIFIED|STRING|NUMBER|INTEGER|BOOLEAN|ARRAY|OBJECT|NULL)",
        "format": "string",
        "title": "string",
        "description": "string",
        "nullable": "bool",
        "enum": "string*",
        "items": "Schema",
        "min_items": "int",
        "max_items": "int",
        "properties": "Schema{}",
        "required": "string*",
        "property_ordering": "string*",
        "min_properties": "int",
        "max_properties": "int",
        "minimum": "float",
        "maximum": "float",
        "min_length": "int",
        "max_length": "int",
        "pattern": "string",
        "any_of": "Schema*",
        "example": "Value",
        "default": "Value",
    },
    "ToolConfig": {"function_calling_config": "FunctionCallingConfig"},
    "FunctionCallingConfig": {
        "mode": "Mode(MODE_UNSPECIFIED|AUTO|ANY|NONE|VALIDATED)",
        "allowed_function_names": "string*",
    },
    "SafetySetting": {"category": "string", "threshold": "string"},
    "GenerationConfig": {
        "temperature": "float",
        "top_p": "float",
        "top_k": "int",
        "candidate_count": "int",
        "max_output_tokens": "int",
        "stop_sequences": "string*",
        "response_mime_type": "string",
        "response_schema": "Schema",
        "response_json_schema": "Value",
        "presence_penalty": "float",
        "frequency_penalty": "float",
        "seed": "int",
        "response_logprobs": "bool",
        "logprobs": "int",
        "response_modalities": "string*",
        "media_resolution": "string",
        "thinking_config": "ThinkingConfig",
        "enable_enhanced_civic_answers": "bool",
    },
    "ThinkingConfig": {
        "include_thoughts": "bool",
        "thinking_budget": "int",
        "thinking_level": "ThinkingLevel(THINKING_LEVEL_UNSPECIFIED|MINIMAL|LOW|MEDIUM|HIGH)",
    },
}
PACKAGE = "type.googleapis.com/google.ai.generativelanguage"


def shaped(body: Any, version: str) -> dict[str, Any]:
    """The request with all its names in snake_case and its bytes decoded."""
    reading = _Reading(f"{PACKAGE}.{version}")
    request = reading.message("GenerateContentRequest", body, "")
    if reading.violations:
        details = [
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [
                    {"field": field, "description": said} for field, said in reading.violations
                ],
            }
        ]
        message = "\n".join(said for _, said in reading.violations)
        raise Refused(400, message, details=details)
    assert isinstance(request, dict)
    return request


def decoded(text: str) -> bytes:
    """Base64 in either alphabet, with its padding or without; ValueError if it is none."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as no:
        raise ValueError(str(no)) from None


class _Reading:
    """One request that is read; what is wrong with it is gathered, as the real one does."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.violations: list[tuple[str, str]] = []

    def message(self, shape: str, given: Any, path: str) -> Any:
        if not isinstance(given, dict):
            return self._wrong(path, f"{self.package}.{shape}", given)
        read: dict[str, Any] = {}
        for name, value in given.items():
            field = re.sub(r"(?<!^)([A-Z])", lambda found: "_" + found[1].lower(), name)
            kind = SHAPES[shape].get(field)
            if kind is None:
                at = f" at '{path}'" if path else ""
                self._violated(path, f'Unknown name "{name}"{at}: Cannot find field.')
            elif value is not None or kind == "Value":
                if shape == "Part" and field in PART_DATA and set(PART_DATA) & read.keys():
                    said = f"oneof field 'data' is already set. Cannot set '{name}'"
                    self.violations.append((path, f"Invalid value at '{path}' (oneof), {said}"))
                read[field] = self._field(kind, value, f"{path}.{field}" if path else field, name)
        return read

    def _field(self, kind: str, given: Any, path: str, name: str) -> Any:
        if kind.endswith("{}"):
            if not isinstance(given, dict):
                return self._wrong(path, "map", given)
            return {
                key: self._one(kind[:-2], value, f"{path}[{at}].value")
                for at, (key, value) in enumerate(given.items())
            }
        if kind.endswith("*"):
            if not isinstance(given, list):
                return self._wrong(path, f"{self.package}.{kind[:-1]}", given)
            return [self._one(kind[:-1], one, f"{path}[{at}]") for at, one in enumerate(given)]
        if isinstance(given, list) and kind != "Value":
            up = path.rpartition(".")[0]
            what = "Proto field is not repeating, cannot start list."
            return self._violated(up, f"Unknown name \"{name}\" at '{up}': {what}")
        return self._one(kind, given, path)

    def _one(self, kind: str, given: Any, path: str) -> Any:
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if enum := re.fullmatch(r"(\w+)\((.+)\)", kind):
            if isinstance(given, str) and given.upper() in enum[2].split("|"):
                return given.upper()
            return self._wrong(path, f"{self.package}.{enum[1]}", given)
        match kind:
            case "Value":
                return given
            case "Struct":
                wanted = "type.googleapis.com/google.protobuf.Struct"
                return given if isinstance(given, dict) else self._wrong(path, wanted, given)
            case "string":
                return given if isinstance(given, str) else self._wrong(path, "TYPE_STRING", given)
            case "bool":
                return given if isinstance(given, bool) else self._wrong(path, "TYPE_BOOL", given)
            case "float":
                return given if number else self._wrong(path, "TYPE_FLOAT", given)
            case "int":
                # A whole number may be written as text, and as 3.0.
                if isinstance(given, str) and re.fullmatch(r"-?\d+", given):
                    return int(given)
                whole = number and float(given).is_integer()
                return int(given) if whole else self._wrong(path, "TYPE_INT32", given)
            case "bytes":
                return self._bytes(given, path)
        return self.message(kind, given, path)

    def _bytes(self, given: Any, path: str) -> Any:
        if not isinstance(given, str):
            return self._wrong(path, "TYPE_BYTES", given)
        try:
            return decoded(given)
        except ValueError:
            said = f'Base64 decoding failed for "{given}"'
            self.violations.append((path, f"Invalid value at '{path}' (TYPE_BYTES), {said}"))
            return b""

    def _wrong(self, path: str, wanted: str, given: Any) -> Any:
        at = f" at '{path}'" if path else ""
        self.violations.append((path, f"Invalid value{at} ({wanted}), {json.dumps(given)}"))

    def _violated(self, path: str, said: str) -> Any:
        self.violations.append((path, f"Invalid JSON payload received. {said}"))
