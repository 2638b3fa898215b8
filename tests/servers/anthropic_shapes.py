"""What a request to Anthropic's Messages API may hold: its fields, their types and their values.

What its parts may be to each other is not here but in `anthropic_rules`.
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
    model_config = ConfigDict(extra="forbid", strict=True)


class CacheControl(Shape):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class Cacheable(Shape):
    cache_control: CacheControl | None = None


class Base64Source(Shape):
    type: Literal["base64"]
    media_type: str
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


class Base64Image(Base64Source):
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]


class Base64Pdf(Base64Source):
    media_type: Literal["application/pdf"]


class PlainText(Shape):
    type: Literal["text"]
    media_type: Literal["text/plain"]
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


class Text(Cacheable):
    type: Literal["text"]
    text: str
    citations: list[dict[str, Any]] | None = None


class Image(Cacheable):
    type: Literal["image"]
    source: Annotated[Base64Image | Url, Field(discriminator="type")]


class Citations(Shape):
    enabled: bool


class Document(Cacheable):
    type: Literal["document"]
    source: Annotated[Base64Pdf | PlainText | Url, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None


class Caller(Shape):
    type: Literal["direct"]


class ToolUse(Cacheable):
    type: Literal["tool_use"]
    id: Id
    name: Name
    input: dict[str, Any]
    caller: Caller | None = None
    toolset_name: None = None


class ToolResult(Cacheable):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: Annotated[
        list[Annotated[Text | Image | Document, Field(discriminator="type")]],
        BeforeValidator(_as_result),
    ] = []
    is_error: bool = False


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
    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["object"]
    properties: dict[str, Any] | None = None
    required: list[str] | None = None

    @field_validator("properties")
    @classmethod
    def _keys(cls, properties: dict[str, Any] | None) -> dict[str, Any] | None:
        pattern = "^[a-zA-Z0-9_.-]{1,64}$"
        if not all(re.match(pattern, key) for key in properties or ()):
            raise PydanticCustomError("keys", f"Property keys should match pattern '{pattern}'")
        return properties


class Tool(Cacheable):
    type: Literal["custom"] | None = None
    name: Name
    description: str = ""
    input_schema: InputSchema
    strict: bool = False
    defer_loading: bool = False
    eager_input_streaming: bool | None = None
    input_examples: list[dict[str, Any]] = []
    allowed_callers: list[Literal["direct"]] = ["direct"]


class Auto(Shape):
    type: Literal["auto"]
    disable_parallel_tool_use: bool = False


class AnyTool(Shape):
    type: Literal["any"]
    disable_parallel_tool_use: bool = False


class OneTool(Shape):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class NoTool(Shape):
    type: Literal["none"]


class Enabled(Shape):
    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1024)]
    display: Literal["summarized", "omitted"] | None = None


class Adaptive(Shape):
    type: Literal["adaptive"]
    display: Literal["summarized", "omitted"] | None = None


class Disabled(Shape):
    type: Literal["disabled"]


class JsonFormat(Shape):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Shape):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class Metadata(Shape):
    user_id: str | None = None


class Request(Cacheable):
    model: Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)]
    messages: list[Message]
    system: Annotated[list[Text], BeforeValidator(_as_blocks)] = []
    metadata: Metadata | None = None
    stop_sequences: list[str] = []
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    service_tier: Literal["auto", "standard_only"] = "auto"
    inference_geo: str | None = None
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
