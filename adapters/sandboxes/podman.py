"""PodmanRunner: commands in a container of an image that is on this machine.

The image is never pulled. The container's limits are those of cgroups, for all its processes
together.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from turnledger.adapters.sandboxes.supervision import (
    ENVIRONMENT,
    UNPRIVILEGED,
    WorkspaceSpace,
    prepared,
    supervise,
)
from turnledger.ledger.arguments import check_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.runtime.workspace import (
    LIMITS,
    SandboxCommand,
    SandboxOutcome,
    SandboxUnavailableError,
)

IMAGE = "docker.io/library/python:3.12-slim"
# Process 1 of the container. It ends, and with it the container, when standard input does: when
# the process that called `run` is gone, which podman itself does not notice.
_STARTED = "turnledger: the command starts now"
_INIT = f"""
import os, subprocess, sys, threading
def end_with_caller():
    while os.read(0, 4096):
        pass
    os._exit(137)
threading.Thread(target=end_with_caller, daemon=True).start()
print({_STARTED!r}, file=sys.stderr, flush=True)
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
child.communicate(sys.argv[1].encode())
os._exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)
"""


@check_methods()
class PodmanRunner:
    """Executes each command in a new container, which is removed after it.

    As root, the command runs as `nobody`, whom the files of the workspace then belong to; else
    they stay the calling user's, who has the same number in the container.
    """

    name = "podman"

    def __init__(self, image: str = IMAGE) -> None:
        """Use an image with `sh` and `python3`, by the name that `podman images` has for it."""
        if not image or image.startswith("-") or not image.isprintable():
            raise InvalidInputError(f"Invalid image {short_repr(image)}: expected its name.")
        self.image = image

    def run(self, directory: Path, command: SandboxCommand) -> SandboxOutcome:
        """Execute a command; SandboxUnavailableError if the sandbox can't start it."""
        directory = prepared(directory)
        container = f"turnledger-{uuid4()}"
        try:
            process = subprocess.Popen(  # noqa: S603 - it is what a sandbox is for
                self._podman_run(container, directory, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Where nothing can be written: podman's monitor leaves a file in its working
                # directory when the memory limit is exceeded.
                cwd="/proc",
            )
        except OSError as error:
            raise SandboxUnavailableError(f"podman can't be started: {error}") from error

        def kill() -> None:
            if process.poll() is None:
                subprocess.run(  # noqa: S603
                    ["podman", "rm", "--force", "--time=0", container],  # noqa: S607
                    capture_output=True,
                    check=False,
                )
                process.kill()

        assert process.stdin is not None
        with process.stdin:
            try:
                space = WorkspaceSpace(directory)
                outcome = supervise(process, command, kill, [space.exceeded])
            finally:
                kill()
                process.wait()
        before, started, stderr = outcome.stderr.partition(f"{_STARTED}\n")
        if not started and not outcome.stopped:
            raise SandboxUnavailableError(f"podman could not start the command: {before}")
        return replace(outcome, stderr=stderr)

    def _podman_run(self, container: str, directory: Path, command: SandboxCommand) -> list[str]:
        mebibytes = LIMITS.temporary_bytes // 1024**2
        argv = ["podman", "run", "--rm", "--interactive", "--pull=never", f"--name={container}"]
        argv += ["--network=none", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
        argv += ["--security-opt=no-new-privileges", "--security-opt=label=disable"]
        argv += ["--log-driver=none", "--hostname=sandbox", "--http-proxy=false"]
        argv += [f"--memory={LIMITS.memory_bytes}", f"--memory-swap={LIMITS.memory_bytes}"]
        argv += [f"--pids-limit={LIMITS.processes}", f"--shm-size={mebibytes}m", "--ulimit=core=0"]
        argv += [f"--ulimit=fsize={LIMITS.file_bytes}", f"--ulimit=nofile={LIMITS.open_files}"]
        # The default of podman may be above what this process may set.
        argv += [f"--ulimit=nproc={LIMITS.processes}"]
        # If neither this process nor its pipe ends the container.
        argv += [f"--timeout={command.timeout_seconds + 5}"]
        if os.geteuid() == 0:
            argv += [f"--user={UNPRIVILEGED}:{UNPRIVILEGED}"]
        else:
            argv += ["--userns=keep-id", f"--user={os.geteuid()}:{os.getegid()}"]
        argv += [f"--env={name}={value}" for name, value in ENVIRONMENT.items()]
        argv += [f"--tmpfs=/tmp:rw,size={mebibytes}m,mode=1777"]
        source = str(directory).replace('"', '""')
        argv += ["--mount", f'type=bind,"source={source}",target=/workspace']
        argv += ["--workdir=/workspace", "--entrypoint=python3", self.image]
        return [*argv, "-I", "-c", _INIT, command.stdin, *command.argv]
