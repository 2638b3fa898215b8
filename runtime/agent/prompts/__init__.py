"""Prompts: templates, sections, rendering, structured output."""
