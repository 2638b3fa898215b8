"""The SQLite store, the default: one file in WAL mode, with a lock between processes."""
