"""OpenAI: adapter, chat completions and the Responses API."""
