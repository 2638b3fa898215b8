"""Locks between processes, on files: who may write, and who is alive.

The kernel frees a dead process's locks at once, however it died. `FairLock` makes
writers wait in line: a process that writes in a loop can't starve the others.
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
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


class _Ticket:
    """One wait in line. Whoever settles it first decides: answered, or given up.

    The answer is the lock, or why the system does not give it.
    """

    __slots__ = ("answered", "refused", "settled")

    def __init__(self) -> None:
        self.refused: OSError | None = None
        self.settled = Lock()
        self.answered = Lock()
        self.answered.acquire()


class FairLock:
    """A lock between processes, with a queue of one before it.

    Whoever wants the lock first takes the gate, and keeps it until the lock is theirs:
    the one who just released has to queue behind it. Waiting happens in the kernel, on
    a thread that exists only once there was something to wait for, so that the wait can
    have an end. One thread at a time uses it; Ctrl-C may end whatever that does, as long as it
    calls `release` then, which may be repeated.
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
        self.has_waiter = False
        self.is_closed = False
        # Whether the waiting thread has or will have to do with the lock: its file is the same
        # one, so it must not be taken meanwhile.
        self._in_line = False

    def acquire(self) -> None:
        if not self.acquire_at_once():
            self.acquire_in_line()

    def acquire_at_once(self) -> bool:
        """Take the lock if nobody has it or is in line for it; after Ctrl-C it is not taken."""
        if self._in_line:
            return False
        try:
            try:
                flock(self._gate, AT_ONCE)
                flock(self._lock, AT_ONCE)
            finally:
                # Taken or not: Ctrl-C may come before that could be noted.
                flock(self._gate, LOCK_UN)
        except BlockingIOError:
            return False
        except BaseException:
            flock(self._lock, LOCK_UN)
            raise
        return True

    def release(self) -> None:
        """Give the lock back, or up the wait for it."""
        ticket = self._ticket
        if ticket is not None:
            ticket.settled.acquire(blocking=False)
            self._ticket = None
        flock(self._lock, LOCK_UN)

    def close(self) -> None:
        """Not to be used any more. May be repeated."""
        self.is_closed = True
        if self.has_waiter:
            self._asked.put(None)
        else:
            self._close_files()

    def forget(self) -> None:
        """In a forked child: let go of the parent's files without freeing its lock."""
        self._close_files()

    def acquire_in_line(self) -> None:
        """Wait for the lock behind those who came first; StoreBusyError if it takes too long."""
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
        # If it can't be given up, it was answered just now.
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
                    # For the one who asked: this thread has others to wait for.
                    ticket.refused = error
                flock(self._gate, LOCK_UN)
                if ticket.settled.acquire(blocking=False):
                    ticket.answered.release()
                else:
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
    """Instead of a lock, where nothing can be written and so nobody needs to be kept out."""

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
    """A file that this process keeps locked while it lives."""

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
            # Another one may have swept it before it was locked; from now on nobody does.
            made = self._path.exists()
        finally:
            if not made:
                self.forget()
        return made

    def close(self) -> None:
        # A file that can't be removed (the disk went read-only) is free, which says enough.
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
    """Remove the signs of those who ended without a goodbye."""
    for path in folder.glob("alive-*"):
        with contextlib.suppress(StoreUnavailableError):
            is_alive(folder, path.name)


def is_alive(folder: Path, name: str) -> bool:
    """Whether the process that holds this life sign is running; if not, the sign is removed.

    A sign that may not be looked at is not known to be dead. StoreUnavailableError if the
    system does not let anybody look.
    """
    path = folder / Path(name).name
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    except OSError as error:
        raise not_opened(f"The sign of life {path}", error) from error
    try:
        # Shared: two who ask at once must not take each other for the holder.
        flock(fd, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise not_opened(f"The sign of life {path}", error) from error
    else:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(fd)
