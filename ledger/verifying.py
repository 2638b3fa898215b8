"""Recomputing the chain: is everything as it was recorded?

Reads what is stored as it is, undecoded, so that damage of any kind can be named
rather than stumbled over. For each run the first bad record is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import msgspec

from ledger.blobs import blob_name, blobs_named
from ledger.chain import GENESIS, link
from ledger.clock import is_moment
from ledger.codec import Codec
from ledger.errors import EventDecodeError, IntegrityFailureError
from ledger.events import Event, RunStarted
from ledger.recorder import LedgerRecorder, RunQuery
from ledger.rows import RawRow
from ledger.run_index import INDEXED_TAGS, RunRow, advance, child_of


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of a run that is not as it was recorded, and what is wrong with it."""

    run_id: str
    version: int | None
    position: int | None
    event_id: str | None
    what: str

    def __str__(self) -> str:
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

    def report(self) -> Report:
        return Report(
            runs=self.runs,
            records=self.records,
            blobs=len(self._blobs),
            problems=tuple(self.problems),
        )

    def check_run(self, run_id: bytes) -> None:
        """A run's own records: order, digests, content, blobs, and its row in the index."""
        self.runs += 1
        self._checked_runs.add(run_id)
        index = self._index_row(run_id)
        last: RawRow | None = None
        previous, version, position, moment, state = GENESIS, 0, 0, 0, RunRow("")
        for row in self._store.raw_rows(run_id):
            self.records += 1
            if last is None:
                opening = self._opening(row)
                if isinstance(opening, str):
                    self._report(row, opening)
                    return
                previous, version, moment, state = opening
            if row[2] != version + 1:
                self._report_gap(row, version, index if last is None else None)
                return
            event = self._checked(row, previous, position, moment)
            if isinstance(event, str):
                self._report(row, event)
                return
            position, version, moment, previous = row[0], row[2], row[5], row[6]
            indexed = (event,) if event.tag in INDEXED_TAGS else ()
            last, state = row, advance(state, indexed, version, previous, moment)
        if last is not None:
            self._check_index(last, state, index)
            tags = state.tag_map.items()
            self._tags[run_id] = {(key.encode(), value.encode()) for key, value in tags}
        elif index is not None:
            self._report_missing(
                run_id, index.parent_version + 1, "the index knows the run, but it has no records"
            )

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
        self.problems.append(
            Problem(run_id="", version=None, position=None, event_id=None, what=what)
        )

    def _report_tag(self, run_id: bytes, what: str) -> None:
        self.problems.append(
            Problem(
                run_id=text_of(run_id),
                version=None,
                position=None,
                event_id=None,
                what=f"the index of tags says {what}; rebuild it",
            )
        )

    def check_blobs(self, names: Iterator[str]) -> None:
        for name in names:
            self._blob_ok(name)
        for name, ok in self._blobs.items():
            if not ok:
                self.problems.append(
                    Problem(
                        run_id="",
                        version=None,
                        position=None,
                        event_id=None,
                        what=f"blob {name} is missing or its bytes are not what its name says",
                    )
                )

    def _blob_ok(self, name: str) -> bool:
        if name not in self._blobs:
            content = self._store.blob(name)
            self._blobs[name] = isinstance(content, bytes) and blob_name(content) == name
        return self._blobs[name]

    def _opening(self, row: RawRow) -> tuple[bytes, int, int, RunRow] | str:
        """What was before a run's first own record: the digest, version and time that it
        goes on from, and where the run stood; text if that is not there."""
        event = self._event(row)
        if not isinstance(event, RunStarted) or event.parent is None:
            return GENESIS, 0, 0, RunRow(text_of(row[1]))
        parent: UUID | None = event.parent
        seen = {text_of(row[1])}
        while parent is not None and str(parent) not in seen:
            seen.add(str(parent))
            found = self._first_row(str(parent).encode(), event.at)
            if found is not None and found[2] == event.at:
                moment = found[5] if isinstance(found[5], int) else 0
                state = child_of(text_of(row[1]), found[6], moment, event)
                return found[6], event.at, moment, state
            first = self._first_row(str(parent).encode())
            origin = self._event(first) if first is not None else None
            parent = origin.parent if isinstance(origin, RunStarted) else None
        return f"version {event.at} of the parent run {event.parent} is not there"

    def _first_row(self, run_id: bytes, first: int | None = None) -> RawRow | None:
        return next(iter(self._store.raw_rows(run_id, first)), None)

    def _checked(self, row: RawRow, previous: Any, position: int, moment: int) -> Event | str:
        """The record's event, or what is wrong with the record."""
        fields = (row[1], row[3], row[4], row[7])
        if not all(isinstance(value, bytes) for value in (*fields, row[6], previous)):
            return "a column holds a value of another type than was recorded"
        if not isinstance(row[5], int):
            return "recorded_at is not a time"
        if not is_moment(row[5]):
            return f"recorded_at {row[5]} is no moment that a record can have"
        digest = link(previous, row[1], row[2], row[4], row[3], row[5], row[7])
        if digest != row[6]:
            return f"the digest should be {digest.hex()}, found {row[6].hex()}"
        if not isinstance(row[0], int) or row[0] <= position:
            return f"position {row[0]} does not come after position {position}"
        if row[5] < moment:
            return "recorded_at goes backwards"
        event = self._event(row)
        if event is None:
            return "the data is no event of its type"
        for name in blobs_named(event):
            if not self._blob_ok(name):
                return f"blob {name} is missing or changed"
        return event

    def _event(self, row: RawRow) -> Event | None:
        try:
            return self._codec.decode(row[3].decode(), row[7])
        except (EventDecodeError, UnicodeDecodeError, AttributeError, TypeError):
            return None

    def _index_row(self, run_id: bytes) -> RunRow | None:
        try:
            return self._store.run(run_id.decode())
        except (AttributeError, UnicodeDecodeError, IntegrityFailureError):
            return None  # as good as not there

    def _check_index(self, last: RawRow, folded: RunRow, index: RunRow | None) -> None:
        if index is None:
            self._report(last, "the index does not know the run; rebuild it, or the run is forged")
        elif isinstance(index.version, int) and index.version > folded.version:
            self._report_missing(
                last[1], folded.version + 1, f"the records end, the index says {index.version}"
            )
        elif index != folded:
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
            wanted = index.parent_version + 1
        if row[2] == wanted:
            self._report(row, "the data does not say what the run goes on from")
        elif isinstance(row[2], int) and row[2] > wanted:
            self._report_missing(
                row[1], wanted, f"the record is missing; the next one is version {row[2]}"
            )
        else:
            self._report(row, f"version {wanted} should be here, found {text_of(row[2])}")

    def _report(self, row: RawRow, what: str) -> None:
        self.problems.append(
            Problem(
                run_id=text_of(row[1]),
                version=row[2] if isinstance(row[2], int) else None,
                position=row[0],
                event_id=text_of(row[4]),
                what=what,
            )
        )

    def _report_missing(self, run_id: bytes, version: int, what: str) -> None:
        self.problems.append(
            Problem(
                run_id=text_of(run_id), version=version, position=None, event_id=None, what=what
            )
        )


def verify_all(
    store: LedgerRecorder, codec: Codec, progress: Callable[[int], None] | None = None
) -> Report:
    """Every run that the events or the index name, their tags, every blob, and the files."""
    verifier = Verifier(store, codec)
    seen: set[bytes] = set()
    for run_id in store.raw_run_ids():
        seen.add(run_id)
        verifier.check_run(run_id)
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
