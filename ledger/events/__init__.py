"""Events: their types, messages, blobs, size limits, upcasters, and the hash chain."""
