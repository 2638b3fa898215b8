"""Commands that write: append, fork and what-if."""
