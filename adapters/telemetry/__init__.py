"""OpenTelemetry: runs as spans of the GenAI semantic conventions."""
