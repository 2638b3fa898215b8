"""Processor time of other processes: a PostgreSQL server with its backends, a worker."""

from __future__ import annotations

from contextlib import suppress

import psutil


def server_seconds(postmaster: psutil.Process) -> float:
    """Of a server, its processes, and those that have ended."""
    spent = postmaster.cpu_times()
    ended = spent.children_user + spent.children_system
    total = spent.user + spent.system + ended
    for child in postmaster.children():
        with suppress(psutil.NoSuchProcess):
            total += process_seconds(child)
    return float(total)


def process_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)
