"""Google Gemini: adapter, wire format and streaming."""
