"""The PostgreSQL store: transactions, connections and their loss, positions, standbys."""
