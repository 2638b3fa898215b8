"""What a request to Anthropic's Messages API may hold that the SDK's types do not say.

Only what has a limit, or is looked at by `anthropic_rules`, is told here: of a request whose types
are right. What its parts may be to each other is in `anthropic_rules`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
)
from pydantic_core import PydanticCustomError

from tests.servers.serving import Refused


def _as_blocks(given: Any) -> Any:
    """A string is short for one text block."""
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


def _as_result(given: Any) -> Any:
    """A tool's result may be an empty string, or only space: neither is a text block then."""
    return [] if isinstance(given, str) and not given.strip() else _as_blocks(given)


def _custom(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return "custom" if kind is None else str(kind)


Id: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")]
Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]


class Shape(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Base64Source(Shape):
    type: Literal["base64"]
    data: str

    @field_validator("data")
    @classmethod
    def _is_base64(cls, data: str) -> str:
        try:
            decoded = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise PydanticCustomError("base64", "invalid base64 data") from None
        if not decoded:
            raise PydanticCustomError("base64", "data cannot be empty")
        return data


class PlainText(Shape):
    type: Literal["text"]
    data: Annotated[str, Field(min_length=1)]


class Url(Shape):
    type: Literal["url"]
    url: str

    @field_validator("url")
    @classmethod
    def _is_https(cls, url: str) -> str:
        if not url.startswith("https://"):
            raise PydanticCustomError("url", "Only HTTPS URLs are supported.")
        return url


class Text(Shape):
    type: Literal["text"]
    text: str
    citations: list[dict[str, Any]] | None = None


class Image(Shape):
    type: Literal["image"]
    source: Annotated[Base64Source | Url, Field(discriminator="type")]


class Document(Shape):
    type: Literal["document"]
    source: Annotated[Base64Source | PlainText | Url, Field(discriminator="type")]


class ToolUse(Shape):
    type: Literal["tool_use"]
    id: Id
    name: Name


class ToolResult(Shape):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: Annotated[
        list[Annotated[Text | Image | Document, Field(discriminator="type")]],
        BeforeValidator(_as_result),
    ] = []


class Thinking(Shape):
    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedThinking(Shape):
    type: Literal["redacted_thinking"]
    data: Annotated[str, Field(min_length=1)]


Block: TypeAlias = Annotated[
    Text | Image | Document | ToolUse | ToolResult | Thinking | RedactedThinking,
    Field(discriminator="type"),
]


class Message(Shape):
    role: Literal["user", "assistant"]
    content: Annotated[list[Block], BeforeValidator(_as_blocks)]


class InputSchema(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: Literal["object"]
    properties: dict[str, Any] | None = None

    @field_validator("properties")
    @classmethod
    def _keys(cls, properties: dict[str, Any] | None) -> dict[str, Any] | None:
        pattern = "^[a-zA-Z0-9_.-]{1,64}$"
        if not all(re.match(pattern, key) for key in properties or ()):
            raise PydanticCustomError("keys", f"Property keys should match pattern '{pattern}'")
        return properties


class Tool(Shape):
    type: Literal["custom"] | None = None
    name: Name
    input_schema: InputSchema
    strict: bool = False


class Auto(Shape):
    type: Literal["auto"]


class AnyTool(Shape):
    type: Literal["any"]


class OneTool(Shape):
    type: Literal["tool"]
    name: str


class NoTool(Shape):
    type: Literal["none"]


class Enabled(Shape):
    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1024)]


class Adaptive(Shape):
    type: Literal["adaptive"]


class Disabled(Shape):
    type: Literal["disabled"]


class JsonFormat(Shape):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Shape):
    format: JsonFormat | None = None


class Request(Shape):
    model: Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)]
    messages: list[Message]
    system: Annotated[list[Text], BeforeValidator(_as_blocks)] = []
    stop_sequences: list[str] = []
    # Of the older version alone: the SDK's types no longer know these.
    temperature: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    top_k: Annotated[int, Field(ge=0, strict=True)] | None = None
    output_config: OutputConfig | None = None
    thinking: Annotated[Enabled | Adaptive | Disabled, Field(discriminator="type")] | None = None
    tool_choice: (
        Annotated[Auto | AnyTool | OneTool | NoTool, Field(discriminator="type")] | None
    ) = None
    # The second kind is there to have kinds at all: errors name a tool's.
    tools: list[
        Annotated[
            Annotated[Tool, Tag("custom")] | Annotated[None, Tag("none")],
            Discriminator(
                _custom,
                custom_error_type="tool",
                custom_error_message="Input tag does not match any of the expected tags: 'custom'",
            ),
        ]
    ] = []


def shaped(body: Any) -> Request:
    try:
        return Request.model_validate(body)
    except ValidationError as no:
        first = no.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise Refused(400, f"{where}: {first['msg']}" if where else first["msg"]) from None
