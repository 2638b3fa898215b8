"""Ctrl-C at every single point of an append where Python can notice it: nobody hangs after it."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from functools import partial
from pathlib import Path
from threading import Event, Thread, get_ident
from types import CodeType, FrameType
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.samples import draft, note
from turnledger.ledger import (
    ANY,
    NEW,
    Ledger,
    LedgerClosedError,
    StoreUnavailableError,
    TurnledgerError,
    new_run_id,
)
from turnledger.ledger.stores.sqlite.file_lock import FairLock
from turnledger.ledger.stores.wakeup import Wakeup

# Where CPython looks for signals: after these.
LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"}
# The modules of the two stores, by name: several folders have a transaction.py or a store.py.
STORES = "turnledger.ledger.stores."
OTHER_STORE = "turnledger.ledger.stores.postgres."
# One of the numbers that nobody else uses.
TOOL = 4


class Interrupter:
    """Raises KeyboardInterrupt at the n-th point that this thread passes, as Ctrl-C would."""

    def __init__(self, place: int) -> None:
        self._left = place
        self._before: dict[FrameType, str] = {}
        self._thread = 0
        self.fired = False
        self.passed: set[str] = set()

    def around(self, act: Callable[[], object]) -> None:
        """Act in a thread of its own: errors that were being handled stay in a thread's state."""
        failures: list[BaseException] = []
        thread = Thread(target=self._around, args=(act, failures))
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    def _around(self, act: Callable[[], object], failures: list[BaseException]) -> None:
        self._thread = get_ident()
        watch = self._monitored if sys.version_info >= (3, 12) else self._traced
        try:
            with suppress(KeyboardInterrupt), watch():
                act()
        except BaseException as error:
            failures.append(error)

    def _step(self, frame: FrameType, place: int) -> None:
        """Before each instruction."""
        before = self._before.get(frame, "")
        self._before[frame] = dis.opname[frame.f_code.co_code[place]]
        if before in LOOKS and not self.fired:
            self.passed.add(_module(frame.f_code))
            self._left -= 1
            if self._left == 0:
                self.fired = True
                raise KeyboardInterrupt

    @contextmanager
    def _traced(self) -> Iterator[None]:
        def local(frame: FrameType, event: str, arg: object) -> Any:
            if event == "opcode":
                self._step(frame, frame.f_lasti)
            return local

        def called(frame: FrameType, event: str, arg: object) -> Any:
            if not _is_watched(frame.f_code):
                return None
            frame.f_trace_opcodes = True
            return local

        before = sys.gettrace()
        sys.settrace(called)
        try:
            yield
        finally:
            sys.settrace(before)

    @contextmanager
    def _monitored(self) -> Iterator[None]:
        watching: Any = sys.monitoring  # type: ignore[attr-defined]  # from 3.12 on

        def step(code: CodeType, place: int) -> Any:
            if not _is_watched(code):
                return watching.DISABLE
            if get_ident() == self._thread:
                self._step(sys._getframe(1), place)
            return None

        watching.use_tool_id(TOOL, "interrupts")
        watching.register_callback(TOOL, watching.events.INSTRUCTION, step)
        watching.set_events(TOOL, watching.events.INSTRUCTION)
        try:
            yield
        finally:
            watching.set_events(TOOL, 0)
            watching.register_callback(TOOL, watching.events.INSTRUCTION, None)
            watching.free_tool_id(TOOL)


def _module(code: CodeType) -> str:
    path = Path(code.co_filename)
    within = path.parts[path.parts.index("src") + 1 :] if "src" in path.parts else (path.name,)
    return ".".join(within).removesuffix(".py")


def _is_watched(code: CodeType) -> bool:
    name = _module(code)
    ours = name.startswith(STORES) and not name.startswith(OTHER_STORE)
    return ours or name == "threading"


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    url = "memory://" if request.param == "memory" else str(tmp_path / "runs.db")
    with Ledger.open(url) as opened:
        yield opened


def _in_time(act: Callable[[], object], where: str) -> None:
    """Done by another thread, so that one that hangs can be told."""
    outcome: list[object] = []

    def work() -> None:
        try:
            outcome.append(act())
        except BaseException as error:
            outcome.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert outcome, f"hangs after an interrupt at {where}"
    assert not isinstance(outcome[0], BaseException), outcome[0]


def _nobody_has_the_lock(ledger: Ledger) -> bool:
    if ledger.url.startswith("memory:"):
        return True
    return all(_is_free(Path(f"{ledger.url}-locks") / name) for name in ("gate", "write"))


def _is_free(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return False
        flock(file, LOCK_UN)
        return True


def _append_twice(ledger: Ledger, run: UUID, place: int, passed: set[str]) -> bool:
    """Interrupted, then whole; whether it was interrupted."""
    drafts = [draft(note(place)), draft(note(-place))]
    interrupter = Interrupter(place)
    interrupter.around(lambda: ledger.append(run, drafts, ANY))
    assert _nobody_has_the_lock(ledger), place
    _in_time(lambda: ledger.append(run, drafts, ANY), f"point {place}")
    passed |= interrupter.passed
    return interrupter.fired


def test_whoever_appends_after_an_interrupted_append_is_served(ledger: Ledger) -> None:
    """Wherever in a lone append Ctrl-C came; what became of it is whole or nothing."""
    run = new_run_id()
    ledger.append(run, note(), NEW)
    place, passed = 1, set[str]()
    while _append_twice(ledger, run, place, passed):
        place += 1
    assert place > 40
    sqlite = ("sqlite.file_lock", "sqlite.store", "sqlite.transaction")
    own = ("memory",) if ledger.url.startswith("memory:") else sqlite
    assert passed >= {STORES + name for name in ("base", "group_commit", *own)}
    assert ledger.verify_all().ok
    assert ledger.head(run) == 1 + 2 * place


def _lead_interrupted(ledger: Ledger, run: UUID, place: int) -> bool:
    """One holds the store up, this thread waits to lead, and another one follows it."""
    entered, go_on, ended = Event(), Event(), Event()
    waiting = ledger.store._group._waiting
    answers: list[object] = []
    theirs = draft(note(place))

    def hold(tx: object) -> None:
        entered.set()
        go_on.wait(20)

    def follow() -> None:
        try:
            answers.append(ledger.append(run, theirs, ANY))
        except TurnledgerError as error:
            answers.append(error)

    def gather() -> None:
        while not waiting and not ended.wait(0.0002):
            pass
        follower = Thread(target=follow, daemon=True)
        follower.start()
        while len(waiting) < 2 and not ended.wait(0.0002):
            pass
        go_on.set()
        follower.join(20)

    threads = [Thread(target=ledger.store.write, args=(hold,), daemon=True)]
    threads[0].start()
    assert entered.wait(20)
    threads.append(Thread(target=gather, daemon=True))
    threads[1].start()
    interrupter = Interrupter(place)
    interrupter.around(lambda: ledger.append(run, draft(note()), ANY))
    ended.set()
    for thread in threads:
        thread.join(30)
    where = f"point {place}"
    assert answers, f"the follower hangs after an interrupt at {where}"
    assert _nobody_has_the_lock(ledger), where
    if isinstance(answers[0], StoreUnavailableError):
        _in_time(follow, where)
    assert theirs.event_id in {record.event_id for record in ledger.read(run)}, where
    _in_time(lambda: ledger.append(run, draft(note()), ANY), where)
    return interrupter.fired


def test_an_interrupted_leader_leaves_nobody_waiting(ledger: Ledger) -> None:
    """Wherever it was: its follower gets an answer, and the answer is true."""
    run = new_run_id()
    ledger.append(run, note(), NEW)
    place = 1
    while _lead_interrupted(ledger, run, place):
        place += 1
    assert place > 40
    assert ledger.verify_all().ok


def _follow_interrupted(ledger: Ledger, run: UUID, place: int) -> bool:
    """One holds the store up, another one leads, this thread follows, and others follow it."""
    entered, go_on, ended = Event(), Event(), Event()
    waiting = ledger.store._group._waiting
    answers: list[object] = []

    def hold(tx: object) -> None:
        entered.set()
        go_on.wait(20)

    def join() -> None:
        before = len(waiting)
        threads.append(Thread(target=lambda: answers.append(append()), daemon=True))
        threads[-1].start()
        while len(waiting) == before and not ended.wait(0.0002):
            pass

    def append() -> object:
        return ledger.append(run, draft(note(place)), ANY)

    def gather() -> None:
        while len(waiting) < 2 and not ended.wait(0.0002):
            pass
        for _ in range(2):
            join()
        go_on.set()

    threads = [Thread(target=ledger.store.write, args=(hold,), daemon=True)]
    threads[0].start()
    assert entered.wait(20)
    join()  # the leader
    gathering = Thread(target=gather, daemon=True)
    gathering.start()
    interrupter = Interrupter(place)
    interrupter.around(append)
    ended.set()
    gathering.join(20)
    for thread in threads:
        thread.join(20)
    assert len(answers) == 3, f"another one hangs after an interrupt at point {place}"
    assert _nobody_has_the_lock(ledger), place
    _in_time(append, f"point {place}")
    return interrupter.fired


def test_an_interrupted_follower_keeps_no_other_waiting(ledger: Ledger) -> None:
    """Wherever it was: those whose appends were committed with its own go on."""
    run = new_run_id()
    ledger.append(run, note(), NEW)
    place = 1
    while _follow_interrupted(ledger, run, place):
        place += 1
    assert place > 15
    assert ledger.verify_all().ok


def _append_behind_another(path: Path, ledger: Ledger, run: UUID, place: int) -> bool:
    """Another process has the lock at first, so that this one has to wait in line."""
    queue: Any = getattr(ledger.store, "_lock")  # noqa: B009
    drafts, ended = [draft(note(place))], Event()
    with Path(f"{path}-locks/write").open("rb") as other:
        flock(other, LOCK_EX)

        def let_in() -> None:
            while queue._ticket is None and not ended.wait(0.0002):
                pass
            flock(other, LOCK_UN)

        other_one = Thread(target=let_in, daemon=True)
        other_one.start()
        interrupter = Interrupter(place)
        interrupter.around(lambda: ledger.append(run, drafts, ANY))
        ended.set()
        other_one.join(20)
        # The thread that waited in line gives up what nobody wants any more.
        _in_time(lambda: flock(other, LOCK_EX), f"point {place}")
    _in_time(lambda: ledger.append(run, drafts, ANY), f"point {place}")
    return interrupter.fired


def test_who_is_interrupted_in_line_keeps_nobody_out(tmp_path: Path) -> None:
    """Wherever in the wait for another process: the lock is free for others, and works again."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path, wait=20) as ledger:
        ledger.append(run, note(), NEW)
        place = 1
        while _append_behind_another(path, ledger, run, place):
            place += 1
        assert place > 40
        assert ledger.verify_all().ok
        assert ledger.head(run) == 1 + place


def test_who_is_interrupted_at_the_gate_leaves_it_open(tmp_path: Path) -> None:
    """Wherever in one quick try for the lock: neither file stays locked."""
    lock, place = FairLock(tmp_path, wait=1), 1
    while True:
        interrupter = Interrupter(place)
        interrupter.around(lock.acquire_at_once)
        assert _is_free(tmp_path / "gate"), f"point {place}"
        if not interrupter.fired:
            break
        assert _is_free(tmp_path / "write"), f"point {place}"
        place += 1
    assert place > 3
    lock.close()


def test_an_interrupted_wakeup_blocks_no_other_thread() -> None:
    """A thread that wakes others or waits after it is not held up."""
    for act in (lambda wakeup: wakeup.wake_all(), lambda wakeup: wakeup.wait(0.001)):
        place = 1
        while True:
            wakeup, interrupter = Wakeup(), Interrupter(place)
            interrupter.around(partial(act, wakeup))
            _in_time(wakeup.wake_all, f"point {place}")
            _in_time(partial(wakeup.wait, 0.001), f"point {place}")
            assert not wakeup.waiting
            if not interrupter.fired:
                break
            place += 1
        assert place > 1


def test_whoever_reads_after_an_interrupted_read_is_served(tmp_path: Path) -> None:
    """Wherever in a read Ctrl-C came, and however often: there is always a connection."""
    run = new_run_id()
    with Ledger.open(tmp_path / "runs.db", wait=5) as ledger:
        ledger.append(run, note(), NEW)
        place, fired, passed = 1, True, set[str]()
        while fired:
            for _ in range(3):
                interrupter = Interrupter(place)
                interrupter.around(lambda: ledger.head(run))
            passed |= interrupter.passed
            _in_time(lambda: ledger.head(run), f"point {place}")
            place, fired = place + 1, interrupter.fired
    assert place > 10
    assert passed >= {STORES + name for name in ("sqlite.connection", "sqlite.queries")}


def test_a_ledger_whose_closing_was_interrupted_can_be_closed(tmp_path: Path) -> None:
    """Wherever it was: everything is let go, others can write, and closing again is harmless."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, note(), NEW)
    place = 1
    while True:
        ledger = Ledger.open(path)
        ledger.append(run, note(), ANY)
        ledger.store.holder()
        interrupter = Interrupter(place)
        interrupter.around(ledger.close)
        _in_time(ledger.close, f"point {place}")
        assert _nobody_has_the_lock(ledger), place
        assert not list(Path(f"{path}-locks").glob("alive-*")), place
        with pytest.raises(LedgerClosedError):
            ledger.append(run, note(), ANY)
        if not interrupter.fired:
            break
        place += 1
    assert place > 20
