"""Following the whole ledger: in order, none missed, none twice, from whatever process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Event as Flag
from threading import Thread

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import ANY, NEW, LedgerClosedError, Record, new_run_id


def fill(ledger: LedgerLike, runs: int = 3, turns: int = 4) -> list[Record]:
    ids = [new_run_id() for _ in range(runs)]
    return [
        record
        for turn in range(turns)
        for run in ids
        for record in ledger.append(run, notes(turn % 3 + 1), ANY).records
    ]


def test_tail_gives_everything_in_the_order_of_commits(ledger: LedgerLike) -> None:
    """All runs' records, by position, and then it ends."""
    written = fill(ledger)
    assert list(ledger.tail()) == written


@pytest.mark.parametrize("page_size", [1, 2, 7, 500])
def test_tail_starts_after_any_position(ledger: LedgerLike, page_size: int) -> None:
    """The page size changes nothing; a position need not be a record's."""
    written = fill(ledger)
    for place, record in enumerate(written):
        assert list(ledger.tail(record.position, page_size=page_size)) == written[place + 1 :]
    assert list(ledger.tail(0)) == written
    assert list(ledger.tail(written[-1].position + 10**6)) == []


def test_tail_shows_the_commits_of_a_fork_and_not_its_prefix(ledger: LedgerLike) -> None:
    """The prefix is shared, not copied: it is told once."""
    run = new_run_id()
    ledger.append(run, notes(3), NEW)
    child = ledger.fork(run, 3)
    assert [(r.run_id, r.version) for r in ledger.tail()] == [
        (run, 1),
        (run, 2),
        (run, 3),
        (child, 4),
    ]


def test_a_follower_sees_what_another_handle_appends(surface: Surface) -> None:
    """First what is there, then each commit as it comes."""
    reader, writer = surface.open(), surface.open()
    run = new_run_id()
    writer.append(run, notes(2), NEW)
    follower = reader.tail(follow=True)
    assert [r.version for r in islice(follower, 2)] == [1, 2]
    writer.append(run, notes(2), ANY)
    assert [r.version for r in islice(follower, 2)] == [3, 4]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, follower)
        late = writer.append(run, note(), ANY)
        assert waiting.result(timeout=30) == late.records[0]


def test_a_follower_starts_after_a_position(surface: Surface) -> None:
    """What lies before is not told again."""
    ledger = surface.open()
    written = fill(ledger)
    follower = ledger.tail(written[4].position, follow=True)
    assert list(islice(follower, len(written) - 5)) == written[5:]


def test_a_follower_stops_when_it_is_told_to(surface: Surface) -> None:
    """`stop` ends the wait; what was there before it has been seen."""
    reader, writer, stop = surface.open(), surface.open(), Flag()
    written = fill(writer)
    seen: list[Record] = []
    all_seen = Flag()

    def follow() -> None:
        for record in reader.tail(follow=True, stop=stop):
            seen.append(record)
            if len(seen) == len(written):
                all_seen.set()

    thread = Thread(target=follow)
    thread.start()
    assert all_seen.wait(30)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == written


def test_a_follower_of_a_closed_ledger_gets_an_error(surface: Surface) -> None:
    """Closing wakes the follower up; it does not wait for ever."""
    ledger = surface.open()
    written = fill(ledger)
    last_seen = Flag()

    def follow() -> None:
        for record in ledger.tail(follow=True):
            if record == written[-1]:
                last_seen.set()

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow)
        assert last_seen.wait(30)
        ledger.close()
        with pytest.raises(LedgerClosedError):
            following.result(timeout=30)


def test_followers_miss_nothing_while_threads_append(surface: Surface) -> None:
    """Two followers see the records of eight writers once each, in the order of positions."""
    handles = [surface.open(), surface.open()]
    per_writer, writers = 25, 8
    total = per_writer * writers

    def follow(handle: LedgerLike) -> list[Record]:
        return list(islice(handle.tail(follow=True, page_size=7), total))

    def write(number: int) -> None:
        run = new_run_id()
        for turn in range(per_writer):
            handles[number % 2].append(run, note(turn), turn)

    with ThreadPoolExecutor(writers + 2) as pool:
        following = [pool.submit(follow, surface.open()) for _ in range(2)]
        for writing in [pool.submit(write, number) for number in range(writers)]:
            writing.result(timeout=60)
        seen = [one.result(timeout=60) for one in following]
    written = list(handles[0].tail())
    assert len(written) == total
    assert seen == [written, written]
    assert_whole(written)


def assert_whole(records: list[Record]) -> None:
    positions = [record.position for record in records]
    assert positions == sorted(set(positions))
    versions: dict[object, int] = {}
    for record in records:
        assert record.version == versions.get(record.run_id, 0) + 1
        versions[record.run_id] = record.version


APPENDER = """
import sys
from turnledger.ledger import CustomEvent, new_run_id
number, turns = int(sys.argv[1]), int(sys.argv[2])
with ledger:
    run = new_run_id()
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(turns):
        ledger.append(run, CustomEvent(kind="test.note", data=[number, turn]), turn)
"""


@pytest.fixture
def appenders(shared_surface: Surface) -> Iterator[list[subprocess.Popen[str]]]:
    """Three processes that have the ledger open and append once a line is sent to them."""
    shared_surface.open()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", shared_surface.opening() + APPENDER, str(number), "20"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def test_a_follower_sees_what_other_processes_append(
    shared_surface: Surface, appenders: list[subprocess.Popen[str]]
) -> None:
    """Three processes write at once; the follower sees each record once, in order."""
    ledger = shared_surface.open()
    follower = ledger.tail(follow=True)
    own = ledger.append(new_run_id(), note(), NEW).records[0]
    assert next(follower) == own
    for process in appenders:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    seen = list(islice(follower, 60))
    assert_whole(seen)
    assert sorted(record.event.data for record in seen) == [  # type: ignore[union-attr]
        [number, turn] for number in range(3) for turn in range(20)
    ]
    assert [process.wait(30) for process in appenders] == [0, 0, 0]
    assert list(ledger.tail(own.position)) == seen
    assert shared_surface.verify_all().ok
