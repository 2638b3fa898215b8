"""Event types and what they are made of: messages, blobs, limits, upcasters, hash chain."""
