"""Where a test may mount a disk of its own: a mount namespace, as root or as any user."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
# As root a namespace is enough; others become root in a user namespace, where that is allowed.
WAYS = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])
PATIENCE = 120


@functools.cache
def namespace() -> tuple[str, ...]:
    """The command that lets another one mount things; skips the test where nothing does."""
    trial = ["sh", "-c", "mount -t tmpfs -o size=64k none /tmp"]
    said = []
    for way in WAYS if os.geteuid() == 0 else WAYS[1:]:
        try:
            done = subprocess.run([*way, "--", *trial], capture_output=True, text=True)
        except FileNotFoundError as error:
            said.append(str(error))
            continue
        if done.returncode == 0:
            return (*way, "--")
        said.append(f"{' '.join(way)}: {done.stderr.strip()}")
    pytest.skip(f"This machine lets nobody mount a small disk to fill: {'; '.join(said)}")


def on_a_small_disk(scenario: str, folder: Path) -> dict[str, Any]:
    """Play a scenario of `small_disk.py` in a process that has its own mounts."""
    folder.mkdir(exist_ok=True)
    command = [*namespace(), sys.executable, "-m", "tests.faults.small_disk", scenario, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = msgspec.json.decode(done.stdout)
    return told
