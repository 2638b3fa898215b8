"""Sandboxes: runners that execute commands in podman or bubblewrap."""

from turnledger.adapters.sandboxes.bubblewrap import BubblewrapRunner
from turnledger.adapters.sandboxes.find import find_runner, trial
from turnledger.adapters.sandboxes.podman import PodmanRunner

__all__ = ["BubblewrapRunner", "PodmanRunner", "find_runner", "trial"]
