"""A run as its worker has it: pending and committed, all or nothing, and listeners in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.runtime.states import Step, message
from tests.unit.runtime.threads import side_by_side
from turnledger.ledger import (
    ANY,
    AppendRefusedError,
    BlobNotFoundError,
    CustomEvent,
    EvaluationStarted,
    Event,
    InvalidEventError,
    Ledger,
    Limits,
    MessageAppended,
    ResourceSnapshotted,
    RunStarted,
    SliceEventApplied,
    StaleEpochError,
    StateRestored,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)
from turnledger.projections import Declarations, append_all, replace_latest
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import CREATE_PROMPT
from turnledger.runtime.session.overlay import Overlay


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    url = "memory://" if request.param == "memory" else str(tmp_path / "runs.db")
    with Ledger.open(url, limits=Limits(max_batch_events=10)) as opened:
        yield opened


@pytest.fixture
def journal(ledger: Ledger) -> Journal:
    run_id = new_run_id()
    ledger.append(run_id, RunStarted(), expected_version=0)
    return Journal(ledger, run_id)


def step(name: str) -> SliceEventApplied:
    return SliceEventApplied(slice="Step", event_type="Step", payload={"name": name})


def tags(journal: Journal) -> list[str]:
    return [record.tag for record in journal.ledger.read(journal.run_id)]


def values(known: Known) -> list[str]:
    return [value["name"] for value in known.run.slices.all("Step")]


def test_what_is_added_is_known_at_once_and_on_disk_when_committed(journal: Journal) -> None:
    """Until then another process sees nothing of it."""
    journal.add(step("a"))
    assert journal.has_pending
    assert values(journal.known) == ["a"]
    assert values(journal.committed) == []
    assert tags(journal) == ["run.started"]
    journal.commit()
    assert not journal.has_pending
    assert values(journal.committed) == ["a"]
    assert tags(journal) == ["run.started", "slice.event_applied"]
    journal.commit()
    assert journal.commits == 1


def test_events_are_added_all_or_none(journal: Journal) -> None:
    """One that can't be recorded, or bytes that can't be had, keep the others out."""
    bad = SliceEventApplied(slice="Step", event_type="Step", payload=float("nan"))
    with pytest.raises(InvalidEventError):
        journal.add(step("a"), bad)

    def broken() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        journal.add(step("a"), blobs=broken())

    def unmakeable(known: Known) -> Event:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        journal.add(step("a"), unmakeable)
    assert not journal.has_pending
    assert values(journal.known) == []


def test_an_event_may_be_made_of_what_comes_before_it(journal: Journal) -> None:
    """Also when others' events come in between."""

    def counting(known: Known) -> Event:
        return CustomEvent(kind="test.version", data=known.version)

    journal.add(step("a"), counting)
    journal.ledger.append(journal.run_id, CustomEvent(kind="some.one"), ANY)
    journal.commit()
    events = [record.event for record in journal.ledger.read(journal.run_id)]
    assert events[-1] == CustomEvent(kind="test.version", data=3)
    assert journal.known.version == 4


def test_events_are_encoded_once_also_when_others_come_in_between(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that is made of the state before it is made and encoded again."""
    encoded: list[Event] = []
    real = journal.ledger.prepare

    def counted(draft: Any) -> Any:
        encoded.append(draft.event)
        return real(draft)

    def counting(known: Known) -> Event:
        return CustomEvent(kind="test.version", data=known.version)

    monkeypatch.setattr(journal.ledger, "prepare", counted)
    ids = journal.add(step("a"), counting, step("b"))
    journal.ledger.append(journal.run_id, CustomEvent(kind="some.one"), ANY)
    journal.commit()
    versions = [event.data for event in encoded if isinstance(event, CustomEvent)]
    assert (len(encoded), versions) == (4, [2, 3])
    assert [str(r.event_id) for r in journal.ledger.read(journal.run_id, after=2)] == ids


def test_the_state_that_a_prompt_was_made_from_is_kept(journal: Journal) -> None:
    """From the first event that came of it on; a fork has its parent's, a continuation none."""
    made = msgspec.structs.replace(step("b"), call_id=CREATE_PROMPT)
    begun = EvaluationStarted(evaluation_id="e", prompt_ns="n", prompt_key="k", prompt_digest="")
    journal.add(step("a"))
    assert journal.known.prompt_base is None
    journal.add(made, step("c"), begun)
    journal.commit()
    ledger, run_id = journal.ledger, journal.run_id
    for found in (journal, Journal(ledger, run_id), Journal(ledger, ledger.fork(run_id, at=5))):
        base = found.known.prompt_base
        assert base is not None
        assert (base.version, values(base), base.prompt_base) == (2, ["a"], None)
    continued = Journal(ledger, ledger.continuation(run_id))
    assert continued.known.prompt_base is None
    continued.add(begun)
    assert continued.known.prompt_base is not None
    assert continued.known.prompt_base.version == 6


def test_what_is_pending_may_be_forgotten_all_or_in_part(journal: Journal) -> None:
    """By the ids that `add` gave."""
    first = journal.add(step("a"), step("b"))
    second = journal.add(step("c"))
    assert [journal.is_pending(one) for one in (*first, *second, "x")] == [True, True, True, False]
    journal.withdraw([first[0], *second, "x"])
    assert values(journal.known) == ["b"]
    journal.discard()
    assert values(journal.known) == []
    assert not journal.has_pending


def test_more_than_the_ledger_takes_at_once_is_several_appends(journal: Journal) -> None:
    """What was added together stays together, as far as may be."""
    heard: list[tuple[list[str], list[str]]] = []
    journal.on_commit(lambda before, now: heard.append((values(before), values(now))))
    names = [str(number) for number in range(37)]
    for group in (names[:4], names[4:8], names[8:12], names[12:37]):
        journal.add(*map(step, group))
    journal.commit()
    times: dict[Any, list[str]] = {}
    for record in journal.ledger.read(journal.run_id, after=1):
        event = record.event
        assert isinstance(event, SliceEventApplied)
        times.setdefault(record.recorded_at, []).append(event.payload["name"])
    assert list(times.values()) == [names[:8], names[8:12], names[12:22], names[22:32], names[32:]]
    assert heard == [([], names)]
    assert values(journal.committed) == names


def test_bytes_are_there_before_and_after_they_are_committed(journal: Journal) -> None:
    """And go with the event that names them."""
    for number in range(12):
        content = b"%d" % number
        journal.add(
            ResourceSnapshotted(resource="files", files={str(number): blob_name(content)}),
            blobs=[content],
        )
    assert journal.blob(blob_name(b"11")) == b"11"
    with pytest.raises(BlobNotFoundError):
        journal.ledger.blob(blob_name(b"11"))
    journal.commit()
    assert journal.blob(blob_name(b"11")) == journal.ledger.blob(blob_name(b"11")) == b"11"
    assert len(journal.known.session.resources["files"]) == 12
    with pytest.raises(BlobNotFoundError):
        journal.blob(blob_name(b"never"))


def test_a_worker_whose_run_another_has_claimed_writes_nothing(ledger: Ledger) -> None:
    """StaleEpochError, and no listener is told of a commit."""
    run_id = new_run_id()
    ledger.append(run_id, RunStarted(), expected_version=0)
    journal = Journal(ledger, run_id, claim=ledger.claim(run_id, worker="one"))
    ledger.release(journal.claim)  # type: ignore[arg-type]
    ledger.claim(run_id, worker="other")
    heard: list[Any] = []
    journal.on_commit(lambda before, now: heard.append(now))
    journal.add(step("a"))
    with pytest.raises(StaleEpochError):
        journal.commit()
    assert heard == []
    assert "slice.event_applied" not in tags(journal)


def test_a_store_that_does_not_answer_is_asked_again_with_the_same_ids(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it had been written, the ids tell: it is there once."""
    real = journal.ledger.append
    failures = [1, 1, 1]

    def unsure(*given: Any, **more: Any) -> Any:
        result = real(*given, **more)
        if failures:
            failures.pop()
            raise StoreUnavailableError("who knows")
        return result

    monkeypatch.setattr(journal.ledger, "append", unsure)
    journal.add(step("a"))
    journal.commit()
    assert tags(journal) == ["run.started", "slice.event_applied"]
    assert values(journal.committed) == ["a"]


def test_a_batch_that_fails_leaves_the_rest_pending(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on disk is told; the rest can be committed later."""
    real, calls = journal.ledger.append, [0]

    def refusing(*given: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise AppendRefusedError("no")
        return real(*given, **more)

    heard: list[list[str]] = []
    journal.on_commit(lambda before, now: heard.append(values(now)))
    names = [str(number) for number in range(15)]
    for name in names:
        journal.add(step(name))
    monkeypatch.setattr(journal.ledger, "append", refusing)
    with pytest.raises(AppendRefusedError):
        journal.commit()
    assert values(journal.committed) == names[:10]
    assert values(journal.known) == names
    journal.commit()
    assert values(journal.committed) == names
    assert heard == [names[:10], names]


def test_a_listener_that_commits_hears_of_it_after_the_others_heard_of_the_first(
    journal: Journal,
) -> None:
    """One commit after the other."""
    heard: list[tuple[str, list[str]]] = []

    def adding(before: Known, now: Known) -> None:
        heard.append(("adding", values(now)))
        if len(values(now)) == 1:
            journal.add(step("b"))
            journal.commit()

    journal.on_commit(adding)
    stop = journal.on_commit(lambda before, now: heard.append(("watching", values(now))))
    journal.add(step("a"))
    journal.commit()
    assert heard == [
        ("adding", ["a"]),
        ("watching", ["a"]),
        ("adding", ["a", "b"]),
        ("watching", ["a", "b"]),
    ]
    stop()
    journal.add(step("c"))
    journal.commit()
    assert len(heard) == 5


def test_a_listener_that_fails_is_heard_and_the_rest_is_told_later(journal: Journal) -> None:
    """The commit itself stands."""
    heard: list[list[str]] = []

    def failing(before: Known, now: Known) -> None:
        heard.append(values(now))
        if len(heard) == 1:
            raise ZeroDivisionError

    journal.on_commit(failing)
    journal.add(step("a"))
    with pytest.raises(ZeroDivisionError):
        journal.commit()
    assert values(journal.committed) == ["a"]
    journal.add(step("b"))
    journal.commit()
    assert heard == [["a"], ["a", "b"]]


def test_what_is_known_follows_what_is_declared(journal: Journal) -> None:
    """Pending or committed, and also after it is discarded."""
    declared = Declarations()
    journal = Journal(journal.ledger, journal.run_id, declarations=declared)
    journal.add(step("a"))
    journal.commit()
    journal.add(step("b"))
    declared.declare(Step)
    assert journal.state.slices.all("Step") == (Step("a"), Step("b"))
    journal.discard()
    assert journal.state.slices.all("Step") == (Step("a"),)
    assert journal.committed.run.slices.all("Step") == (Step("a"),)


def test_a_declaration_counts_for_what_is_hidden_by_what_is_pending(journal: Journal) -> None:
    """A slice that a pending event empties is there again when that is discarded."""
    declared = Declarations()
    journal = Journal(journal.ledger, journal.run_id, declarations=declared)
    journal.add(step("a"))
    journal.commit()
    journal.add(SliceEventApplied(slice="Step", event_type="Step", operation="clear"))
    declared.declare(Step)
    assert journal.state.slices.all("Step") == ()
    journal.discard()
    assert journal.state.slices.all("Step") == (Step("a"),)


SEEDED = SliceEventApplied(
    slice="Step", event_type="Step", operation="seed", payload=[{"name": "b"}]
)
RESTORED = StateRestored(snapshot={"slices": []}, reason="reset")
UNFIT = SliceEventApplied(slice="Step", event_type="Step", payload={"name": 5})
OTHER = SliceEventApplied(slice="Plan", event_type="Step", payload={"name": "b"})


@pytest.mark.parametrize(
    ("event", "is_read"),
    [(step("b"), False), (SEEDED, True), (RESTORED, True), (UNFIT, True), (OTHER, True)],
)
def test_a_type_that_is_declared_late_is_decoded_in_place_where_that_is_the_same(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, event: Event, is_read: bool
) -> None:
    """Values that were only appended, and fit; else the run is read and folded again."""
    declared = Declarations()
    begun = EvaluationStarted(evaluation_id="e", prompt_ns="n", prompt_key="k", prompt_digest="")
    journal.add(step("a"), begun, event, step("c"))
    journal.commit()
    late = Journal(journal.ledger, journal.run_id, declarations=declared)
    late.add(step("d"))
    overlay = Overlay(late)
    overlay.add(step("e"))
    reads: list[Any] = []
    real = journal.ledger.read

    def counted(*given: Any, **more: Any) -> Any:
        reads.append(given)
        return real(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(journal.ledger, "read", counted)
        declared.declare(Step)
        found, changed = late.known, overlay.known
    assert bool(reads) is is_read
    late.refold()
    assert found.run.state_digest == late.known.run.state_digest
    assert found.run.slices.all("Step") == late.known.run.slices.all("Step")
    assert found.prompt_base is not None
    assert found.prompt_base.run.slices.all("Step") == (Step("a"),)
    assert changed.run.slices.all("Step") == (*found.run.slices.all("Step"), Step("e"))


def test_a_reducer_that_is_registered_late_folds_the_run_again(journal: Journal) -> None:
    """What it makes of the events can't be told from what another made of them."""
    declared = Declarations()
    journal = Journal(journal.ledger, journal.run_id, declarations=declared)
    journal.add(step("a"), step("b"))
    journal.commit()
    for reducer, expected in ((replace_latest, 1), (None, 2), (append_all, 2)):
        declared.register(Step, Step, reducer)
        assert len(journal.state.slices.all("Step")) == expected


def test_a_fold_that_fails_changes_nothing(journal: Journal) -> None:
    """It is tried again when the declarations are fixed."""
    declared = Declarations()
    journal = Journal(journal.ledger, journal.run_id, declarations=declared)
    journal.add(step("a"))
    journal.commit()

    def failing(found: Any, event: Any, *, context: Any) -> Any:
        raise ZeroDivisionError

    declared.register(Step, Step, failing)
    with pytest.raises(ZeroDivisionError):
        _ = journal.known
    declared.register(Step, Step, None)
    assert journal.state.slices.all("Step") == (Step("a"),)


def test_all_that_is_known_can_be_read_as_records(journal: Journal) -> None:
    """What is pending comes last, under the ids that it will have."""
    journal.add(step("a"))
    journal.commit()
    ids = journal.add(step("b"))
    found = list(journal.records())
    assert [record.version for record in found] == [1, 2, 3]
    assert str(found[-1].event_id) == ids[0]
    assert journal.folded(2, found[2:]).run.state_digest == journal.state.state_digest
    journal.commit()
    assert [r.event_id for r in journal.ledger.read(journal.run_id)] == [r.event_id for r in found]


def test_a_run_that_does_not_exist_yet_begins_with_its_first_commit(ledger: Ledger) -> None:
    """RunStarted is pending like anything else."""
    journal = Journal(ledger, new_run_id())
    assert journal.known.version == 0
    journal.add(RunStarted(), step("a"))
    assert ledger.head(journal.run_id) == 0
    journal.refold()
    journal.commit()
    assert ledger.head(journal.run_id) == 2


def test_messages_of_a_conversation_are_known_by_id(journal: Journal) -> None:
    """A continuation begins another conversation, a fork goes on with it."""
    said = message("user", "Hi", 0)
    journal.add(MessageAppended(message=said))
    journal.commit()
    ledger, run_id = journal.ledger, journal.run_id
    key = str(said.message_id)
    assert journal.known.session.messages.get(key)
    assert journal.known.session.begun
    fork = Journal(ledger, ledger.fork(run_id, at=2))
    assert fork.known.session.messages.get(key)
    assert not fork.known.session.begun
    continued = Journal(ledger, ledger.continuation(run_id))
    assert continued.known.session.messages.get(key) is None
    assert "InnerMessage" in continued.known.session.names


def test_threads_that_add_and_commit_lose_nothing(journal: Journal) -> None:
    """Each commit is told, in order."""
    heard: list[int] = []
    journal.on_commit(lambda before, now: heard.append(now.version))

    def work(name: str) -> None:
        for number in range(10):
            journal.add(step(f"{name}{number}"))
            journal.commit()

    side_by_side(*(lambda name=name: work(name) for name in "abcd"))
    assert len(set(values(journal.committed))) == 40
    assert heard == sorted(heard)
    assert heard[-1] == 41
