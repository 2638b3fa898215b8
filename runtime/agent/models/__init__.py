"""Requests to a model: options, retries, deadline and budget."""
