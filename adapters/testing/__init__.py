"""Testing: the pytest plugin, replay of recorded histories, a guard against the network."""
