"""Recomputing the chain: is everything as it was recorded?

Reads what is stored as it is, undecoded, so that damage of any kind can be named
rather than stumbled over. For each run the first bad record is reported.
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
from turnledger.ledger.stores.base import LedgerRecorder, RunQuery

_UUID: Final = re.compile(UUID_TEXT.pattern.encode())


class ForkPoint(NamedTuple):
    """The record that a run goes on from; whether its commit ends with it."""

    digest: Any
    moment: Any
    ends_commit: bool


class ForkPoints:
    """The records of one store that runs go on from."""

    def __init__(self, store: LedgerRecorder, decode: Callable[[RawRow], Event | None]) -> None:
        self._store = store
        self._decode = decode
        # What each run goes on from, and the record that a version of a run's lineage is.
        self._origins: dict[str, tuple[str, int] | None] = {}
        self._found: dict[tuple[str, int], ForkPoint | None] = {}

    def learn(self, run_id: str, first: Event | None) -> None:
        """What a run goes on from, by its first own event."""
        origin = None
        if isinstance(first, RunStarted) and first.parent is not None:
            origin = (str(first.parent), first.at)
        self._origins[run_id] = origin

    def find(self, run_id: str, version: int) -> ForkPoint | None:
        """The record that a version of a run's lineage is; None without one, or in a circle."""
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
    """The first record of a run that is not as it was recorded, and what is wrong with it."""

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
    """What a verification found; `notes` are worth knowing, and nothing is wrong with them."""

    runs: int
    records: int
    blobs: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def text_of(value: Any) -> str:
    """A stored value for a person to read, whatever became of it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


class Verifier:
    """Verifies runs of one store, remembering digests that later runs go on from."""

    def __init__(self, store: LedgerRecorder, codec: Codec) -> None:
        self._store = store
        self._codec = codec
        self.records = 0
        self.runs = 0
        self.problems: list[Problem] = []
        self._blobs: dict[str, bool] = {}
        # The tags of the runs that were found in order, and have not been looked for yet.
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
        """A run's own records: order, digests, content, blobs, and its row in the index.

        `listed` is how many records of it were counted before, whatever they hold.
        """
        self.runs += 1
        self._checked_runs.add(run_id)
        index = self._index_row(run_id)
        last: RawRow | None = None
        # Where the run stood when the index was read: others may go on appending.
        known: RunRow | None = None
        already = self.records
        previous, version, position, moment, state = GENESIS, 0, 0, 0, RunRow("")
        for row in self._store.raw_rows(run_id):
            self.records += 1
            if last is None:
                opening = self._opening(row)
                if isinstance(opening, str):
                    self._report(row, opening)
                    return
                previous, version, moment, state = opening
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
            self._report_missing(run_id, None, f"{hidden} records are hidden from who reads it")
        if last is not None:
            self._check_index(last, state, index, known)
            tags = state.tag_map.items()
            self._tags[run_id] = {(key.encode(), value.encode()) for key, value in tags}
        elif index is not None:
            what = "the index knows the run, but it has no records"
            self._report_missing(run_id, _first_version(index), what)

    def check_tags(self) -> None:
        """The table that runs are listed by, if they are asked for by a tag."""
        for run_id, key, value in self._store.raw_tags():
            known = self._tags.get(run_id)
            if known is not None and (key, value) in known:
                known.remove((key, value))
            elif known is not None or not self._is_tag_of_new(run_id, key, value):
                self._report_tag(run_id, f"{text_of(key)}={text_of(value)}, which it does not have")
        for run_id, known in self._tags.items():
            for key, value in sorted(known):
                self._report_tag(run_id, f"no tag {text_of(key)}={text_of(value)}, which it has")

    def _is_tag_of_new(self, run_id: Any, key: Any, value: Any) -> bool:
        """Of a run that was not there a moment ago, or of one that is reported already."""
        if run_id in self._checked_runs:
            return True
        row = self._index_row(run_id)
        try:
            return row is not None and row.tag_map.get(key.decode()) == value.decode()
        except (IntegrityFailureError, UnicodeDecodeError):
            return False

    def report_whole(self, what: str) -> None:
        """Something that is wrong with no run in particular."""
        self.problems.append(Problem(run_id="", what=what))

    def _report_tag(self, run_id: bytes, what: str) -> None:
        self._report_missing(run_id, None, f"the index of tags says {what}; rebuild it")

    def check_blobs(self, names: Iterator[str]) -> None:
        for name in names:
            self._blob_ok(name)
        for name, ok in self._blobs.items():
            if not ok:
                self.report_whole(f"blob {name} is missing or its bytes are not what its name says")

    def _blob_ok(self, name: str) -> bool:
        if name not in self._blobs:
            content = self._store.blob(name)
            self._blobs[name] = isinstance(content, bytes) and blob_name(content) == name
        return self._blobs[name]

    def _opening(self, row: RawRow) -> tuple[bytes, int, int, RunRow] | str:
        """What was before a run's first own record: the digest, version and time that it
        goes on from, and where the run stood; text if that can't be."""
        if not _is_id(row.run_id):
            return "the run's id is no UUID in its usual spelling"
        run_id, event = text_of(row.run_id), self._event(row)
        self._points.learn(run_id, event)
        if not isinstance(event, RunStarted) or event.parent is None:
            return GENESIS, 0, 0, RunRow(run_id)
        point = self._points.find(str(event.parent), event.at)
        if point is None:
            return f"version {event.at} of the parent run {event.parent} is not there"
        if not point.ends_commit:
            return (
                f"the run goes on from version {event.at} of the parent run {event.parent}, "
                "which is in the middle of a commit"
            )
        moment = point.moment if isinstance(point.moment, int) else 0
        return point.digest, event.at, moment, child_of(run_id, point.digest, moment, event)

    def _checked(self, row: RawRow, previous: Any, position: int, moment: int) -> Event | str:
        """The record's event, or what is wrong with the record."""
        fields = (row.run_id, row.tag, row.event_id, row.data)
        if not all(isinstance(value, bytes) for value in (*fields, row.digest, previous)):
            return "a column holds a value of another type than was recorded"
        if not isinstance(row.recorded_at, int):
            return "recorded_at is not a time"
        if not is_moment(row.recorded_at):
            return f"recorded_at {row.recorded_at} is no moment that a record can have"
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
            return "the event's id is no UUID in its usual spelling"
        event = self._event(row)
        if event is None:
            return "the data is no event of its type"
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
            return None  # as good as not there

    def _check_index(
        self, last: RawRow, folded: RunRow, index: RunRow | None, known: RunRow | None
    ) -> None:
        if index is None:
            self._report(last, "the index does not know the run; rebuild it, or the run is forged")
            return
        if isinstance(index.version, int) and index.version > folded.version:
            self._report_missing(
                last.run_id, folded.version + 1, f"the records end, the index says {index.version}"
            )
            return
        if known is not None and known is not folded:
            # It is behind the records, or was: somebody has appended since, then it moved on.
            now = self._index_row(last.run_id)
            if now is not None and isinstance(now.version, int) and now.version >= folded.version:
                folded = known
        if index != folded:
            wrong = [
                f"{name} {getattr(index, name)!r} instead of {getattr(folded, name)!r}"
                for name in folded.__struct_fields__
                if getattr(index, name) != getattr(folded, name)
            ]
            self._report(last, f"the index says {', '.join(wrong)}; rebuild it")

    def _report_gap(self, row: RawRow, version: int, index: RunRow | None) -> None:
        """A record that does not follow the one before; `index` is given for a run's first."""
        wanted = version + 1
        if index is not None and version == 0:
            wanted = _first_version(index) or wanted
        if row.version == wanted:
            self._report(row, "the data does not say what the run goes on from")
        elif isinstance(row.version, int) and row.version > wanted:
            self._report_missing(
                row.run_id, wanted, f"the record is missing; the next one is version {row.version}"
            )
        else:
            self._report(row, f"version {wanted} should be here, found {text_of(row.version)}")

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
    """The version of a run's first own record, by the index; None if it does not say."""
    at: Any = index.parent_version
    return at + 1 if isinstance(at, int) else None


def verify_all(
    store: LedgerRecorder, codec: Codec, progress: Callable[[int], None] | None = None
) -> Report:
    """Every run that the events or the index name, their tags, every blob, and the files."""
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
                verifier.report_whole(f"the index has a run {listed!r:.80}, which is no text")
            elif listed.encode() not in seen:
                verifier.check_run(listed.encode())
        verifier.check_tags()
        verifier.check_blobs(store.blob_names())
    except IntegrityFailureError as error:
        verifier.report_whole(str(error))
    for found in store.own_findings():
        verifier.report_whole(f"the file: {found}")
    return verifier.report()


def every_run(store: LedgerRecorder) -> Iterator[RunRow]:
    """The whole index, in pages."""
    query = RunQuery()
    while rows := store.list_runs(query):
        yield from rows
        reached = (rows[-1].started_at, rows[-1].run_id)
        if reached == query.before:  # a damaged index gives the same runs again and again
            raise IntegrityFailureError("The index of runs is not in its order: damaged.")
        query = RunQuery(before=reached)
