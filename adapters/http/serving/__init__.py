"""Server process of the HTTP API: listener, guarded connections, start and graceful stop."""

from turnledger.ledger import MissingDependencyError

try:
    import fastapi  # noqa: F401
    import h11  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("The HTTP server", "http") from error
