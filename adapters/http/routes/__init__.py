"""The operations of the API, one class for each group."""
