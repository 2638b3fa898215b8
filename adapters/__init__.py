"""The edges: the command line, and everything else that talks to the outside."""
