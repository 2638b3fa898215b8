"""Supervision of one sandboxed command: its output, its time and the space that it takes.

What a sandbox can't limit by itself is looked at several times a second. The sandbox's own way to
kill everything in it is handed in.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

from turnledger.runtime.workspace import (
    LIMITS,
    SandboxCommand,
    SandboxOutcome,
    SandboxUnavailableError,
)

# The user that commands run as if this process is root: nobody.
UNPRIVILEGED = 65534
# What a command finds in its environment, beside PATH. Python writes no bytecode files, which
# differ from run to run.
ENVIRONMENT = {
    "HOME": "/tmp",  # noqa: S108 - within the sandbox
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}
_LOOK_SECONDS = 0.1
# How much of the disk is taken before the workspace is measured again.
_MEASURE_BYTES = 64 * 1024**2
_MEASURE_FILES = 10_000


def supervise(
    process: subprocess.Popen[bytes],
    command: SandboxCommand,
    kill: Callable[[], None],
    exceeded: Sequence[Callable[[], str]],
) -> SandboxOutcome:
    """Read the output until the process has ended; kill it if it exceeds a limit.

    Args:
        process: The sandbox, with pipes for standard output and standard error.
        command: What it executes.
        kill: Ends the process and everything in the sandbox.
        exceeded: Each returns the limit that is exceeded now, or empty text.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    outputs = [_Output(), _Output()]
    ends = time.monotonic() + command.timeout_seconds
    timeout = f"{command.timeout_seconds} seconds"
    stopped = ""
    with process.stdout, process.stderr:
        with selectors.DefaultSelector() as selector:
            for pipe, output in zip((process.stdout, process.stderr), outputs, strict=True):
                selector.register(pipe, selectors.EVENT_READ, output)
            look_at = 0.0
            while selector.get_map():
                for key, _ in selector.select(_LOOK_SECONDS):
                    if not key.data.read(key.fd):
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                if stopped or now < look_at:
                    continue
                look_at = now + _LOOK_SECONDS
                reasons = (look() for look in exceeded)
                stopped = timeout if now >= ends else next(filter(None, reasons), "")
                if stopped:
                    kill()
        exit_code = process.wait()
    return SandboxOutcome(
        exit_code=exit_code if exit_code >= 0 else 128 - exit_code,
        stdout=outputs[0].text(),
        stderr=outputs[1].text(),
        truncated=any(output.is_cut for output in outputs),
        stopped=stopped,
        timed_out=stopped == timeout,
    )


class _Output:
    """The beginning of an output; the rest is read and dropped, so that no writer waits."""

    def __init__(self) -> None:
        self._kept = b""
        self.is_cut = False

    def read(self, pipe: int) -> bool:
        """Read what there is; False at the end."""
        chunk = os.read(pipe, 1 << 16)
        room = LIMITS.output_bytes // 2 - len(self._kept)
        self._kept += chunk[:room]
        self.is_cut |= len(chunk) > room
        return bool(chunk)

    def text(self) -> str:
        # A character that the cut has split is left out.
        kept = self._kept
        if self.is_cut:
            kept = kept[: len(kept) - _split_character(kept)]
        return kept.decode(errors="replace")


def _split_character(data: bytes) -> int:
    """Return how many bytes at the end begin a UTF-8 character without ending it."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return back if length > back else 0
    return 0


class WorkspaceSpace:
    """Finds out whether the workspace exceeds its limits, without walking through it each time.

    It is measured when the disk has lost space, to whomever.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._bytes, self._files = self._free()

    def exceeded(self) -> str:
        free_bytes, free_files = self._free()
        taken = self._bytes - free_bytes, self._files - free_files
        if taken[0] < _MEASURE_BYTES and taken[1] < _MEASURE_FILES:
            return ""
        self._bytes, self._files = free_bytes, free_files
        return self._measured()

    def _free(self) -> tuple[int, int]:
        disk = os.statvfs(self._directory)
        return disk.f_bfree * disk.f_frsize, disk.f_ffree

    def _measured(self) -> str:
        used, count, folders = 0, 0, [str(self._directory)]
        while folders:
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        used += status.st_blocks * 512
                        count += 1
                        if S_ISDIR(status.st_mode):
                            folders.append(entry.path)
                    if used > LIMITS.workspace_bytes:
                        return f"{LIMITS.workspace_bytes // 1024**2} MiB of files in the workspace"
                    if count > LIMITS.workspace_files:
                        return f"{LIMITS.workspace_files:,} files in the workspace"
        return ""


def prepared(directory: Path) -> Path:
    """Return the path of a workspace; as root, make everything in it belong to nobody.

    SandboxUnavailableError if that is not possible. Links are not followed.
    """
    try:
        found = directory.resolve(strict=True)
        if os.geteuid() == 0:
            _give_to_nobody(found)
    except OSError as error:
        raise SandboxUnavailableError(f"The workspace can't be used: {error}") from error
    return found


def _give_to_nobody(directory: Path) -> None:
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _, folders, files, folder in os.fwalk(dir_fd=top):
            for name in (".", *folders, *files):
                with suppress(FileNotFoundError):
                    if os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid != UNPRIVILEGED:
                        owner = UNPRIVILEGED, UNPRIVILEGED
                        os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(top)
