"""OpenTelemetry: runs as spans of the GenAI semantic conventions, exported once or live."""

from turnledger.ledger import MissingDependencyError

try:
    import google.protobuf.json_format  # noqa: F401
    import opentelemetry.exporter.otlp.proto.common.trace_encoder
    import opentelemetry.sdk.trace.export  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("Exporting runs to OpenTelemetry", "telemetry") from error
