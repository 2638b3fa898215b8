"""What an agent is made of: prompts, tools, messages, schemas, model requests."""
