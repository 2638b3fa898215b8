"""The parts of an agent: prompts, tools, messages, JSON schemas, model requests."""
