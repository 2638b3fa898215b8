"""Locks between processes: fair, with an end to waiting, and free when their holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from turnledger.ledger import StoreBusyError, StoreUnavailableError
from turnledger.ledger.stores.sqlite import file_lock
from turnledger.ledger.stores.sqlite.file_lock import FairLock, LivenessFile, is_alive

# A process that does as it is told, line by line, and answers each line.
pytestmark = pytest.mark.process
HANDLE = """
import sys
from pathlib import Path
from turnledger.ledger.stores.sqlite.file_lock import FairLock, LivenessFile
folder = Path(sys.argv[1])
lock, signs = FairLock(folder, wait=60), []
for line in sys.stdin:
    if line == "acquire\\n":
        print("asking", flush=True)
        lock.acquire()
        print("acquired", flush=True)
    elif line == "release\\n":
        lock.release()
        print("released", flush=True)
    elif line == "live\\n":
        signs.append(LivenessFile(folder))
        print(signs[-1].name, flush=True)
    elif line == "close\\n":
        lock.close()
        for sign in signs:
            sign.close()
        print("closed", flush=True)
"""


class Other:
    """Another process with the same folder."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HANDLE, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str) -> str:
        self.tell(word)
        return self.hear()

    def acquire(self) -> None:
        assert self.ask("acquire") == "asking"
        assert self.hear() == "acquired"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    other = Other(tmp_path)
    yield other
    other.kill()


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Other]:
    another = Other(tmp_path)
    yield another
    another.kill()


def wait_until_somebody_queues(folder: Path) -> None:
    """The gate is taken by whoever is next."""
    fd = os.open(folder / "gate", os.O_RDWR)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.sched_yield()
    finally:
        os.close(fd)


def test_a_free_lock_is_taken_and_given_back_at_once(tmp_path: Path) -> None:
    """As often as one likes, without a thread."""
    lock = FairLock(tmp_path, wait=1)
    for _ in range(100):
        lock.acquire()
        lock.release()
    assert not lock.has_waiter
    lock.close()


def test_only_one_process_has_it(tmp_path: Path, other: Other) -> None:
    """The other one waits until it is free."""
    lock = FairLock(tmp_path, wait=30)
    lock.acquire()
    assert other.ask("acquire") == "asking"
    wait_until_somebody_queues(tmp_path)
    lock.release()
    assert other.hear() == "acquired"
    assert other.ask("release") == "released"
    lock.acquire()
    lock.release()
    lock.close()


def test_who_just_had_it_queues_behind_who_waits(tmp_path: Path, other: Other) -> None:
    """A process that writes in a loop can't starve another: the one that waits is next."""
    lock = FairLock(tmp_path, wait=60)
    lock.acquire()
    for _ in range(20):
        assert other.ask("acquire") == "asking"
        wait_until_somebody_queues(tmp_path)
        other.tell("release")
        lock.release()
        lock.acquire()
        # The other one had it in between: what it said about it is already here.
        os.set_blocking(other.process.stdout.fileno(), False)  # type: ignore[union-attr]
        assert other.hear() == "acquired"
        os.set_blocking(other.process.stdout.fileno(), True)  # type: ignore[union-attr]
        assert other.hear() == "released"
    lock.release()
    lock.close()


def test_a_wait_has_an_end(tmp_path: Path, other: Other) -> None:
    """StoreBusyError says how long it was and what to do; afterwards all goes on."""
    other.acquire()
    lock = FairLock(tmp_path, wait=0.01)
    for _ in range(3):
        with pytest.raises(StoreBusyError, match=r"0\.01 s .* longer wait"):
            lock.acquire()
    assert other.ask("release") == "released"
    patient = FairLock(tmp_path, wait=60)
    patient.acquire()
    patient.release()
    other.acquire()
    assert other.ask("release") == "released"
    patient.close()
    lock.close()


def test_one_who_gave_up_may_ask_again(tmp_path: Path, other: Other) -> None:
    """It gets the lock when its turn comes, once."""
    other.acquire()
    lock = FairLock(tmp_path, wait=0.01)
    with pytest.raises(StoreBusyError):
        lock.acquire()
    lock._wait = 60
    acquired: list[bool] = []

    def ask() -> None:
        lock.acquire()
        acquired.append(True)

    thread = Thread(target=ask)
    thread.start()
    assert other.ask("release") == "released"
    thread.join(30)
    assert acquired == [True]
    lock.release()
    other.acquire()
    assert other.ask("release") == "released"
    lock.close()


def test_a_killed_holder_holds_nothing(tmp_path: Path, other: Other, another: Other) -> None:
    """SIGKILL of the holder, and of one in the queue, lets the next one in."""
    other.acquire()
    assert another.ask("acquire") == "asking"
    wait_until_somebody_queues(tmp_path)
    another.kill()
    other.kill()
    lock = FairLock(tmp_path, wait=30)
    lock.acquire()
    lock.release()
    lock.close()


def test_closing_with_somebody_else_inside_ends(tmp_path: Path, other: Other) -> None:
    """A lock whose waiter is still in line closes its files when it is let in."""
    other.acquire()
    lock = FairLock(tmp_path, wait=0.01)
    with pytest.raises(StoreBusyError):
        lock.acquire()
    lock.close()
    assert lock.has_waiter
    assert other.ask("release") == "released"
    other.acquire()


def test_a_wait_that_the_system_refuses_is_told_and_not_the_last(
    tmp_path: Path, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits gets the system's error; the gate is open, and the next wait is served."""
    refused: list[int] = []

    def refuse_second(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            refused.append(fd)
            if len(refused) == 2:
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        fcntl.flock(fd, operation)

    monkeypatch.setattr(file_lock, "flock", refuse_second)
    other.acquire()
    lock = FairLock(tmp_path, wait=30)
    with pytest.raises(OSError, match="No locks"):
        lock.acquire()
    lock.release()
    assert len(refused) == 2
    other.tell("release")
    lock.acquire_in_line()
    lock.release()
    assert other.hear() == "released"
    other.acquire()
    lock.close()


def test_a_life_sign_shows_until_its_process_is_killed(tmp_path: Path, other: Other) -> None:
    """SIGKILL: no goodbye is needed, and nothing is left behind."""
    name = other.ask("live")
    assert is_alive(tmp_path, name)
    assert is_alive(tmp_path, name)
    other.kill()
    assert not is_alive(tmp_path, name)
    assert not (tmp_path / name).exists()
    assert not is_alive(tmp_path, name)


def test_a_life_sign_shows_within_its_own_process_too(tmp_path: Path, other: Other) -> None:
    """Other handles of the same process ask as well, until it is closed."""
    sign = LivenessFile(tmp_path)
    assert is_alive(tmp_path, sign.name)
    sign.close()
    assert not is_alive(tmp_path, sign.name)
    theirs = other.ask("live")
    assert other.ask("close") == "closed"
    assert not is_alive(tmp_path, theirs)


def test_life_signs_are_many_and_each_its_own(tmp_path: Path) -> None:
    """One ending leaves the others."""
    signs = [LivenessFile(tmp_path) for _ in range(5)]
    signs[2].close()
    assert [is_alive(tmp_path, sign.name) for sign in signs] == [True, True, False, True, True]
    for sign in signs[:2] + signs[3:]:
        sign.close()


@pytest.mark.parametrize("name", ["alive-never", "../outside", "../../etc/passwd", "a/b"])
def test_what_is_no_life_sign_is_not_alive_and_nothing_else_is_touched(
    tmp_path: Path, name: str
) -> None:
    """A name from a table does not lead out of the folder."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    assert not is_alive(folder, name)
    assert outside.read_text() == "mine"


def refusing(number: int) -> Callable[..., int]:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_life_sign_that_may_not_be_looked_at_is_not_known_to_be_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Another user's file, say: the lease then counts until it expires."""
    sign = LivenessFile(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(number))
        assert is_alive(tmp_path, sign.name)
    sign.close()


@pytest.mark.parametrize(("where", "number"), [(os, errno.EMFILE), (file_lock, errno.ENOLCK)])
def test_a_life_sign_that_the_system_does_not_show_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: ModuleType, number: int
) -> None:
    """Neither alive nor dead can be said, and a dead holder's run must not be taken for either."""
    sign = LivenessFile(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, "open" if where is os else "flock", refusing(number))
        with pytest.raises(StoreUnavailableError, match=sign.name):
            is_alive(tmp_path, sign.name)
    assert is_alive(tmp_path, sign.name)
    sign.close()


def test_signs_of_the_dead_are_swept(tmp_path: Path, other: Other, another: Other) -> None:
    """Whoever makes a sign removes those whose processes ended without a goodbye, and no other."""
    theirs, alive = other.ask("live"), another.ask("live")
    other.kill()
    assert (tmp_path / theirs).exists()
    sign = LivenessFile(tmp_path)
    signs = {path.name for path in tmp_path.glob("alive-*")}
    assert signs == {alive, sign.name}
    sign.close()


def test_a_sign_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one sweeps between the making of a sign and its lock: the holder still shows."""
    swept: list[Path] = []

    def sweep_first(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not swept:
            swept.extend(tmp_path.glob("alive-*"))
            assert not is_alive(tmp_path, swept[0].name)
        fcntl.flock(fd, operation)

    monkeypatch.setattr(file_lock, "flock", sweep_first)
    sign = LivenessFile(tmp_path)
    assert len(swept) == 1
    assert not swept[0].exists()
    assert is_alive(tmp_path, sign.name)
    sign.close()
