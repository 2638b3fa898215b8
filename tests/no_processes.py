"""pytest plugin of `make unit` (`--no-processes`): a test that starts a process or server fails.

Such a test is marked `process`, and `make unit` leaves it out.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

FORBIDDEN = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
_running: list[str] = []


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _running:
        return
    listens = event == "socket.bind" and isinstance(arguments[1], tuple)  # not a file
    if event in FORBIDDEN or listens:
        pytest.fail(f"{_running[0]} is not marked `process`, but did {event}.", pytrace=True)


def pytest_configure() -> None:
    sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    _running[:] = [item.nodeid]
    try:
        return (yield)
    finally:
        _running.clear()
