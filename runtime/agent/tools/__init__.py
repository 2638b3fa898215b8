"""Tools: their definition, and calling one by name with JSON arguments."""
