"""A workspace for agents: files, a sandbox, a plan and a digest, as sections of a prompt."""
