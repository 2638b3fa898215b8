"""Export and import over the API: what is carried, what is refused, and how much at once."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conformance.harness import STORES, store_under_test
from tests.conformance.samples import note, notes
from tests.matrices import cells
from tests.unit.ledger.export_files import export, family, parsed, relinked, take
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Draft,
    Event,
    ImportConflictError,
    InvalidEventError,
    Ledger,
    LimitExceededError,
    Limits,
    ResourceSnapshotted,
    RunClaimedError,
    RunCompleted,
    RunNotFoundError,
    RunStarted,
    blob_name,
    import_runs,
    new_run_id,
)
from turnledger.ledger.events.types import CATALOGUE


@pytest.fixture(params=STORES)
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Ledger]]:
    """Opens empty ledgers in every kind of store in turn, and closes them."""
    with ExitStack() as stack:

        def open_one(**options: Any) -> Ledger:
            store = stack.enter_context(store_under_test(request.param, tmp_path))
            return store.open(**options)

        yield open_one


@pytest.fixture
def here(open_ledger: Callable[..., Ledger]) -> Ledger:
    """A ledger to export from."""
    return open_ledger()


@pytest.fixture
def there(open_ledger: Callable[..., Ledger]) -> Ledger:
    """A ledger to import into."""
    return open_ledger()


def test_everything_is_carried(here: Ledger, there: Ledger) -> None:
    """Records, index, blobs and lineage are the same in the other ledger, to the byte."""
    runs = family(here)
    content = export(here)
    report = take(there, content)
    assert (report.runs, report.records, report.imported, report.blobs) == (4, 11, 11, 1)
    assert export(there) == content
    assert there.verify_all().ok
    assert there.verify_all() == here.verify_all()
    assert list(there.runs()) == list(here.runs())
    for run in runs:
        found, given = (
            [r.row._replace(position=0) for r in one.read(run)] for one in (there, here)
        )
        assert found == given
    positions = [record.position for record in there.tail()]
    assert positions == sorted(set(positions))


def test_a_fork_of_shared_history_brings_what_it_needs(here: Ledger, there: Ledger) -> None:
    """The last of a line of forks brings all its ancestors, and only those."""
    *_, last = family(here)
    here.append(new_run_id(), note(), NEW)
    content = export(here, last)
    take(there, content)
    assert export(there) == content
    assert [r.digest for r in there.read(last)] == [r.digest for r in here.read(last)]


def test_a_fork_joins_a_parent_that_has_gone_on(here: Ledger, there: Ledger) -> None:
    """The parent is there already and longer: it is left, and the fork goes on from its part."""
    run = new_run_id()
    here.append(run, notes(3), NEW)
    take(there, export(here))
    child = here.fork(run, 3)
    here.append(child, note(7), 4)
    there.append(run, notes(2), 3)
    report = take(there, export(here, child))
    assert (report.imported, report.already_there) == (2, 3)
    assert there.head(run) == 5
    assert [r.digest for r in there.read(child)] == [r.digest for r in here.read(child)]
    assert export(there, child) != export(here, child)  # the parent is longer here
    assert there.verify_all().ok


def test_a_run_that_is_being_worked_on_is_exported_and_taken(here: Ledger, there: Ledger) -> None:
    """A claim does not travel: the run is free in the other ledger, and fenced by its epoch."""
    run = new_run_id()
    here.append(run, [RunStarted()], NEW)
    claim = here.claim(run)
    here.append(run, [RunCompleted()], claim.version, claim.epoch)
    take(there, export(here))
    assert there.worker_of(run) is None
    assert there.claim(run).epoch == claim.epoch + 1


def test_what_is_imported_can_go_on(here: Ledger, there: Ledger) -> None:
    """An imported run takes appends, forks, claims and retries like any other."""
    run = new_run_id()
    draft = Draft(note(1), uuid4())
    here.append(run, [RunStarted()], NEW)
    here.append(run, [draft], 1)
    take(there, export(here))
    assert there.append(run, [draft], 1).duplicate
    there.append(run, [note(2)], 2)
    child = there.fork(run, 3)
    with there.claim(child) as claim:
        there.append(child, [RunCompleted()], claim.version, claim.epoch)
    assert there.verify_all().ok


def test_the_ledger_is_what_appending_would_have_made(here: Ledger, there: Ledger) -> None:
    """A rebuilt index is the one that the import wrote."""
    family(here)
    take(there, export(here))
    before = list(there.runs())
    there.rebuild_index()
    assert list(there.runs()) == before


def test_the_file_says_what_it_is(here: Ledger) -> None:
    """A header, blobs just before the first record that names them, records, the counts."""
    runs = family(here)
    lines = parsed(export(here))
    assert lines[0] == {"turnledger": 1, "catalogue": CATALOGUE}
    assert lines[-1] == {"end": {"runs": 4, "records": 11, "blobs": 1}}
    (place,) = [n for n, line in enumerate(lines) if "blob" in line]
    assert base64.b64decode(lines[place]["content"]) == b"a file"
    assert lines[place + 1]["type"] == "resource.snapshotted"
    owners = [line["run_id"] for line in lines if "run_id" in line]
    assert list(dict.fromkeys(owners)) == [str(run) for run in runs]
    assert all("position" not in line for line in lines)


def test_large_runs_go_in_batches_of_whole_commits(open_ledger: Callable[..., Ledger]) -> None:
    """Thousands of records in commits of many sizes arrive whole, many to a transaction."""
    here, there = open_ledger(), open_ledger(limits=Limits(max_batch_events=300))
    run = new_run_id()
    version = 0
    for size in (300, 1, 299, 7, 300, 300, 2) + (1,) * 50:
        here.append(run, notes(size), version or NEW)
        version += size
    for _ in range(20):
        here.append(new_run_id(), notes(40), NEW)
    report = take(there, export(here))
    assert report.imported == version + 800
    assert export(there) == export(here)
    assert there.verify_all().ok


def test_a_stream_that_can_not_be_rewound_is_read_too(here: Ledger, there: Ledger) -> None:
    """A pipe is kept in a file of its own while it is checked."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: object) -> int:
            raise io.UnsupportedOperation

    family(here)
    content = export(here)
    assert import_runs(there, Pipe(content)).imported == 11
    assert export(there) == content


@pytest.mark.parametrize(
    ("open_ledger", "moment"), cells(list(STORES), range(5)), indirect=["open_ledger"]
)
def test_another_import_may_come_in_between(
    here: Ledger, there: Ledger, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Wherever another import of the same file overtakes, each record is written once."""
    run = new_run_id()
    for version in range(0, 1500, 500):
        here.append(run, notes(500, version), version or NEW)
    content = export(here)
    write = there.store.write
    calls = 0
    overtaking = 0

    def overtaken(work: Callable[[Any], Any]) -> Any:
        nonlocal calls, overtaking
        calls += 1
        if calls == moment + 1:
            monkeypatch.setattr(there.store, "write", write)
            overtaking = take(there, content).imported
            monkeypatch.setattr(there.store, "write", overtaken)
        return write(work)

    monkeypatch.setattr(there.store, "write", overtaken)
    imported = take(there, content).imported
    assert calls > moment
    assert overtaking > 0
    assert imported + overtaking == 1500
    assert export(there) == content


def test_old_payloads_are_carried_as_they_are(here: Ledger, there: Ledger) -> None:
    """A record of a retired type keeps its tag and bytes, and is read as its successor."""
    run = new_run_id()
    here.append(run, [note()], NEW)
    lines = parsed(export(here))
    lines[1]["type"] = "message.recorded"
    lines[1]["data"] = {
        "role": "user",
        "content": "hello",
        "evaluation_id": "e",
        "sequence": 0,
        "created_at": "2025-01-01T00:00:00Z",
        "message_id": str(uuid4()),
    }
    content = relinked(lines)
    take(there, content)
    assert export(there) == content
    (record,) = there.read(run)
    assert (record.tag, record.event.tag) == ("message.recorded", "message.appended")


# --- refused, because of what the ledger holds or allows -----------------------------


def test_another_history_is_a_conflict(here: Ledger, there: Ledger) -> None:
    """The error names the run, the first version that differs, and both digests."""
    run = new_run_id()
    here.append(run, notes(3), NEW)
    take(there, export(here))
    ours = there.append(run, [note(4), note(5)], 3).records[0]
    theirs = here.append(run, [note(6), note(7)], 3).records[0]
    other = new_run_id()
    here.append(other, note(), NEW)
    with pytest.raises(ImportConflictError) as caught:
        take(there, export(here))
    for word in ("line 5", str(run), "version 4", ours.digest, theirs.digest):
        assert word in str(caught.value)
    assert there.head(other) == 0
    assert there.head(run) == 5


def test_another_run_under_the_same_id_is_a_conflict(here: Ledger, there: Ledger) -> None:
    """A fork and a plain run under one id are told apart."""
    run, child = new_run_id(), new_run_id()
    here.append(run, notes(3), NEW)
    here.fork(run, 3, child=child)
    there.append(child, notes(5), NEW)
    with pytest.raises(ImportConflictError, match=str(child)):
        take(there, export(here))
    assert there.head(run) == 0


def test_an_event_id_of_another_run_is_a_conflict(here: Ledger, there: Ledger) -> None:
    """Event ids are unique in a ledger for ever, also for imports."""
    event_id = uuid4()
    first, second = new_run_id(), new_run_id()
    here.append(first, note(), NEW)
    here.append(second, [Draft(note(), event_id)], NEW)
    there.append(new_run_id(), [Draft(note(), event_id)], NEW)
    with pytest.raises(ImportConflictError, match=str(event_id)):
        take(there, export(here))
    assert (there.head(first), there.head(second)) == (0, 0)


def test_a_claimed_run_is_left_alone(here: Ledger, there: Ledger) -> None:
    """A run with a living worker is not extended; once released it is; unextended it is fine."""
    run = new_run_id()
    there.append(run, [RunStarted()], NEW)
    claim = there.claim(run, worker="somebody")
    take(here, export(there))
    unchanged = export(here)
    here.append(run, [note()], ANY)
    longer = export(here)
    assert take(there, unchanged).already_there == 2
    with pytest.raises(RunClaimedError, match="somebody"):
        take(there, longer)
    claim.release()
    assert take(there, longer).imported == 1


@pytest.mark.parametrize(
    ("limits", "events", "blobs"),
    [
        (Limits(max_event_bytes=100), [note(text="x" * 200)], []),
        (Limits(max_batch_events=2), notes(3), []),
        (Limits(max_batch_bytes=100), notes(5), []),
        (Limits(max_json_depth=3), [CustomEvent(kind="a.b", data=[[[[1]]]])], []),
        (
            Limits(max_blob_bytes=10),
            [ResourceSnapshotted(resource="r", files={"a": blob_name(b"x" * 11)})],
            [b"x" * 11],
        ),
        (Limits(max_event_bytes=10, max_blob_bytes=10), [note(text="x" * 10_000)], []),
    ],
)
def test_limits_apply(
    open_ledger: Callable[..., Ledger], limits: Limits, events: list[Event], blobs: list[bytes]
) -> None:
    """What the ledger would not have accepted from an append, it does not from a file."""
    here, there = open_ledger(), open_ledger(limits=limits)
    here.append(new_run_id(), events, NEW, blobs=blobs)
    with pytest.raises((LimitExceededError, InvalidEventError), match="line "):
        take(there, export(here))
    assert list(there.runs()) == []


def test_an_unknown_run_is_not_exported(here: Ledger) -> None:
    """Asking for a run that is not there is an error."""
    with pytest.raises(RunNotFoundError):
        export(here, new_run_id())
