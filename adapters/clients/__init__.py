"""Wrapped SDK clients: model calls of any program as durable steps, recorded at the wire."""
