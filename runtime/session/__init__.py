"""The session: state of a run that its tools and prompts read and change."""
