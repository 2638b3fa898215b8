"""Sandboxes: runners that execute commands in podman or bubblewrap."""
