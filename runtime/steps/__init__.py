"""Durable steps: named calls of any program, recorded as the calls of tools and models are."""
