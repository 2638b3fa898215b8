"""The doing: the loop that decides, performs and records."""
