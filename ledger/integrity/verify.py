"""Verification: recomputes the hash chains, and checks blobs, tags and the run index against them.

Rows are read raw, so that any damage is reported instead of raising; of each run the first bad
record, since every digest after it depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from turnledger.ledger.errors import (
    EventDecodeError,
    IntegrityFailureError,
    RunNotFoundError,
)
from turnledger.ledger.events.blobs import blob_name
from turnledger.ledger.events.types import Event, RunStarted
from turnledger.ledger.integrity.run_check import (
    Problem,
    RunCheck,
    first_version,
    is_id,
    problem_at,
    text_of,
)
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.index import RunRow, child_of
from turnledger.ledger.runs.lineage import NO_END, lineage
from turnledger.ledger.runs.record import RawRow
from turnledger.ledger.stores.base import RunQuery, Store

# Records after which a verification says how many they are.
PROGRESS_EVERY = 1_000


class ForkPoint(NamedTuple):
    """The record of a parent that a run starts from; whether it is the last of its commit."""

    digest: Any
    moment: Any
    ends_commit: bool


class ForkPoints:
    """Looks up fork points in raw rows, each once, however long a line of forks is."""

    def __init__(self, store: Store, decode: Callable[[RawRow], Event | None]) -> None:
        self._store = store
        self._decode = decode
        # Each run's parent and version in it; the record at each (run, version) of a lineage.
        self._origins: dict[str, tuple[str, int] | None] = {}
        self._found: dict[tuple[str, int], ForkPoint | None] = {}

    def learn(self, run_id: str, first: Event | None) -> None:
        """Remember what a run starts from, by its first own event."""
        origin = None
        if isinstance(first, RunStarted) and first.parent is not None:
            origin = (str(first.parent), first.at)
        self._origins[run_id] = origin

    def find(self, run_id: str, version: int) -> ForkPoint | None:
        """The record at a version of a run's lineage; None if it is missing or in a cycle."""
        walked: set[tuple[str, int]] = set()
        owner, found = run_id, None
        while (owner, version) not in walked:
            if (owner, version) in self._found:
                found = self._found[owner, version]
                break
            walked.add((owner, version))
            origin = self._origin(owner)
            if origin is None or version > origin[1]:
                found = self._look(owner, version)
                break
            owner = origin[0]
        for place in walked:
            self._found[place] = found
        return found

    def _origin(self, run_id: str) -> tuple[str, int] | None:
        if run_id not in self._origins:
            first = next(iter(self._store.raw_rows(run_id.encode())), None)
            self.learn(run_id, self._decode(first) if first is not None else None)
        return self._origins[run_id]

    def _look(self, run_id: str, version: int) -> ForkPoint | None:
        rows = list(islice(self._store.raw_rows(run_id.encode(), version), 2))
        if not rows or rows[0].version != version:
            return None
        moment = rows[0].recorded_at
        goes_on = len(rows) == 2 and (rows[1].version, rows[1].recorded_at) == (version + 1, moment)
        return ForkPoint(rows[0].digest, moment, not goes_on)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification. `notes` are worth knowing and not problems."""

    runs: int
    records: int
    blobs: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


class Verifier:
    """Verifies runs of one store; collects problems and counts."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store = store
        self._codec = codec
        self.records = 0
        self.runs = 0
        self.problems: list[Problem] = []
        self._blobs: dict[str, bool] = {}
        # Tags of runs that verified, until they are found in the table of tags.
        self._tags: dict[bytes, set[tuple[bytes, bytes]]] = {}
        self._checked_runs: set[bytes] = set()
        self._points = ForkPoints(store, self._event)

    def report(self) -> Report:
        return Report(
            runs=self.runs,
            records=self.records,
            blobs=len(self._blobs),
            problems=tuple(self.problems),
        )

    def check_run(self, run_id: bytes, listed: int = 0, until: int | None = None) -> None:
        """Verify a run's own records (see `checking_run`)."""
        for _ in self.checking_run(run_id, listed, until):
            pass

    def checking_run(
        self, run_id: bytes, listed: int = 0, until: int | None = None
    ) -> Iterator[int]:
        """Verify a run's own records: order, digests, content, blobs, and its row in the index.

        Now and then it gives the number of records so far: to show it, or to stop there.

        Args:
            run_id: The id as it is stored.
            listed: How many rows of the run the whole table has; if reading the run gives
                fewer, some are hidden from readers.
            until: Of an ancestor: the version that its child goes on from. What came later, and
                what the index says of it, is not looked at.
        """
        self.runs += 1
        self._checked_runs.add(run_id)
        index = self._index_row(run_id)
        check: RunCheck | None = None
        last: RawRow | None = None
        already = self.records
        for row in self._store.raw_rows(run_id):
            if until is not None and check is not None and check.state.version >= until:
                break
            self.records += 1
            if self.records % PROGRESS_EVERY == 0:
                yield self.records
            if check is None:
                start = self._start(row)
                if isinstance(start, str):
                    self.problems.append(problem_at(row, start))
                    return
                check = RunCheck(start, index, self._codec, is_blob=self._blob_ok)
            problem = self._taken(check, row)
            if problem is not None:
                self.problems.append(problem)
                return
            last = row
        if self.records - already < listed:
            hidden = listed - (self.records - already)
            self._report_missing(run_id, None, f"{hidden} records are hidden from readers")
        if until is not None:
            reached = check.state.version if check is not None else 0
            if reached < until:
                self._report_missing(run_id, reached + 1, "the record is missing")
        elif check is not None and last is not None:
            self._check_index(last, check)
            tags = check.state.tag_map.items()
            self._tags[run_id] = {(key.encode(), value.encode()) for key, value in tags}
        elif index is not None:
            what = "the run is in the index and has no records"
            self._report_missing(run_id, first_version(index), what)

    def _taken(self, check: RunCheck, row: RawRow) -> Problem | None:
        try:
            found = check.take(row)
        except EventDecodeError:
            return problem_at(row, "the data is not a valid event of its type")
        return found if isinstance(found, Problem) else None

    def check_tags(self) -> None:
        """Verify the table by which runs are listed by tag."""
        for run_id, key, value in self._store.raw_tags():
            known = self._tags.get(run_id)
            if known is not None and (key, value) in known:
                known.remove((key, value))
            elif known is not None or not self._is_tag_of_new(run_id, key, value):
                self._report_tag(run_id, f"has {text_of(key)}={text_of(value)}, the run does not")
        for run_id, known in self._tags.items():
            for key, value in sorted(known):
                self._report_tag(run_id, f"lacks {text_of(key)}={text_of(value)}")

    def _is_tag_of_new(self, run_id: Any, key: Any, value: Any) -> bool:
        """Whether a tag is of a run that was appended meanwhile, or that is reported already."""
        if run_id in self._checked_runs:
            return True
        row = self._index_row(run_id)
        try:
            return row is not None and row.tag_map.get(key.decode()) == value.decode()
        except (IntegrityFailureError, UnicodeDecodeError):
            return False

    def report_whole(self, what: str) -> None:
        """Report damage that belongs to no run."""
        self.problems.append(Problem(run_id="", what=what))

    def _report_tag(self, run_id: bytes, what: str) -> None:
        self._report_missing(run_id, None, f"the index of tags {what}: rebuild the index")

    def check_blobs(self, names: Iterator[str]) -> None:
        for name in names:
            self._blob_ok(name)
        for name, ok in self._blobs.items():
            if not ok:
                self.report_whole(f"blob {name} is missing, or its bytes do not have that hash")

    def _blob_ok(self, name: str) -> bool:
        if name not in self._blobs:
            content = self._store.blob(name)
            self._blobs[name] = isinstance(content, bytes) and blob_name(content) == name
        return self._blobs[name]

    def _start(self, row: RawRow) -> RunRow | str:
        """A run's row before its first own record; text if what it starts from is impossible."""
        if not is_id(row.run_id):
            return "the run's id is not a UUID in canonical form"
        run_id, event = text_of(row.run_id), self._event(row)
        self._points.learn(run_id, event)
        if not isinstance(event, RunStarted) or event.parent is None:
            return RunRow(run_id)
        point = self._points.find(str(event.parent), event.at)
        if point is None:
            return f"version {event.at} of the parent run {event.parent} is missing"
        if not point.ends_commit:
            return (
                f"the run starts from version {event.at} of the parent run {event.parent}, "
                "which is in the middle of a commit"
            )
        moment = point.moment if isinstance(point.moment, int) else 0
        return child_of(run_id, point.digest, moment, event)

    def _event(self, row: RawRow) -> Event | None:
        try:
            return self._codec.decode(row.tag.decode(), row.data)
        except (EventDecodeError, UnicodeDecodeError, AttributeError, TypeError):
            return None

    def _index_row(self, run_id: bytes) -> RunRow | None:
        try:
            return self._store.run(run_id.decode())
        except (AttributeError, UnicodeDecodeError, IntegrityFailureError):
            return None  # unreadable is as good as missing

    def _check_index(self, last: RawRow, check: RunCheck) -> None:
        index, folded = check.index, check.state
        if index is None:
            what = "the run is not in the index: rebuild the index, or it is forged"
            self.problems.append(problem_at(last, what))
            return
        if problem := check.ahead():
            self.problems.append(problem)
            return
        if check.at_index is not None and check.at_index is not folded:
            # The index was read before the records. If it has caught up since, a writer appended
            # meanwhile, and the state at the version of the first reading is what counts.
            now = self._index_row(last.run_id)
            if now is not None and isinstance(now.version, int) and now.version >= folded.version:
                folded = check.at_index
        if what := check.differs(folded):
            self.problems.append(problem_at(last, what))

    def _report_missing(self, run_id: bytes, version: int | None, what: str) -> None:
        self.problems.append(Problem(run_id=text_of(run_id), version=version, what=what))


def verifying_run(store: Store, codec: Codec, run: str) -> Iterator[int | Report]:
    """Recompute the digests of a run, and of its ancestors up to where it starts from them.

    It gives the number of records so far now and then, and the report at the end.

    Args:
        store: The store that has the run.
        codec: Decodes its events.
        run: The run's id.
    """
    verifier = Verifier(store, codec)
    try:
        segments = lineage(run, store.run)
    except (RunNotFoundError, IntegrityFailureError):
        if not any(True for _ in store.raw_rows(run.encode())):
            raise
        yield from verifier.checking_run(run.encode())
    else:
        for segment in segments:
            until = segment.until if segment.until < NO_END else None
            yield from verifier.checking_run(segment.run_id.encode(), until=until)
    yield verifier.report()


def verify_all(store: Store, codec: Codec, progress: Callable[[int], None] | None = None) -> Report:
    """Verify every run that is in the events or the index, all tags and blobs, and the files.

    Args:
        store: The store to read.
        codec: Decodes the events.
        progress: Called after each run with the number of records so far.
    """
    verifier = Verifier(store, codec)
    seen: set[bytes] = set()
    for run_id, count in store.raw_run_ids():
        seen.add(run_id)
        verifier.check_run(run_id, count)
        if progress is not None:
            progress(verifier.records)
    try:
        for row in every_run(store):
            listed: Any = row.run_id
            if not isinstance(listed, str):
                verifier.report_whole(f"the index has a run {listed!r:.80}, which is not text")
            elif listed.encode() not in seen:
                verifier.check_run(listed.encode())
        verifier.check_tags()
        verifier.check_blobs(store.blob_names())
    except IntegrityFailureError as error:
        verifier.report_whole(str(error))
    for found in store.own_findings():
        verifier.report_whole(f"the file: {found}")
    return verifier.report()


def every_run(store: Store) -> Iterator[RunRow]:
    """All rows of the run index, read in pages."""
    query = RunQuery()
    while rows := store.list_runs(query):
        yield from rows
        reached = (rows[-1].started_at, rows[-1].run_id)
        if reached == query.before:  # a damaged index would give the same page for ever
            raise IntegrityFailureError(
                "The run index is damaged: rows are out of order. Run `turnledger rebuild-index`."
            )
        query = RunQuery(before=reached)
