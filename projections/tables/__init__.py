"""Tables: projections over all runs, kept in the ledger, caught up and rebuilt."""
