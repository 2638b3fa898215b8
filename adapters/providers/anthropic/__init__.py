"""Anthropic: adapter, wire format and streaming."""
