"""Prompt overrides: texts that replace those of a prompt's sections and tools, with their history."""
