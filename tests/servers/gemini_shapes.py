"""What a request to Gemini's generateContent may hold: read with the types of Google's SDK.

Names may come in camelCase or in snake_case, and the official client mixes the two. What the
parts may be to each other is not here but in `gemini_rules`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from tests.servers.sdk_types import Violation, validator_of, violation_of
from tests.servers.serving import Refused


def shaped(body: Any) -> dict[str, Any]:
    """The request with all its names in snake_case and its bytes decoded."""
    if not isinstance(body, dict):
        raise Refused(400, f"Invalid value (GenerateContentRequest), {json.dumps(body)}")
    if (found := violation_of("gemini", body)) is not None:
        _refuse(found)
    request = validator_of("gemini").validate_json(json.dumps(body), strict=True)
    # Without warnings that a word is no enum.
    data = request.model_dump(exclude_unset=True, exclude_none=True, warnings=False)
    assert isinstance(data, dict)
    return data


def _refuse(found: Violation) -> None:
    """400, as Google says it."""
    field = re.sub(r"(?<=[a-z])([A-Z])", lambda upper: "_" + upper[1].lower(), found.at())
    if found.kind == "unknown":
        field, _, name = field.rpartition(".")
        at = f" at '{field}'" if field else ""
        name = found.path[-1]
        said = f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'
    else:
        said = f"Invalid value at '{field}' ({found.expected}), {json.dumps(found.given)}"
    violations = [{"field": field, "description": said}]
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}
    raise Refused(400, said, details=[detail])


def decoded(text: str) -> bytes:
    """Base64 in either alphabet, with its padding or without; ValueError if it is none."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as no:
        raise ValueError(str(no)) from None
