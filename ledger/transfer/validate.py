"""Checking the lines of an export file for all that can be checked without a ledger.

Digests, versions without gaps, fork points, blobs, limits, the seal, and that every event
can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, NoReturn

import msgspec

from turnledger.ledger.clock import is_moment, moment_text, to_micros
from turnledger.ledger.errors import (
    EventDecodeError,
    LimitExceededError,
    TurnledgerError,
)
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.events.chain import DIGEST_TEXT, GENESIS, UUID_TEXT, linker
from turnledger.ledger.events.limits import Limits
from turnledger.ledger.events.types import CATALOGUE, Event, RunStarted
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.index import RunRow, child_of
from turnledger.ledger.runs.record import NewRow
from turnledger.ledger.transfer.file_format import (
    BlobLine,
    EndLine,
    RecordLine,
    Totals,
    damaged_line,
    read_line,
)
from turnledger.ledger.transfer.seal_check import SealedRuns

# What naming a blob takes in a record, and its own digest is the least of it.
_NAME_BYTES = 64


class _Run(NamedTuple):
    """`at` is the version after which a run has records of its own."""

    at: int
    depth: int
    above: str
    far_above: str


class Lineages:
    """The runs that were added, parents before children."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run_id: str, parent: str | None = None, at: int = 0) -> None:
        """A run that goes on from a version of its parent, or from nothing."""
        if parent is None:
            self._runs[run_id] = _Run(0, 0, run_id, run_id)
            return
        if parent not in self._runs:
            self.add(parent)
        # A fork of what its parent only shares goes on from whoever recorded that. So `at`
        # falls with every step up, and steps that double in length find a place among them.
        above = self.owner(parent, at)
        near = self._runs[above]
        far = self._runs[near.far_above]
        even = near.depth - far.depth == far.depth - self._runs[far.far_above].depth
        far_above = far.far_above if even else above
        self._runs[run_id] = _Run(at, near.depth + 1, above, far_above)

    def owner(self, run_id: str, version: int) -> str:
        """The run that a version of this run's lineage is an own record of."""
        runs = self._runs
        while (run := runs.get(run_id)) is not None and run.depth and version <= run.at:
            far = runs[run.far_above]
            run_id = run.far_above if far.depth and version <= far.at else run.above
        return run_id


class FileRecord(NamedTuple):
    """A record of the file, checked. `opening` is where its run stood before its first event.

    `blobs` are those that stand before it, without their bytes while all is only checked.
    """

    line: int
    row: NewRow
    event: Event
    previous: bytes
    opening: RunRow | None
    blobs: dict[str, bytes]


def most_blobs(limits: Limits) -> int:
    """How many blobs can stand before a record: it must name them all."""
    return limits.max_event_bytes // _NAME_BYTES


class Place(msgspec.Struct):
    """A version that a later run goes on from, or may."""

    digest: bytes
    recorded_at: int
    ends_commit: bool = True


class Checker:
    """One pass over the lines after the header.

    A first one holds no blobs: whether they belong to a record shows only after them. `again`
    is for one that has been checked, and is read to be written.
    """

    def __init__(
        self,
        lines: Iterator[tuple[int, bytes]],
        places: dict[tuple[str, int], Place | None],
        limits: Limits,
        catalogue: int,
        sealed: SealedRuns,
        *,
        again: bool,
    ) -> None:
        self._lines = lines
        self._places = places
        self._sealed = sealed
        self._limits = limits
        self._catalogue = catalogue
        self._again = again
        self._codec = Codec(limits, written=catalogue)
        self._lineages = Lineages()
        self._blobs: set[str] = set()
        self._pending: dict[str, bytes] = {}
        self._records = 0
        self._line = 1
        # Where the run that is being read stands.
        self._run_id = ""
        self._version = 0
        self._digest = GENESIS
        self._moment = 0
        self._last_moment = ("", 0)
        self._commit_events = 0
        self._commit_bytes = 0

    def records(self) -> Iterator[FileRecord]:
        for number, line in self._lines:
            self._line = number
            found = read_line(number, line)
            if isinstance(found, BlobLine):
                self._take_blob(found)
            elif isinstance(found, EndLine):
                self._finish(found.end)
                return
            else:
                yield self._check(found)
        self._damaged("the file ends here without its end line: it was cut off")

    def _damaged(self, what: str) -> NoReturn:
        if self._again:
            raise damaged_line(self._line, what, "The file changed while it was imported")
        raise damaged_line(self._line, what)

    def _finish(self, totals: Totals) -> None:
        self._end_run()
        found = Totals(len(self._lineages), self._records, len(self._blobs))
        if totals != found:
            self._damaged(f"the file should hold {totals}, found {found}")
        if self._pending:
            self._damaged("a blob that no record names")
        if next(self._lines, None) is not None:
            self._line += 1
            self._damaged("something follows the end line")

    def _take_blob(self, line: BlobLine) -> None:
        if line.blob in self._blobs:
            self._damaged(f"blob {line.blob} stands in the file twice")
        if len(self._pending) >= most_blobs(self._limits):
            self._damaged("more blobs than a record can name stand before this one")
        if len(line.content) > self._limits.max_blob_bytes:
            raise LimitExceededError(
                f"line {self._line}: a blob, in bytes",
                limit=self._limits.max_blob_bytes,
                found=len(line.content),
                setting="max_blob_bytes",
            )
        self._pending[line.blob] = line.content if self._again else b""
        self._blobs.add(line.blob)

    def _check(self, line: RecordLine) -> FileRecord:
        moment, digest = self._parsed(line)
        data = bytes(line.data)
        event: Event | None = None
        opening: RunRow | None = None
        if line.run_id != self._run_id:
            event = self._event(line.type, data) if line.type == RunStarted.tag else None
            opening = self._open(line.run_id, event)
        if line.version != self._version + 1:
            self._damaged(
                f"run {line.run_id}: version {self._version + 1} should follow, "
                f"found {line.version}"
            )
        previous = self._digest
        expected = linker(line.run_id, moment)(
            previous, line.version, line.event_id, line.type, data
        )
        if expected != digest:
            self._damaged(
                f"run {line.run_id}, version {line.version}: the digest should be "
                f"{expected.hex()}, found {line.digest}"
            )
        if why := self._sealed.differs(line.version, line.digest):
            self._damaged(f"run {line.run_id}: {why}")
        if moment < self._moment:
            self._damaged(f"run {line.run_id}, version {line.version}: recorded_at goes backwards")
        event = event or self._event(line.type, data)
        if isinstance(event, RunStarted) and opening is None:
            self._damaged(f"run {line.run_id}, version {line.version}: a run starts only once")
        self._count_commit(moment, len(data), opening is not None)
        blobs = self._blobs_of(event)
        self._move(line.version, digest, moment)
        row = NewRow(
            line.run_id, line.version, line.type, line.event_id, moment, digest, data.decode()
        )  # fmt: skip
        return FileRecord(self._line, row, event, previous, opening, blobs)

    def _parsed(self, line: RecordLine) -> tuple[int, bytes]:
        """Time and digest; every field must be spelt the one way that export spells it."""
        for name in ("run_id", "event_id"):
            if not UUID_TEXT.fullmatch(getattr(line, name)):
                self._damaged(f"{name} is no UUID in its usual spelling")
        if not DIGEST_TEXT.fullmatch(line.digest):
            self._damaged("digest is not 64 digits")
        try:
            bytes(line.data).decode()
            if line.recorded_at != self._last_moment[0]:
                moment = to_micros(datetime.fromisoformat(line.recorded_at))
                if moment_text(moment) != line.recorded_at:
                    raise ValueError("recorded_at is not in its usual spelling")
                if not is_moment(moment):
                    raise ValueError("recorded_at is no moment that a record can have")
                self._last_moment = (line.recorded_at, moment)
        except (ValueError, OverflowError) as error:
            self._damaged(f"not a record: {error}")
        return self._last_moment[1], bytes.fromhex(line.digest)

    def _event(self, tag: str, data: bytes) -> Event:
        try:
            event = self._codec.decode(tag, data)
            self._codec.encode(event)  # within the limits of this ledger
            if len(data) > self._limits.max_event_bytes:
                raise LimitExceededError(
                    "An event, in bytes",
                    limit=self._limits.max_event_bytes,
                    found=len(data),
                    setting="max_event_bytes",
                )
        except TurnledgerError as error:
            if type(error) is EventDecodeError:
                if self._catalogue <= CATALOGUE:
                    self._damaged(str(error))
                hint = f"The file was written with event catalogue {self._catalogue}, this "
                hint += f"program knows {CATALOGUE}: upgrade turnledger."
                error.args = (f"{error} {hint}",)
            error.args = (f"line {self._line}: {error.args[0]}",)
            raise
        return event

    def _open(self, run_id: str, started: Event | None) -> RunRow:
        """Begin with another run: where it stands before its first own event."""
        self._end_run()
        if run_id in self._lineages:
            self._damaged(f"run {run_id} goes on here after another run's records")
        if isinstance(started, RunStarted) and started.parent is not None:
            parent = str(started.parent)
            owner = self._lineages.owner(parent, started.at)
            place = self._places.get((owner, started.at)) if parent in self._lineages else None
            if place is None:
                self._damaged(
                    f"run {run_id} goes on from version {started.at} of run {parent}, "
                    "which is not in the file before it"
                )
            if not place.ends_commit:
                self._damaged(
                    f"run {run_id} goes on from version {started.at} of run {parent}, "
                    "which is in the middle of a commit"
                )
            opening = child_of(run_id, place.digest, place.recorded_at, started)
            self._lineages.add(run_id, parent, started.at)
        else:
            opening = RunRow(run_id)
            self._lineages.add(run_id)
        self._run_id, self._version = run_id, opening.version
        self._digest, self._moment = opening.digest, opening.recorded_at
        self._sealed.open(run_id)
        return opening

    def _end_run(self) -> None:
        if why := self._sealed.ends_wrong(self._version):
            self._line -= 1
            self._damaged(why)

    def _count_commit(self, moment: int, size: int, first: bool) -> None:
        """Events of one commit share their time; a commit must fit into one append here."""
        if first or moment != self._moment:
            self._commit_events = self._commit_bytes = 0
        self._commit_events += 1
        self._commit_bytes += size
        for found, limit, setting in (
            (self._commit_events, self._limits.max_batch_events, "max_batch_events"),
            (self._commit_bytes, self._limits.max_batch_bytes, "max_batch_bytes"),
        ):
            if found > limit:
                raise LimitExceededError(
                    f"line {self._line}: one commit", limit=limit, found=found, setting=setting
                )

    def _blobs_of(self, event: Event) -> dict[str, bytes]:
        named = set(blobs_named(event))
        for name in sorted(named - self._blobs):
            self._damaged(f"the record names blob {name}, which is not in the file before it")
        for name in sorted(self._pending.keys() - named):
            self._damaged(f"blob {name} stands before a record that does not name it")
        blobs, self._pending = self._pending, {}
        return blobs

    def _move(self, version: int, digest: bytes, moment: int) -> None:
        before = self._places.get((self._run_id, version - 1))
        if before is not None and before.recorded_at == moment:
            before.ends_commit = False
        if (self._run_id, version) in self._places:
            self._places[self._run_id, version] = Place(digest, moment)
        self._version, self._digest, self._moment = version, digest, moment
        self._records += 1
