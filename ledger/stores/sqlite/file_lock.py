"""File locks between processes: a fair write lock, and liveness files.

`flock` locks belong to an open file: the kernel frees them as soon as the process is dead,
however it died. `FairLock` makes writers wait in line: a process that writes in a loop can't
starve the others.
"""

from __future__ import annotations

import contextlib
import os
from _thread import start_new_thread
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from uuid import uuid4

from turnledger.ledger.errors import StoreBusyError, StoreUnavailableError
from turnledger.ledger.stores.sqlite.errors import not_opened

AT_ONCE = LOCK_EX | LOCK_NB


def _open(path: Path) -> int:
    # For those for whom the folder is.
    mode = path.parent.stat().st_mode & 0o666
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)


class _Ticket:
    """One wait in line: answered by the waiting thread, or given up by the one that asked.

    The first to take `settled` decides which. The answer is the lock, or `refused`: why the
    system does not give it.
    """

    __slots__ = ("answered", "refused", "settled")

    def __init__(self) -> None:
        self.refused: OSError | None = None
        self.settled = Lock()
        self.answered = Lock()
        self.answered.acquire()


class FairLock:
    """A lock between processes, with a queue of one before it.

    A process that wants the lock first takes the gate, and keeps it until it has the lock: the
    one that just released it has to queue behind. `flock` has no timeout, so a thread of its own
    waits in the kernel, started when there is something to wait for; the caller waits for that
    thread, with a timeout. Only one thread at a time may use it. Ctrl-C may interrupt that one
    anywhere, as long as it then calls `release`, which may be repeated.
    """

    def __init__(self, folder: Path, wait: float) -> None:
        self._gate = _open(folder / "gate")
        try:
            self._lock = _open(folder / "write")
        except BaseException:
            os.close(self._gate)
            raise
        self._what = str(folder)
        self._wait = wait
        self._asked: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._ticket: _Ticket | None = None
        # Whether the waiting thread was started. It closes the files when it ends.
        self.has_waiter = False
        self.is_closed = False
        # Whether the waiting thread is using the lock's file, or is about to. It is the same open
        # file, to which the kernel would give the lock at once: it must not be asked meanwhile.
        self._in_line = False

    def acquire(self) -> None:
        """Take the lock; StoreBusyError if that takes longer than the wait."""
        if not self.acquire_at_once():
            self.acquire_in_line()

    def acquire_at_once(self) -> bool:
        """Take the lock if it is free and no process is in line; after Ctrl-C it is not taken."""
        if self._in_line:
            return False
        try:
            try:
                flock(self._gate, AT_ONCE)
                flock(self._lock, AT_ONCE)
            finally:
                # Whether the gate was taken or not: Ctrl-C may come before that could be noted.
                flock(self._gate, LOCK_UN)
        except BlockingIOError:
            return False
        except BaseException:
            flock(self._lock, LOCK_UN)
            raise
        return True

    def release(self) -> None:
        """Give the lock back, or give up the wait for it. May be repeated."""
        ticket = self._ticket
        if ticket is not None:
            # If the waiting thread has not answered yet, it will find this and let go itself.
            ticket.settled.acquire(blocking=False)
            self._ticket = None
        flock(self._lock, LOCK_UN)

    def close(self) -> None:
        """Close the files, or have the waiting thread do it. May be repeated."""
        self.is_closed = True
        if self.has_waiter:
            self._asked.put(None)
        else:
            self._close_files()

    def forget(self) -> None:
        """In a forked child: let go of the parent's files without freeing its lock."""
        self._close_files()

    def acquire_in_line(self) -> None:
        """Wait for the lock behind processes that came first; StoreBusyError after the wait."""
        self._ticket = ticket = _Ticket()
        self._in_line = True
        if not self.has_waiter:
            self.has_waiter = True
            try:
                start_new_thread(self._wait_in_line, ())
            except RuntimeError as error:
                self.has_waiter = self._in_line = False
                raise StoreBusyError(
                    f"Another writer is at work, and no thread can be started to wait for it: "
                    f"{error}; nothing was written. Try again."
                ) from error
        self._asked.put(ticket)
        in_time = ticket.answered.acquire(timeout=self._wait)
        # If it can't be given up any more, it was answered just now.
        if in_time or not ticket.settled.acquire(blocking=False):
            if ticket.refused is not None:
                raise ticket.refused
            return
        raise StoreBusyError(
            f"Waited {self._wait} s for another writer ({self._what}); nothing was written. "
            "Try again, or open the ledger with a longer wait."
        )

    def _wait_in_line(self) -> None:
        while (ticket := self._asked.get()) is not None:
            self._in_line = True
            if not ticket.settled.locked():
                try:
                    flock(self._gate, LOCK_EX)
                    flock(self._lock, LOCK_EX)
                except OSError as error:
                    # For the caller: this thread goes on with the next ticket.
                    ticket.refused = error
                flock(self._gate, LOCK_UN)
                if ticket.settled.acquire(blocking=False):
                    ticket.answered.release()
                else:  # given up meanwhile
                    flock(self._lock, LOCK_UN)
            self._in_line = not self._asked.empty()
        self._close_files()

    def _close_files(self) -> None:
        gate, self._gate = self._gate, -1
        if gate >= 0:
            os.close(gate)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class NoLock:
    """In place of a FairLock where the ledger can only be read."""

    is_closed = False

    def acquire(self) -> None:
        pass

    def acquire_at_once(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass

    def forget(self) -> None:
        pass


class LivenessFile:
    """A file that this process keeps locked while it has the ledger open.

    Its name is the holder of a lease: other processes try the lock to see whether it is alive.
    """

    _fd = -1

    def __init__(self, folder: Path) -> None:
        _sweep(folder)
        while not self._is_made(folder):
            pass

    def _is_made(self, folder: Path) -> bool:
        self.name = f"alive-{uuid4()}"
        self._path = folder / self.name
        self._fd = _open(self._path)
        made = False
        try:
            flock(self._fd, LOCK_EX)
            # Another process may have swept it before it was locked; a locked one is never swept.
            made = self._path.exists()
        finally:
            if not made:
                self.forget()
        return made

    def close(self) -> None:
        # If it can't be removed (the disk went read-only), it is unlocked, which says enough.
        with contextlib.suppress(OSError):
            self._path.unlink()
        self.forget()

    def forget(self) -> None:
        """In a forked child: let go of the parent's file without freeing its lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = forget


def _sweep(folder: Path) -> None:
    """Remove the files of processes that were killed."""
    for path in folder.glob("alive-*"):
        with contextlib.suppress(StoreUnavailableError):
            is_alive(folder, path.name)


def is_alive(folder: Path, name: str) -> bool:
    """Whether the process that holds a liveness file is running; if not, the file is removed.

    True for a file that this user may not open: its process is not known to be dead.

    Raises:
        StoreUnavailableError: If the system can't open or lock files.
    """
    path = folder / Path(name).name
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    except OSError as error:
        raise not_opened(f"The liveness file {path}", error) from error
    try:
        # Shared: two processes that ask at once must not take each other for the holder.
        flock(fd, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise not_opened(f"The liveness file {path}", error) from error
    else:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(fd)
