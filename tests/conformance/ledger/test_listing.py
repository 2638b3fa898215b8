"""Listing runs: newest first, filtered, and in pages that new runs do not disturb."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID, uuid4

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    EvaluationStarted,
    InvalidRunIdError,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunWaiting,
    new_run_id,
)

START = datetime(2026, 3, 1, tzinfo=UTC)


class TickingClock:
    """A second later with every append."""

    def __init__(self) -> None:
        self.ticks = 0

    def micros(self) -> int:
        self.ticks += 1
        return int((START.timestamp() + self.ticks) * 1_000_000)

    def new_id(self) -> str:
        return str(uuid4())


@pytest.fixture
def ledger(surface: Surface) -> LedgerLike:
    return surface.open(clock=TickingClock())


def begin(ledger: LedgerLike, count: int, **tags: str) -> list[UUID]:
    runs = [uuid4() for _ in range(count)]  # not time-ordered: the listing must not rely on it
    for run in runs:
        ledger.append(run, RunStarted(tags=tags), NEW)
    return runs


def ids(infos: object) -> list[UUID]:
    return [info.run_id for info in infos]  # type: ignore[attr-defined]


def test_runs_are_listed_newest_first(ledger: LedgerLike) -> None:
    """By when they began, whatever was appended to them since."""
    runs = begin(ledger, 5)
    ledger.append(runs[0], note(), ANY)
    assert ids(ledger.runs()) == runs[::-1]


def test_runs_are_found_by_their_parent(ledger: LedgerLike) -> None:
    """Forks and continuations of a run itself, newest first, and not those of its forks."""
    run, other = begin(ledger, 2)
    fork = ledger.fork(run, 1, tags={"team": "red"})
    continued = new_run_id()
    ledger.append(continued, RunStarted(parent=run, at=1, kind="continuation"), NEW)
    inner = ledger.fork(fork, 2)
    assert ids(ledger.runs(parent=run)) == [continued, fork]
    assert ids(ledger.runs(parent=run, tags={"team": "red"})) == [fork]
    assert ids(ledger.runs(parent=fork)) == [inner]
    assert ids(ledger.runs(parent=other)) == []


def test_runs_are_found_by_the_beginning_or_the_end_of_their_id(ledger: LedgerLike) -> None:
    """In any case, with hyphens or without, newest first; what is no part of an id is refused."""
    texts = ("01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-0000-774b-bcce-b302099a01ab")
    runs = [UUID(text) for text in texts]
    for run in runs:
        ledger.append(run, RunStarted(tags={"team": "red"}), NEW)
    for part, found in (
        ("01890a5d-ac96", runs[:1]),
        ("01890A5DAC96", runs[:1]),
        (texts[1], runs[1:]),
        ("774b-bcce-b302099a8057", runs[:1]),
        ("774bbcceb302099a8057", runs[:1]),
        ("57", runs[:1]),
        ("01890a5d", runs[::-1]),
        ("ac96", []),
        ("b", runs[1:]),
    ):
        assert ids(ledger.runs(id_part=part)) == found, part
    assert ids(ledger.runs(id_part="01890a5d", limit=1)) == runs[1:]
    assert ids(ledger.runs(id_part="57", tags={"team": "blue"})) == []
    for part in ("", "-", "xyz", "%", "_", "0" * 33):
        with pytest.raises(InvalidRunIdError, match="part of a run id"):
            list(ledger.runs(id_part=part))


def test_an_info_holds_what_the_index_knows(ledger: LedgerLike) -> None:
    """Version, digest, status, epoch, prompt, tags, kind and times, as `run` gives them too."""
    (run,) = begin(ledger, 1, team="red")
    started = EvaluationStarted(
        evaluation_id="e", prompt_ns="acme", prompt_key="greet", prompt_digest="d"
    )
    last = ledger.append(run, [started, *notes(2)], ANY)
    (info,) = ledger.runs()
    assert info == ledger.run(run)
    assert (info.version, info.digest, info.status, info.epoch) == (4, last.digest, "running", 0)
    assert (info.prompt, info.tags, info.kind) == ("acme/greet", {"team": "red"}, "run")
    assert (info.parent, info.parent_version) == (None, 0)
    assert info.started_at == ledger.record(run, 1).recorded_at
    assert info.updated_at == ledger.record(run, 4).recorded_at


def test_runs_are_filtered_by_status(ledger: LedgerLike) -> None:
    """One status at a time, and the index follows each append."""
    running, waiting, completed, failed = begin(ledger, 4)
    ledger.append(waiting, RunWaiting(reason="?"), ANY)
    ledger.append(completed, RunCompleted(), ANY)
    ledger.append(failed, RunFailed(error_type="E", error_message="m"), ANY)
    assert ids(ledger.runs(status="running")) == [running]
    assert ids(ledger.runs(status="waiting")) == [waiting]
    assert ids(ledger.runs(status="completed")) == [completed]
    assert ids(ledger.runs(status="failed")) == [failed]
    assert ids(ledger.runs(status="parked")) == []


def test_runs_are_filtered_by_tags(ledger: LedgerLike) -> None:
    """By a value, by a key with any value, and by several at once."""
    red = begin(ledger, 2, team="red", env="prod")
    blue = begin(ledger, 1, team="blue")
    begin(ledger, 1)
    odd = begin(ledger, 1, **{"ключ 🦜": "a'b\"c%_"})
    assert ids(ledger.runs(tags={"team": "red"})) == red[::-1]
    assert ids(ledger.runs(tags={"team": None})) == [*blue, *red[::-1]]
    assert ids(ledger.runs(tags={"team": "red", "env": "prod"})) == red[::-1]
    assert ids(ledger.runs(tags={"team": "blue", "env": None})) == []
    assert ids(ledger.runs(tags={"ключ 🦜": "a'b\"c%_"})) == odd
    assert ids(ledger.runs(tags={"team": "r%"})) == []


def test_runs_are_filtered_by_prompt(ledger: LedgerLike) -> None:
    """By namespace and key of the prompt that was evaluated last."""
    first, second, _ = begin(ledger, 3)

    def evaluate(run: UUID, key: str) -> None:
        ledger.append(
            run,
            EvaluationStarted(evaluation_id="e", prompt_ns="ns", prompt_key=key, prompt_digest=""),
            ANY,
        )

    evaluate(first, "a")
    evaluate(second, "a")
    evaluate(second, "b")
    assert ids(ledger.runs(prompt="ns/a")) == [first]
    assert ids(ledger.runs(prompt="ns/b")) == [second]
    assert ids(ledger.runs(prompt="ns")) == []


def test_runs_are_filtered_by_time(ledger: LedgerLike) -> None:
    """since <= started < until; a time without a zone is UTC."""
    runs = begin(ledger, 6)
    second = timedelta(seconds=1)
    assert ids(ledger.runs(since=START + 3 * second)) == runs[2:][::-1]
    assert ids(ledger.runs(until=START + 3 * second)) == runs[:2][::-1]
    assert ids(ledger.runs(since=START + 2 * second, until=START + 4 * second)) == [
        runs[2],
        runs[1],
    ]
    naive = (START + 3 * second).replace(tzinfo=None)
    assert ids(ledger.runs(since=naive)) == runs[2:][::-1]
    assert ids(ledger.runs(since=START + timedelta(days=1))) == []


def test_filters_go_together(ledger: LedgerLike) -> None:
    """All conditions hold at once."""
    red = begin(ledger, 4, team="red")
    begin(ledger, 4, team="blue")
    for run in red[:3]:
        ledger.append(run, RunCompleted(), ANY)
    found = ledger.runs(
        status="completed", tags={"team": "red"}, since=START + timedelta(seconds=2), limit=1
    )
    assert ids(found) == [red[2]]


@pytest.mark.parametrize("page_size", [1, 2, 3, 500])
def test_pages_are_the_same_as_one_listing(ledger: LedgerLike, page_size: int) -> None:
    """The page size changes nothing, nor do limits that end within or at a page."""
    runs = begin(ledger, 7, a="b")[::-1]
    assert ids(ledger.runs(page_size=page_size)) == runs
    assert ids(ledger.runs(page_size=page_size, tags={"a": "b"})) == runs
    for limit in range(9):
        assert ids(ledger.runs(page_size=page_size, limit=limit)) == runs[:limit]


def test_paging_is_stable_while_new_runs_arrive(ledger: LedgerLike) -> None:
    """Pages go by key: what is new is not in the way, and nothing is skipped or doubled."""
    runs = begin(ledger, 6)[::-1]
    listing = ledger.runs(page_size=2)
    seen = ids(islice(listing, 2))
    begin(ledger, 5)
    ledger.append(runs[5], note(), ANY)
    seen += ids(islice(listing, 2))
    begin(ledger, 5)
    assert seen + ids(listing) == runs


def test_a_listing_goes_on_before_a_run(ledger: LedgerLike) -> None:
    """The last run seen is the key of the next page, even across handles and new runs."""
    runs = begin(ledger, 5)[::-1]
    page = list(ledger.runs(limit=2))
    begin(ledger, 3)
    assert ids(ledger.runs(before=page[-1])) == runs[2:]
    assert ids(ledger.runs(before=page[-1], limit=2)) == runs[2:4]
    assert ids(ledger.runs(before=ledger.run(runs[-1]))) == []


class FrozenClock(TickingClock):
    def micros(self) -> int:
        return 1_700_000_000_000_000


def test_runs_that_began_at_the_same_moment_are_paged_once_each(surface: Surface) -> None:
    """The run id breaks the tie."""
    ledger = surface.open(clock=FrozenClock())
    runs = begin(ledger, 9)
    for page_size in (1, 2, 4):
        found = ids(ledger.runs(page_size=page_size))
        assert found == sorted(runs, reverse=True)


def test_an_empty_ledger_lists_nothing(ledger: LedgerLike) -> None:
    """No run, no error."""
    assert list(ledger.runs()) == []
    assert list(ledger.runs(status="running", tags={"a": None}, prompt="x", limit=3)) == []


def test_every_handle_lists_the_same(surface: Surface) -> None:
    """The index is in the store, not in the handle."""
    one, other = surface.open(), surface.open()
    runs = [new_run_id() for _ in range(3)]
    for run in runs:
        one.append(run, note(), NEW)
    assert list(one.runs()) == list(other.runs())
    assert len(list(other.runs())) == 3
