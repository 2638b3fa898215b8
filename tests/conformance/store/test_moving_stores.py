"""Export, import, export: the same bytes, over every kind of store and every golden history."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.samples import PICTURE, message, note, notes, one_of_each, started
from tests.matrices import further
from tests.postgres import new_database, new_schema
from tests.unit.ledger.strategies import BLOBS, events
from turnledger.ledger import (
    NEW,
    CustomEvent,
    Event,
    Ledger,
    Limits,
    ModelReplied,
    ResourceSnapshotted,
    RunCompleted,
    RunFailed,
    SliceEventApplied,
    StateRestored,
    ToolCallCompleted,
    blob_name,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.integrity.seal import Seal, make_seal

HISTORIES = Path(__file__).parents[2] / "replay" / "histories"
GOLDEN = {str(path.relative_to(HISTORIES)): path for path in sorted(HISTORIES.rglob("*.jsonl"))}
# To the server and back, through the process's memory, and into a file again.
JOURNEY = ("sqlite", "postgres", "sqlite", "memory", "sqlite")
NOW = 1_700_000_000_000_000


class Places:
    """Gives an empty ledger of any kind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._database = new_database()

    def new(self, kind: str, **options: Any) -> Ledger:
        if kind == "sqlite":
            return Ledger.open(self._folder / f"{uuid4()}.db", **options)
        if kind == "postgres":
            return Ledger.open(new_schema(self._database), **options)
        return Ledger.open("memory://", **options)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("places"))


def exported(ledger: Ledger, runs: Sequence[UUID] | None = None, seal: Seal | None = None) -> bytes:
    out = io.BytesIO()
    export_runs(ledger, out, runs, seal=seal)
    return out.getvalue()


def travel(
    content: bytes, places: Places, runs: Sequence[UUID] | None = None, **options: Any
) -> Iterator[bytes]:
    """Carry a file from ledger to ledger; what each of them exports, with the seal it brought."""
    for kind in JOURNEY:
        with closing(places.new(kind, **options)) as ledger:
            report = import_runs(ledger, io.BytesIO(content))
            content = exported(ledger, runs, report.seal)
        yield content


def check(source: Ledger, places: Places, runs: Sequence[UUID] | None = None, **more: Any) -> None:
    """That nothing changes on the way, with a seal and without one."""
    for seal in (None, make_seal(source, NOW)):
        first = exported(source, runs, seal)
        for kind, content in zip(JOURNEY, travel(first, places, runs, **more), strict=True):
            assert content == first, kind


def golden_history(name: str) -> bytes:
    """A golden history with the header of an export of today, which names today's catalogue."""
    header, records = GOLDEN[name].read_bytes().split(b"\n", 1)
    assert re.fullmatch(rb'{"turnledger":1,"catalogue":[12456]}', header)
    return b'{"turnledger":1,"catalogue":%d}\n' % CATALOGUE + records


@pytest.mark.parametrize("name", further(*GOLDEN))
def test_a_golden_history_comes_back_as_it_went(name: str, places: Places) -> None:
    """SQLite, PostgreSQL, SQLite, memory, SQLite: the file that is kept is the file that comes."""
    golden = golden_history(name)
    for kind, content in zip(JOURNEY, travel(golden, places), strict=True):
        assert content == golden, kind


def test_all_golden_histories_in_one_ledger_come_back(places: Places) -> None:
    """All at once, sealed and not, and then each of them alone out of the whole."""
    with closing(places.new("memory")) as source:
        own: dict[str, list[UUID]] = {}
        before: set[UUID] = set()
        for name, path in GOLDEN.items():
            with path.open("rb") as file:
                import_runs(source, file)
            found = (*source.runs(), *source.runs(kind="prompt"))
            now = {info.run_id for info in found}
            own[name], before = sorted(now - before), now
        check(source, places)
        for name in GOLDEN:
            assert exported(source, own[name]) == golden_history(name)


def awkward(ledger: Ledger, limits: Limits) -> list[UUID]:
    """Forks of forks, continuations, shared blobs, odd numbers and texts, the largest allowed."""
    run, other = new_run_id(), new_run_id()
    files = {"a": blob_name(PICTURE), "ü": blob_name(b"")}
    at = ledger.append(run, [started(), *one_of_each()], NEW, blobs=[PICTURE]).version
    ledger.append(run, ResourceSnapshotted(resource="r", files=files), at, blobs=[b""])
    odd: list[Any] = [0.1, 1e308, -0.0, 5e-324, 2**64 - 1, -(2**63), 1.0, True, None, {"": [[]]}]
    texts = ["\x00", "\x9b", "\u2028", "\u202e", "🦜", '","data":{', "\\u0000", "é" * 99]
    ledger.append(run, [CustomEvent(kind="a.b", data=value) for value in (odd, texts)], at + 1)
    child = ledger.fork(run, at)
    ledger.append(child, ResourceSnapshotted(resource="r", files=files), at + 1)
    early = ledger.fork(child, at, tags={"": "", "é": "🦜"})
    next_one = ledger.continuation(early)
    last = ledger.continuation(ledger.fork(next_one, at + 2), tags={"which": "last"})
    ledger.append(run, RunCompleted(), at + 3)
    size = limits.max_event_bytes - len(ledger.codec.encode(note(text=""))[1])
    ledger.append(other, notes(limits.max_batch_events), NEW)
    ledger.append(other, note(text="x" * size), limits.max_batch_events)
    largest = bytes(limits.max_blob_bytes)
    disk = ResourceSnapshotted(resource="disk", files={"b": blob_name(largest)})
    ledger.append(other, disk, limits.max_batch_events + 1, blobs=[largest])
    with ledger.claim(child) as claim:
        ledger.append(child, message("claimed"), claim.version, claim.epoch)
    return [last, other]


@pytest.mark.parametrize("chosen", [True, False], ids=["chosen", "all"])
def test_awkward_ledgers_come_back(chosen: bool, places: Places) -> None:
    """Whole, and a fork of a fork with its ancestors; limits are met to the byte."""
    limits = Limits(max_event_bytes=30_000, max_batch_events=100, max_blob_bytes=50_000)
    with closing(places.new("sqlite", limits=limits)) as source:
        runs = awkward(source, limits)
        check(source, places, runs[:1] if chosen else None, limits=limits)


def test_the_header_does_not_depend_on_the_ledger(places: Places) -> None:
    """Who wrote to a ledger before, or with what, changes nothing in a file."""
    with closing(places.new("sqlite")) as ledger:
        run = new_run_id()
        ledger.append(run, notes(2), NEW)
        first = exported(ledger, [run])
        with closing(ledger.store.pool.connect()) as db:  # type: ignore[attr-defined]
            db.execute("UPDATE meta SET value='7' WHERE key='catalogue'")
        assert exported(ledger, [run]) == first


# --- any ledger --------------------------------------------------------------------------

PLAIN = (
    CustomEvent,
    SliceEventApplied,
    StateRestored,
    ModelReplied,
    ToolCallCompleted,
    RunCompleted,
    RunFailed,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.just(0), st.lists(events(*PLAIN), min_size=1, max_size=4)),
        st.tuples(
            st.just("append"), st.integers(0), st.lists(events(*PLAIN), min_size=1, max_size=4)
        ),
        st.tuples(st.just("keep"), st.integers(0), st.binary(max_size=40)),
        st.tuples(st.sampled_from(["fork", "continuation"]), st.integers(0), st.integers(0)),
    ),
    max_size=12,
)


def build(ledger: Ledger, plan: list[tuple[str, int, Any]]) -> list[UUID]:
    """The ledger that a list of steps means; numbers choose among what is there."""
    runs: list[UUID] = []
    for step, number, what in plan:
        if step == "begin" or not runs:
            content: list[Event] = what if isinstance(what, list) else [note()]
            runs.append(new_run_id())
            ledger.append(runs[-1], content, NEW, blobs=BLOBS)
            continue
        run = runs[number % len(runs)]
        if step == "append":
            ledger.append(run, what, ledger.head(run), blobs=BLOBS)
        elif step == "keep":
            kept = ResourceSnapshotted(resource="disk", files={"f": blob_name(what)})
            ledger.append(run, kept, ledger.head(run), blobs=[what])
        else:
            runs.append(getattr(ledger, step)(run, at=_commit_end(ledger, run, what)))
    return runs


def _commit_end(ledger: Ledger, run: UUID, number: int) -> int:
    times = [record.recorded_at for record in ledger.read(run)]
    ends = [v for v in range(1, len(times) + 1) if v == len(times) or times[v] != times[v - 1]]
    return ends[number % len(ends)]


@pytest.fixture(scope="module")
def visited(places: Places) -> Iterator[list[Ledger]]:
    """One ledger of each kind, which many families of runs come through."""
    ledgers = [places.new(kind) for kind in ("postgres", "sqlite", "memory")]
    yield ledgers
    for ledger in ledgers:
        ledger.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=steps, sealed=st.booleans(), chosen=st.sets(st.integers(0, 11)))
def test_any_ledger_comes_back(
    visited: list[Ledger], plan: list[tuple[str, int, Any]], sealed: bool, chosen: set[int]
) -> None:
    """Whatever was appended, forked and continued, whole or in part, sealed or not."""
    with Ledger.open("memory://") as source:
        runs = build(source, plan)
        some = [run for place, run in enumerate(runs) if place in chosen] or runs
        if not some:
            return
        content = exported(source, some, make_seal(source, NOW) if sealed else None)
    for ledger in visited:
        report = import_runs(ledger, io.BytesIO(content))
        assert report.already_there == 0
        assert exported(ledger, some, report.seal) == content
