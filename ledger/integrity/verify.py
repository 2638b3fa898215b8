"""Verification: recomputes the hash chains, and checks blobs, tags and the run index against them.

Rows are read raw, so that any damage is reported instead of raising; of each run the first bad
record, since every digest after it depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from turnledger.ledger.clock import is_moment
from turnledger.ledger.errors import EventDecodeError, IntegrityFailureError
from turnledger.ledger.events.blobs import blob_name, blobs_named
from turnledger.ledger.events.chain import GENESIS, UUID_TEXT, link
from turnledger.ledger.events.types import Event, RunStarted
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.index import INDEXED_TAGS, RunRow, advance, child_of
from turnledger.ledger.runs.record import RawRow
from turnledger.ledger.stores.base import RunQuery, Store

_UUID: Final = re.compile(UUID_TEXT.pattern.encode())


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


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The first damaged record of a run, or damage outside of runs (`run_id` is then empty)."""

    run_id: str
    version: int | None = None
    position: int | None = None
    event_id: str | None = None
    what: str

    def __str__(self) -> str:
        if not self.run_id:
            return self.what
        where = f"run {self.run_id}"
        if self.version is not None:
            where += f", version {self.version}"
        if self.position is not None:
            where += f", position {self.position}"
        return f"{where}: {self.what}"


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


def text_of(value: Any) -> str:
    """A stored value of any type, as text for a report."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


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

    def check_run(self, run_id: bytes, listed: int = 0) -> None:
        """Verify a run's own records: order, digests, content, blobs, and its row in the index.

        Args:
            run_id: The id as it is stored.
            listed: How many rows of the run the whole table has; if reading the run gives
                fewer, some are hidden from readers.
        """
        self.runs += 1
        self._checked_runs.add(run_id)
        index = self._index_row(run_id)
        last: RawRow | None = None
        # The run's state at the version that the index has: other writers may append meanwhile.
        known: RunRow | None = None
        already = self.records
        previous, version, position, moment, state = GENESIS, 0, 0, 0, RunRow("")
        for row in self._store.raw_rows(run_id):
            self.records += 1
            if last is None:
                start = self._start(row)
                if isinstance(start, str):
                    self._report(row, start)
                    return
                previous, version, moment, state = start
            if row.version != version + 1:
                self._report_gap(row, version, index if last is None else None)
                return
            event = self._checked(row, previous, position, moment)
            if last is not None and isinstance(event, RunStarted):
                event = "the run starts a second time"
            if isinstance(event, str):
                self._report(row, event)
                return
            position, version, moment, previous = (
                row.position,
                row.version,
                row.recorded_at,
                row.digest,
            )
            indexed = (event,) if event.tag in INDEXED_TAGS else ()
            last, state = row, advance(state, indexed, version, previous, moment)
            if index is not None and index.version == version:
                known = state
        if self.records - already < listed:
            hidden = listed - (self.records - already)
            self._report_missing(run_id, None, f"{hidden} records are hidden from readers")
        if last is not None:
            self._check_index(last, state, index, known)
            tags = state.tag_map.items()
            self._tags[run_id] = {(key.encode(), value.encode()) for key, value in tags}
        elif index is not None:
            what = "the run is in the index and has no records"
            self._report_missing(run_id, _first_version(index), what)

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

    def _start(self, row: RawRow) -> tuple[bytes, int, int, RunRow] | str:
        """What a run starts from: digest, version and time before its first own record, and its
        index row there; text if that is impossible."""
        if not _is_id(row.run_id):
            return "the run's id is not a UUID in canonical form"
        run_id, event = text_of(row.run_id), self._event(row)
        self._points.learn(run_id, event)
        if not isinstance(event, RunStarted) or event.parent is None:
            return GENESIS, 0, 0, RunRow(run_id)
        point = self._points.find(str(event.parent), event.at)
        if point is None:
            return f"version {event.at} of the parent run {event.parent} is missing"
        if not point.ends_commit:
            return (
                f"the run starts from version {event.at} of the parent run {event.parent}, "
                "which is in the middle of a commit"
            )
        moment = point.moment if isinstance(point.moment, int) else 0
        return point.digest, event.at, moment, child_of(run_id, point.digest, moment, event)

    def _checked(self, row: RawRow, previous: Any, position: int, moment: int) -> Event | str:
        """The record's event, or what is wrong with the record."""
        fields = (row.run_id, row.tag, row.event_id, row.data)
        if not all(isinstance(value, bytes) for value in (*fields, row.digest, previous)):
            return "a column has the wrong type"
        if not isinstance(row.recorded_at, int):
            return "recorded_at is not a time"
        if not is_moment(row.recorded_at):
            return f"recorded_at {row.recorded_at} is outside the range of times"
        digest = link(
            previous, row.run_id, row.version, row.event_id, row.tag, row.recorded_at, row.data
        )
        if digest != row.digest:
            return f"the digest should be {digest.hex()}, found {row.digest.hex()}"
        if not isinstance(row.position, int) or row.position <= position:
            return f"position {text_of(row.position)} does not come after position {position}"
        if row.recorded_at < moment:
            return "recorded_at goes backwards"
        if not _is_id(row.event_id):
            return "the event's id is not a UUID in canonical form"
        event = self._event(row)
        if event is None:
            return "the data is not a valid event of its type"
        for name in blobs_named(event):
            if not self._blob_ok(name):
                return f"blob {name} is missing or changed"
        return event

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

    def _check_index(
        self, last: RawRow, folded: RunRow, index: RunRow | None, known: RunRow | None
    ) -> None:
        if index is None:
            self._report(last, "the run is not in the index: rebuild the index, or it is forged")
            return
        if isinstance(index.version, int) and index.version > folded.version:
            self._report_missing(
                last.run_id, folded.version + 1, f"missing: the index has version {index.version}"
            )
            return
        if known is not None and known is not folded:
            # The index was read before the records. If it has caught up since, a writer appended
            # meanwhile, and the state at the version of the first reading is what counts.
            now = self._index_row(last.run_id)
            if now is not None and isinstance(now.version, int) and now.version >= folded.version:
                folded = known
        if index != folded:
            wrong = [
                f"{name} {getattr(index, name)!r} instead of {getattr(folded, name)!r}"
                for name in folded.__struct_fields__
                if getattr(index, name) != getattr(folded, name)
            ]
            self._report(last, f"the index has {', '.join(wrong)}: rebuild the index")

    def _report_gap(self, row: RawRow, version: int, index: RunRow | None) -> None:
        """Report a record whose version does not follow; `index` is given for a run's first."""
        wanted = version + 1
        if index is not None and version == 0:
            wanted = _first_version(index) or wanted
        if row.version == wanted:
            self._report(row, "the data does not name the parent that the run starts from")
        elif isinstance(row.version, int) and row.version > wanted:
            self._report_missing(
                row.run_id, wanted, f"the record is missing; the next one is version {row.version}"
            )
        else:
            self._report(row, f"expected version {wanted}, found {text_of(row.version)}")

    def _report(self, row: RawRow, what: str) -> None:
        self.problems.append(
            Problem(
                run_id=text_of(row.run_id),
                version=row.version if isinstance(row.version, int) else None,
                position=row.position if isinstance(row.position, int) else None,
                event_id=text_of(row.event_id),
                what=what,
            )
        )

    def _report_missing(self, run_id: bytes, version: int | None, what: str) -> None:
        self.problems.append(Problem(run_id=text_of(run_id), version=version, what=what))


def _is_id(value: Any) -> bool:
    return isinstance(value, bytes) and _UUID.fullmatch(value) is not None


def _first_version(index: RunRow) -> int | None:
    """The version of a run's first own record, by the index; None if that is damaged."""
    at: Any = index.parent_version
    return at + 1 if isinstance(at, int) else None


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
