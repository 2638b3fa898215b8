"""Commands that operate runs: pending, resolve, recover, run, abandon, replay."""
