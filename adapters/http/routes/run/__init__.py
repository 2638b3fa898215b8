"""The operations on one run: events, states, values, claims, decisions and forks."""
