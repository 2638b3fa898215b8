"""The process that forks: `python -m tests.crash.driver SCENARIO`, arguments as JSON on stdin.

pytest has threads and is not forked. Each scenario is a function `run(crew, **arguments)`
in a module of its name, here or (with dots) elsewhere; what it returns is printed as JSON
for the test to judge.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.processes import Crew

ROOT = Path(__file__).parents[2]
SPARE_SECONDS = 20.0


class DriverFailedError(Exception):
    """A scenario did not come to its end; its own words follow."""


def drive(scenario: str, *, seconds: float, **arguments: Any) -> dict[str, Any]:
    """Run a scenario in a driver of its own; nothing that it started is left behind."""
    order = msgspec.json.encode({"seconds": seconds, **arguments})
    command = [sys.executable, "-W", "error", "-m", "tests.crash.driver", scenario]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as driver:
        try:
            # Children hold these pipes too: when this returns, all of them have ended.
            out, err = driver.communicate(order, timeout=seconds + SPARE_SECONDS)
        except BaseException:
            os.killpg(driver.pid, signal.SIGKILL)
            raise
    if driver.returncode != 0:
        raise DriverFailedError(f"{scenario} {arguments}\n{err.decode(errors='replace')}")
    answer: dict[str, Any] = msgspec.json.decode(out)
    return answer


def main() -> None:
    arguments = msgspec.json.decode(sys.stdin.buffer.read())
    seconds = arguments.pop("seconds")
    if "postgresql://" in str([arguments.get("url"), arguments.get("urls")]):
        importlib.import_module("turnledger.ledger.stores.postgres.store")
    name = sys.argv[1]
    scenario = importlib.import_module(name if "." in name else f"tests.crash.{name}")
    gc.freeze()
    with Crew(seconds) as crew:
        answer = scenario.run(crew, **arguments)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
