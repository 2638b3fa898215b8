"""Recomputing the chain: is everything as it was recorded?

Reads what is stored as it is, undecoded, so that damage of any kind can be named
rather than stumbled over. For each run the first bad record is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ledger.blobs import blob_name, blobs_named
from ledger.chain import GENESIS, link
from ledger.codec import Codec
from ledger.errors import EventDecodeError
from ledger.events import Event, RunStarted
from ledger.recorder import LedgerRecorder, RunQuery
from ledger.rows import RawRow
from ledger.run_index import RunRow


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
    """What a verification found."""

    runs: int
    records: int
    blobs: int
    problems: tuple[Problem, ...]

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
        last: RawRow | None = None
        previous, version, position, moment = GENESIS, 0, 0, 0
        for row in self._store.raw_rows(run_id):
            self.records += 1
            if last is None:
                opening = self._opening(row)
                if isinstance(opening, str):
                    self._report(row, opening)
                    return
                previous, version, moment = opening
            wrong = self._wrong(row, previous, version, position, moment)
            if wrong:
                self._report(row, wrong)
                return
            position, version, moment, previous, last = row[0], row[2], row[5], row[6], row
        index = self._index_row(run_id)
        if last is None:
            if index is not None:
                self._report_missing(run_id, 1, "the index knows the run, but it has no records")
            return
        self._check_index(run_id, last, index)

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
            self._blobs[name] = content is not None and blob_name(content) == name
        return self._blobs[name]

    def _opening(self, row: RawRow) -> tuple[bytes, int, int] | str:
        """The digest, version and time before a run's first own record; text if there is none."""
        event = self._event(row)
        if not isinstance(event, RunStarted) or event.parent is None:
            return GENESIS, 0, 0
        parent, at = str(event.parent), event.at
        while True:
            for found in self._store.raw_rows(parent.encode()):
                if found[2] == at:
                    return found[6], at, found[5]
                if found[2] > at:
                    first = self._event(found)
                    if isinstance(first, RunStarted) and first.parent is not None:
                        parent = str(first.parent)
                        break
                    return f"version {at} of the parent run {parent} is not there"
            else:
                return f"version {at} of the parent run {parent} is not there"

    def _wrong(
        self, row: RawRow, previous: Any, version: int, position: int, moment: int
    ) -> str | None:
        if row[2] != version + 1:
            return f"version {version + 1} should follow version {version}, found {text_of(row[2])}"
        fields = (row[1], row[3], row[4], row[7])
        if not all(isinstance(value, bytes) for value in (*fields, row[6], previous)):
            return "a column holds a value of another type than was recorded"
        if not isinstance(row[5], int):
            return "recorded_at is not a time"
        digest = link(previous, row[1], row[2], row[4], row[3], row[5], row[7])
        if digest != row[6]:
            return f"the digest should be {digest.hex()}, found {text_of(row[6].hex())}"
        if not row[0] > position:
            return f"position {row[0]} does not come after position {position}"
        if row[5] < moment:
            return "recorded_at goes backwards"
        event = self._event(row)
        if event is None:
            return "the data is no event of its type"
        for name in blobs_named(event):
            if not self._blob_ok(name):
                return f"blob {name} is missing or changed"
        return None

    def _event(self, row: RawRow) -> Event | None:
        try:
            return self._codec.decode(row[3].decode(), row[7])
        except (EventDecodeError, UnicodeDecodeError, AttributeError):
            return None

    def _index_row(self, run_id: bytes) -> RunRow | None:
        try:
            return self._store.run(run_id.decode())
        except UnicodeDecodeError:
            return None

    def _check_index(self, run_id: bytes, last: RawRow, index: RunRow | None) -> None:
        if index is None:
            self._report(last, "the index does not know the run; rebuild it, or the run is forged")
        elif index.version > last[2]:
            self._report_missing(
                run_id, last[2] + 1, f"the records end here, the index says {index.version}"
            )
        elif (index.version, index.digest) != (last[2], last[6]):
            self._report(last, f"the index says version {index.version}, {index.digest.hex()}")

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
    """Every run that the events or the index name, and every blob."""
    verifier = Verifier(store, codec)
    seen: set[bytes] = set()
    for run_id in store.raw_run_ids():
        seen.add(run_id)
        verifier.check_run(run_id)
        if progress is not None:
            progress(verifier.records)
    for row in every_run(store):
        if row.run_id.encode() not in seen:
            verifier.check_run(row.run_id.encode())
    verifier.check_blobs(store.blob_names())
    return verifier.report()


def every_run(store: LedgerRecorder) -> Iterator[RunRow]:
    """The whole index, in pages."""
    query = RunQuery()
    while rows := store.list_runs(query):
        yield from rows
        query = RunQuery(before=(rows[-1].started_at, rows[-1].run_id))
