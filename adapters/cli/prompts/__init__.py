"""Commands about prompt overrides: who changed a prompt, when, and which runs used which text."""
