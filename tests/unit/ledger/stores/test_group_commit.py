"""Group commit: leaders and followers, and what happens when one of them is interrupted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from tests.conformance.samples import draft, note
from turnledger.ledger import ANY, NEW, Ledger, StoreUnavailableError, new_run_id
from turnledger.ledger.stores.group_commit import MAX_GROUP, Caller, GroupCommit, Job


class Book:
    """A store of nothing that notes who committed what, and can be held up."""

    def __init__(self, patience: float = 0.0) -> None:
        self.commits: list[tuple[Thread, list[Any]]] = []
        self.entered, self.go_on = Event(), Event()
        self.group = GroupCommit[list[Any]](self.alone, self.together, patience)

    def alone(self, work: Callable[[list[Any]], Any]) -> Any:
        written: list[Any] = []
        self.commits.append((current_thread(), written))
        self.entered.set()
        return work(written)

    def together(self, jobs: list[Job[list[Any]]]) -> None:
        written: list[Any] = []
        self.commits.append((current_thread(), written))
        for job in jobs:
            try:
                job.result = job.work(written)
            except ValueError as error:
                job.error = error

    def held(self) -> Thread:
        """A leader that is committing and does not end before `go_on`."""
        thread = Thread(target=self.group.run, args=(lambda tx: self.go_on.wait(30),))
        thread.start()
        assert self.entered.wait(30)
        return thread

    def queue(
        self, works: list[Callable[[list[Any]], Any]], after: int = 0
    ) -> list[tuple[Thread, list[Any]]]:
        """Followers, in this order, after others, and where their outcomes will be."""
        followers = []
        for place, work in enumerate(works, after):
            outcome: list[Any] = []
            thread = Thread(target=self.follow, args=(work, outcome), daemon=True)
            thread.start()
            while len(self.group._waiting) <= place:
                thread.join(0.0005)
            followers.append((thread, outcome))
        return followers

    def follow(self, work: Callable[[list[Any]], Any], outcome: list[Any]) -> None:
        try:
            outcome.append(self.group.run(work))
        except BaseException as error:
            outcome.append(error)


def write(value: object) -> Callable[[list[Any]], Any]:
    def work(tx: list[Any]) -> Any:
        tx.append(value)
        return value

    return work


def fail(error: BaseException) -> Callable[[list[Any]], Any]:
    def work(tx: list[Any]) -> Any:
        raise error

    return work


def test_a_lone_caller_commits_its_own_work_on_its_own_thread() -> None:
    """No queue, no handing over, no thread."""
    book = Book()
    for number in range(3):
        assert book.group.run(write(number)) == number
    assert book.commits == [(current_thread(), [number]) for number in range(3)]


def test_a_lone_callers_error_is_its_own_and_the_next_goes_on() -> None:
    """Whatever kind of error."""
    book = Book()
    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            book.group.run(fail(error))
    assert book.group.run(write("after")) == "after"


def test_all_who_wait_are_committed_in_one_group_in_their_order() -> None:
    """One of them does it for all."""
    book = Book()
    leader = book.held()
    followers = book.queue([write(number) for number in range(10)])
    book.go_on.set()
    for number, (thread, outcome) in enumerate(followers):
        thread.join(30)
        assert outcome == [number]
    leader.join(30)
    assert [written for _, written in book.commits] == [[], list(range(10))]
    assert book.commits[1][0] is followers[0][0]


def test_each_followers_outcome_is_its_own() -> None:
    """A failure among successes."""
    book = Book()
    leader = book.held()
    works = [write(0), fail(ValueError("one")), write(2), fail(ValueError("three"))]
    followers = book.queue(works)
    book.go_on.set()
    for thread, _ in followers:
        thread.join(30)
    leader.join(30)
    assert [str(outcome[0]) for _, outcome in followers] == ["0", "one", "2", "three"]


def test_a_group_has_a_largest_size() -> None:
    """The rest is led by the next in line."""
    book = Book()
    leader = book.held()
    followers = book.queue([write(number) for number in range(MAX_GROUP + 5)])
    book.go_on.set()
    for thread, _ in [*followers, (leader, None)]:
        thread.join(30)
        assert not thread.is_alive()
    sizes = [len(written) for _, written in book.commits]
    assert sizes == [0, MAX_GROUP, 5]
    assert [outcome for _, outcome in followers] == [[n] for n in range(MAX_GROUP + 5)]


def test_a_caller_with_many_jobs_waits_once_for_all_of_them() -> None:
    """They are committed in one group with others', each with an outcome of its own."""
    book = Book()
    leader = book.held()
    (other,) = book.queue([write("other")])
    jobs = [Job(write(0)), Job(fail(ValueError("one"))), Job(write(2))]
    thread = Thread(target=book.group.run_all, args=(jobs,))
    thread.start()
    while len(book.group._waiting) < 2:
        thread.join(0.0005)
    book.go_on.set()
    for one in (leader, other[0], thread):
        one.join(30)
        assert not one.is_alive()
    assert [written for _, written in book.commits] == [[], ["other", 0, 2]]
    assert [(job.result, str(job.error)) for job in jobs] == [
        (0, "None"),
        (None, "one"),
        (2, "None"),
    ]


def test_a_job_that_is_not_wanted_any_more_is_not_run() -> None:
    """It is asked just before its group is committed; one without any is not committed."""

    class Unwanted(Job[list[Any]]):
        def begin(self) -> bool:
            return False

    book = Book()
    wanted, unwanted = Job(write(1)), Unwanted(write(2))
    book.group.run_all([unwanted, wanted])
    book.group.run_all([unwanted])
    assert [written for _, written in book.commits] == [[1]]
    assert (wanted.result, unwanted.result, unwanted.error) == (1, None, None)


def test_a_follower_that_is_gone_keeps_no_other_waiting() -> None:
    """Each wakes the next one. One that was interrupted meanwhile is passed over."""
    book = Book()
    leader = book.held()
    followers, gone = [], []
    for number in range(3):
        followers += book.queue([write(number)], after=2 * number)
        gone.append(Caller([Job(write("gone"))]))
        book.group._join(gone[-1])
    together = book.together

    def interrupted_meanwhile(jobs: list[Job[list[Any]]]) -> None:
        for one in gone:
            book.group._leave(one)  # what an interrupted thread does
        together(jobs)

    book.group._commit_group = interrupted_meanwhile
    book.go_on.set()
    for place, (thread, outcome) in enumerate(followers):
        thread.join(20)
        assert outcome == [place]
    leader.join(20)
    assert [written for _, written in book.commits] == [[], [0, "gone", 1, "gone", 2, "gone"]]


def grouped(book: Book, count: int) -> None:
    """Let this many commit together once."""
    leader = book.held()
    followers = book.queue([write(number) for number in range(count)])
    book.go_on.set()
    for thread, _ in [*followers, (leader, None)]:
        thread.join(30)
    assert len(book.commits[-1][1]) == count


def test_those_who_committed_together_are_waited_for() -> None:
    """The leader gives the company of last time a moment to come back, and no longer."""
    book = Book(patience=30)
    grouped(book, 4)
    threads = [Thread(target=book.group.run, args=(write(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(book.commits[-1][1]) == [0, 1, 2, 3]


def test_patience_has_an_end() -> None:
    """Who comes alone after a crowd commits alone, and from then on waits for nobody."""
    book = Book(patience=0.001)
    grouped(book, 4)
    for number in range(3):
        assert book.group.run(write(number)) == number
    assert [written for _, written in book.commits[-3:]] == [[0], [1], [2]]


def test_a_leader_that_is_interrupted_hands_on_the_lead() -> None:
    """Nobody waits for ever for one who is gone."""
    book = Book()
    leader = book.held()
    followers = book.queue([fail(KeyboardInterrupt()), write(1), write(2)])
    book.go_on.set()
    for thread, _ in [*followers, (leader, None)]:
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(followers[0][1][0], KeyboardInterrupt)
    assert book.group.run(write("after")) == "after"


def test_followers_of_an_interrupted_leader_learn_that_the_outcome_is_unknown() -> None:
    """They get StoreUnavailableError with their drafts, and a retry settles it."""
    ledger = Ledger.open("memory://")
    run = new_run_id()
    ledger.append(run, note(), NEW)
    entered, go_on = Event(), Event()

    def hold(tx: object) -> None:
        entered.set()
        assert go_on.wait(30)

    def interrupted(tx: object) -> None:
        raise KeyboardInterrupt

    outcomes: dict[str, Any] = {}
    mine = draft(note(1))

    def follow(name: str, act: Callable[[], Any]) -> None:
        try:
            outcomes[name] = act()
        except BaseException as error:
            outcomes[name] = error

    acts: dict[str, Callable[[], Any]] = {
        "holder": lambda: ledger.store.write(hold),
        "leader": lambda: ledger.store.write(interrupted),
        "follower": lambda: ledger.append(run, mine, ANY),
    }
    threads = []
    for place, (name, act) in enumerate(acts.items()):
        threads.append(Thread(target=follow, args=(name, act)))
        threads[-1].start()
        assert entered.wait(30)
        while len(ledger.store._group._waiting) < place:
            threads[-1].join(0.0005)
    go_on.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(outcomes["leader"], KeyboardInterrupt)
    unknown = outcomes["follower"]
    assert isinstance(unknown, StoreUnavailableError)
    assert unknown.drafts == (mine,)
    assert ledger.append(run, list(unknown.drafts), ANY).version == 2
    assert [record.event for record in ledger.read(run)] == [note(), note(1)]
    ledger.close()


INTERRUPTED_FOLLOWER = """
import os, signal, sys
from threading import Event, Thread
from turnledger.ledger import ANY, CustomEvent, Ledger, new_run_id

ledger, run = Ledger.open("memory://"), new_run_id()
entered, go_on, interrupted = Event(), Event(), Event()

def hold(tx):
    entered.set()
    go_on.wait(30)

def interrupted_once(*_):
    if not interrupted.is_set():
        interrupted.set()
        raise KeyboardInterrupt

def interrupt():
    while not ledger.store._group._waiting:
        pass
    while not interrupted.is_set():  # one that comes just before a wait is only seen after it
        os.kill(os.getpid(), signal.SIGINT)
        interrupted.wait(0.05)

signal.signal(signal.SIGINT, interrupted_once)
holder = Thread(target=lambda: ledger.store.write(hold), daemon=True)
holder.start()
entered.wait(30)
Thread(target=interrupt, daemon=True).start()
try:
    ledger.append(run, CustomEvent(kind="a.b"), ANY)
except KeyboardInterrupt:
    print("interrupted", flush=True)
go_on.set()
holder.join(30)
other = Thread(target=lambda: ledger.append(run, CustomEvent(kind="a.b"), ANY), daemon=True)
other.start()
other.join(5)
print("stuck" if other.is_alive() else "goes on", flush=True)
os._exit(0)
"""


@pytest.mark.process
def test_a_follower_that_is_interrupted_does_not_take_the_lead_with_it() -> None:
    """Ctrl-C in a thread that waits for its commit leaves the others able to write."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_FOLLOWER], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split("\n")[:2] == ["interrupted", "goes on"], done.stderr
