"""OpenTelemetry: spans of runs, once (`export_spans`, `otlp_json`) and live (`watch`)."""

from turnledger.adapters.telemetry.export import SpanExportError as SpanExportError
from turnledger.adapters.telemetry.export import export_spans as export_spans
from turnledger.adapters.telemetry.export import otlp_json as otlp_json
from turnledger.adapters.telemetry.export import watch as watch

__all__ = ["SpanExportError", "export_spans", "otlp_json", "watch"]
