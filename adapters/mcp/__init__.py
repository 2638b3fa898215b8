"""MCP: a read-only server over stdio, by which coding agents look at the runs of a ledger."""

from turnledger.ledger import MissingDependencyError

try:
    import mcp.server.mcpserver  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("The MCP server", "mcp") from error
