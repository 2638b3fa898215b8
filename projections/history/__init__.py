"""MessageHistory: the conversation of one evaluation, valid for a provider by construction."""
