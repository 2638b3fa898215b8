"""Live replay: chosen models or tools are called for real, the rest is recorded."""
