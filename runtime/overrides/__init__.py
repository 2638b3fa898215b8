"""Prompt overrides: texts that replace those of sections and tools, with their history."""
