"""Transfer: export files, their import into another ledger, and backups."""
