"""Session state: slices, their declared types and reducers, and queries for messages."""
