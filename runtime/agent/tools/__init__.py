"""Tools: their definition, and calling one by name with JSON arguments."""

from turnledger.runtime.agent.tools.call import (
    Invocation,
    call_by_name,
    call_tool,
    invoke,
    parse_arguments,
    render_result,
)
from turnledger.runtime.agent.tools.tool import (
    RejectedToolParams,
    Tool,
    ToolRegistry,
    ToolResult,
    tool_to_spec,
)

__all__ = [
    "Invocation",
    "RejectedToolParams",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "call_by_name",
    "call_tool",
    "invoke",
    "parse_arguments",
    "render_result",
    "tool_to_spec",
]
