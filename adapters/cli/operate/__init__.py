"""Commands that operate runs: pending, resolve, recover, abandon, replay."""
