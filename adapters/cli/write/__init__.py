"""Commands that write events: append and fork."""
