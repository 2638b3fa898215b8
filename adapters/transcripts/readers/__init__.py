"""Transcript readers: one for each provider's JSON format."""
