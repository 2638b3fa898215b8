"""BubblewrapRunner: commands in a sandbox of Linux namespaces, made by `bwrap`.

Needs no daemon and no image: a command sees the system's /usr read-only, Python's own
installation read-only, the workspace, and nothing else of the disk.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from turnledger.adapters.sandboxes.supervision import (
    ENVIRONMENT,
    UNPRIVILEGED,
    WorkspaceSpace,
    prepared,
    supervise,
)
from turnledger.ledger.arguments import check_methods
from turnledger.runtime.workspace import (
    LIMITS,
    SandboxCommand,
    SandboxOutcome,
    SandboxUnavailableError,
)

_NAMESPACES = ("ipc", "pid", "net", "uts", "cgroup-try")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OTHERS = ("/usr", "/nix/store", "/etc/alternatives", "/etc/ld.so.cache")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@check_methods()
class BubblewrapRunner:
    """Executes commands with `bwrap`, and with `prlimit` and `setpriv` of util-linux.

    As root, it makes the namespaces without a user namespace and becomes nobody for the command:
    a user who is root outside of a user namespace owns the machine's devices also within one. So
    that the command can write, the files of the workspace then belong to nobody.
    """

    name = "bubblewrap"

    def run(self, directory: Path, command: SandboxCommand) -> SandboxOutcome:
        """Execute a command; SandboxUnavailableError if the sandbox can't start it."""
        directory = prepared(directory)
        status, status_for_bwrap = os.pipe()
        stdin = os.memfd_create("stdin")
        try:
            os.write(stdin, command.stdin.encode())
            os.lseek(stdin, 0, os.SEEK_SET)
            try:
                process = subprocess.Popen(  # noqa: S603 - it is what a sandbox is for
                    _bwrap(directory, command, status_for_bwrap),
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[status_for_bwrap],
                    env={},
                )
            except OSError as error:
                raise SandboxUnavailableError(f"bwrap can't be started: {error}") from error
            finally:
                os.close(status_for_bwrap)
            with open(status, "rb", closefd=False) as told:
                return _supervised(process, command, directory, iter(told))
        finally:
            os.close(stdin)
            os.close(status)


def _supervised(
    process: subprocess.Popen[bytes],
    command: SandboxCommand,
    directory: Path,
    told: Iterator[bytes],
) -> SandboxOutcome:
    init: int | None = None

    def kill() -> None:
        """Kill process 1 of the namespace; it has ended when the kernel has ended all others."""
        if init is None:
            process.kill()
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(init, signal.SIGKILL)
        ended = select.poll()
        ended.register(init)
        ended.poll()

    try:
        # The first line comes as soon as process 1 of the sandbox exists; none comes without it.
        if first := next(told, b""):
            init = os.pidfd_open(msgspec.json.decode(first)["child-pid"])
        space = WorkspaceSpace(directory)
        outcome = supervise(
            process, command, kill, [space.exceeded, lambda: _memory_exceeded(process.pid)]
        )
    finally:
        kill()
        process.wait()
        if init is not None:
            os.close(init)
    if not outcome.stopped and not any(b"exit-code" in line for line in told):
        raise SandboxUnavailableError(f"bwrap could not start the command: {outcome.stderr}")
    return outcome


def _bwrap(directory: Path, command: SandboxCommand, status: int) -> list[str]:
    is_root = os.geteuid() == 0
    python = Path(sys.base_prefix)
    argv = ["bwrap", "--die-with-parent", "--new-session", "--json-status-fd", str(status)]
    argv += [f"--unshare-{one}" for one in _NAMESPACES]
    if is_root:
        argv += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        argv += ["--unshare-user", "--disable-userns", "--uid", str(UNPRIVILEGED)]
        argv += ["--gid", str(UNPRIVILEGED)]
    argv += ["--hostname", "sandbox", "--clearenv"]
    path = os.pathsep.join(dict.fromkeys([f"{python}/bin", "/usr/local/bin", "/usr/bin", "/bin"]))
    for name, value in {"PATH": path, **ENVIRONMENT}.items():
        argv += ["--setenv", name, value]
    for folder in _OTHERS:
        argv += ["--ro-bind-try", folder, folder]
    for folder in _SYSTEM:
        if os.path.islink(folder):
            argv += ["--symlink", os.readlink(folder), folder]
        else:
            argv += ["--ro-bind-try", folder, folder]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", "/dev/shm"):  # noqa: S108 - within the sandbox
        argv += ["--perms", "1777", "--size", str(LIMITS.temporary_bytes), "--tmpfs", folder]
    if not python.is_relative_to("/usr"):
        # Else bwrap gives the directories above it the modes that they have outside.
        for above in reversed(python.parents[:-1]):
            argv += ["--dir", str(above)]
        argv += ["--ro-bind", str(python), str(python)]
    argv += ["--bind", str(directory), "/workspace"]
    # Both are file systems in memory, without a limit of their size.
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--", "prlimit"]
    # Within the sandbox: the user outside may have more processes than this already.
    argv += [
        f"--as={LIMITS.memory_bytes}",
        f"--fsize={LIMITS.file_bytes}",
        f"--nproc={LIMITS.processes}",
        f"--nofile={LIMITS.open_files}",
        f"--cpu={command.timeout_seconds + 1}",
        "--core=0",
        "setpriv",
        "--inh-caps=-all",
    ]
    if is_root:
        argv += [f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups"]
    # However many processes it starts, the one that supervises it is served before them.
    argv += ["nice", "-n", "10"]
    # Not bwrap's own --chdir: as root it lacks the capability to enter what is another user's.
    return [*argv, "env", "--chdir=/workspace", *command.argv]


# --- memory ---


def _memory_exceeded(process: int) -> str:
    # What processes share is counted for each at first, which is much quicker.
    for measure in (_resident, _proportional):
        if sum(map(measure, _descendants(process))) <= LIMITS.memory_bytes:
            return ""
    return f"{LIMITS.memory_bytes // 1024**2} MiB of memory"


def _descendants(process: int) -> Iterator[str]:
    """Iterate over the processes below one; process 1 of a namespace adopts all orphans."""
    waiting = [str(process)]
    while waiting:
        one = waiting.pop()
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError):
                    children = Path(f"/proc/{one}/task/{thread}/children").read_text()
                    waiting += children.split()
        yield one


def _resident(process: str) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    return 0


def _proportional(process: str) -> int:
    """Return the bytes of a process, with its share of what it has in common with others."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(process)  # it hides its memory map
