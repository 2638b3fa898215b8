"""The loop: decide the next effect, perform it, record its events."""
