"""An empty network for another process, where this machine lets us have one."""

from __future__ import annotations

import functools
import shutil
import subprocess


@functools.cache
def without_network() -> tuple[str, ...]:
    """The command that runs another one in an empty network; empty if there is none here."""
    for command in (("unshare", "-n"), ("unshare", "-rn")):
        if shutil.which(command[0]) is not None:
            tried = subprocess.run([*command, "true"], capture_output=True, timeout=30)
            if tried.returncode == 0:
                return command
    return ()
