"""Validation of an export file: everything that can be checked without a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, NoReturn

import msgspec

from turnledger.ledger.clock import is_moment, moment_text, to_micros
from turnledger.ledger.errors import EventDecodeError, TurnledgerError
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.events.chain import DIGEST_TEXT, GENESIS, UUID_TEXT, linker
from turnledger.ledger.events.limits import Limits
from turnledger.ledger.events.types import CATALOGUE, PROMPT_TAGS, Event, RunStarted
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

# The least that the name of a blob takes in a record: its digest.
_BLOB_NAME_BYTES = 64


class _Run(NamedTuple):
    """A run's place in its lineage: its records follow `at`, which the run `above` recorded."""

    at: int
    depth: int
    above: str
    far_above: str


class Lineages:
    """Finds which run recorded a version that its forks and continuations share.

    A lineage may be as long as the file, and every run of it may ask, so walking up would take
    quadratic time. Each run has a pointer to its ancestor and one that jumps further, at
    distances that double (a skew-binary jump list): a query takes logarithmic time. Parents
    must be added before children.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run_id: str, parent: str | None = None, at: int = 0) -> None:
        """Add a run that starts from version `at` of its parent, or without a parent."""
        if parent is None:
            self._runs[run_id] = _Run(0, 0, run_id, run_id)
            return
        if parent not in self._runs:
            self.add(parent)
        # A fork at a version that its parent only shares hangs below the run that recorded it. So
        # `at` decreases with every step up, which lets `owner` decide between the two pointers.
        above = self.owner(parent, at)
        near = self._runs[above]
        far = self._runs[near.far_above]
        even = near.depth - far.depth == far.depth - self._runs[far.far_above].depth
        far_above = far.far_above if even else above
        self._runs[run_id] = _Run(at, near.depth + 1, above, far_above)

    def owner(self, run_id: str, version: int) -> str:
        """The run that recorded a version of this run's lineage."""
        runs = self._runs
        while (run := runs.get(run_id)) is not None and run.depth and version <= run.at:
            far = runs[run.far_above]
            run_id = run.far_above if far.depth and version <= far.at else run.above
        return run_id


class FileRecord(NamedTuple):
    """A validated record of the file.

    Attributes:
        line: Its line number.
        row: The record as it is stored.
        event: Its event.
        previous: The digest before it.
        start: For a run's first own record, the run's index row before it; else None.
        blobs: The blobs just before it in the file; without their bytes in the first pass.
    """

    line: int
    row: NewRow
    event: Event
    previous: bytes
    start: RunRow | None
    blobs: dict[str, bytes]


def max_blobs(limits: Limits) -> int:
    """How many blobs can be before one record, which must name them all."""
    return limits.max_event_bytes // _BLOB_NAME_BYTES


class ForkPoint(msgspec.Struct):
    """A record that a later run of the file starts from."""

    digest: bytes
    recorded_at: int
    ends_commit: bool = True


class Checker:
    """One pass over the lines after the header and the seal.

    The first pass only checks, and keeps no blobs: a file could hold any number before a record
    that does not name them. In the second pass, blobs are kept until their record is written.

    Args:
        lines: Numbered lines.
        fork_points: The (run, version) pairs that runs of the file start from, to be filled in.
        limits: Those of the importing ledger.
        catalogue: The event catalogue in the file's header.
        sealed: Compares the runs with the file's seal.
        second_pass: Whether the file was validated before.
    """

    def __init__(
        self,
        lines: Iterator[tuple[int, bytes]],
        fork_points: dict[tuple[str, int], ForkPoint | None],
        limits: Limits,
        catalogue: int,
        sealed: SealedRuns,
        *,
        second_pass: bool,
    ) -> None:
        self._lines = lines
        self._fork_points = fork_points
        self._sealed = sealed
        self._limits = limits
        self._catalogue = catalogue
        self._second_pass = second_pass
        self._codec = Codec(limits, written=catalogue)
        self._lineages = Lineages()
        self._blobs: set[str] = set()
        self._pending: dict[str, bytes] = {}
        self._records = 0
        self._line = 1
        # The state of the run that is being read.
        self._run_id = ""
        self._prompts: set[str] = set()
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
        self._damaged("the file ends without its end line: it was cut off")

    def _damaged(self, what: str) -> NoReturn:
        if self._second_pass:
            raise damaged_line(self._line, what, "The file changed while it was imported")
        raise damaged_line(self._line, what)

    def _finish(self, totals: Totals) -> None:
        self._end_run()
        found = Totals(len(self._lineages), self._records, len(self._blobs))
        if totals != found:
            self._damaged(f"the end line says {totals}, found {found}")
        if self._pending:
            self._damaged("a blob that no record names")
        if next(self._lines, None) is not None:
            self._line += 1
            self._damaged("something follows the end line")

    def _take_blob(self, line: BlobLine) -> None:
        if line.blob in self._blobs:
            self._damaged(f"blob {line.blob} is in the file twice")
        if len(self._pending) >= max_blobs(self._limits):
            self._damaged("more blobs than a record can name are before this one")
        what = f"line {self._line}: a blob, in bytes"
        self._limits.check(what, len(line.content), "max_blob_bytes")
        self._pending[line.blob] = line.content if self._second_pass else b""
        self._blobs.add(line.blob)

    def _check(self, line: RecordLine) -> FileRecord:
        moment, digest = self._parsed(line)
        data = bytes(line.data)
        event: Event | None = None
        start: RunRow | None = None
        if line.run_id != self._run_id:
            event = self._event(line.type, data) if line.type == RunStarted.tag else None
            start = self._open(line.run_id, event)
        if line.version != self._version + 1:
            self._damaged(
                f"run {line.run_id}: expected version {self._version + 1}, found {line.version}"
            )
        previous = self._digest
        expected = linker(line.run_id, moment)(
            previous, line.version, line.event_id, line.type, data
        )
        if expected != digest:
            self._damaged(
                f"run {line.run_id}, version {line.version}: expected digest {expected.hex()}, "
                f"found {line.digest}"
            )
        if why := self._sealed.differs(line.version, line.digest):
            self._damaged(f"run {line.run_id}: {why}")
        if moment < self._moment:
            self._damaged(f"run {line.run_id}, version {line.version}: recorded_at goes backwards")
        event = event or self._event(line.type, data)
        if isinstance(event, RunStarted) and start is None:
            self._damaged(f"run {line.run_id}, version {line.version}: a run starts only once")
        if start is not None and line.type in PROMPT_TAGS:
            self._prompts.add(line.run_id)
        if (line.type in PROMPT_TAGS) != (line.run_id in self._prompts):
            self._damaged(
                f"run {line.run_id}, version {line.version}: events of a prompt and of a run are "
                "in one stream"
            )
        self._count_commit(moment, len(data), start is not None)
        blobs = self._blobs_of(event)
        self._move(line.version, digest, moment)
        row = NewRow(
            line.run_id, line.version, line.type, line.event_id, moment, digest, data.decode()
        )  # fmt: skip
        return FileRecord(self._line, row, event, previous, start, blobs)

    def _parsed(self, line: RecordLine) -> tuple[int, bytes]:
        """The time and digest of a line; every field must be in canonical form."""
        for name in ("run_id", "event_id"):
            if not UUID_TEXT.fullmatch(getattr(line, name)):
                self._damaged(f"{name} is not a UUID in canonical form")
        if not DIGEST_TEXT.fullmatch(line.digest):
            self._damaged("digest is not 64 hexadecimal digits in lower case")
        try:
            bytes(line.data).decode()
            if line.recorded_at != self._last_moment[0]:
                moment = to_micros(datetime.fromisoformat(line.recorded_at))
                if moment_text(moment) != line.recorded_at:
                    raise ValueError("recorded_at is not in canonical form")
                if not is_moment(moment):
                    raise ValueError("recorded_at is outside the range of times")
                self._last_moment = (line.recorded_at, moment)
        except (ValueError, OverflowError) as error:
            self._damaged(f"not a record: {error}")
        return self._last_moment[1], bytes.fromhex(line.digest)

    def _event(self, tag: str, data: bytes) -> Event:
        try:
            event = self._codec.decode(tag, data)
            self._codec.encode(event)  # within the limits of this ledger
            self._limits.check("An event, in bytes", len(data), "max_event_bytes")
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
        """Begin the next run; its index row before its first own event."""
        self._end_run()
        if run_id in self._lineages:
            self._damaged(f"run {run_id} continues after another run's records")
        if isinstance(started, RunStarted) and started.parent is not None:
            parent = str(started.parent)
            owner = self._lineages.owner(parent, started.at)
            point = self._fork_points.get((owner, started.at)) if parent in self._lineages else None
            if parent in self._prompts:
                self._damaged(f"run {run_id} starts from {parent}, which is a prompt's stream")
            if point is None:
                self._damaged(
                    f"run {run_id} starts from version {started.at} of run {parent}, "
                    "which is not in the file before it"
                )
            if not point.ends_commit:
                self._damaged(
                    f"run {run_id} starts from version {started.at} of run {parent}, "
                    "which is in the middle of a commit"
                )
            start = child_of(run_id, point.digest, point.recorded_at, started)
            self._lineages.add(run_id, parent, started.at)
        else:
            start = RunRow(run_id)
            self._lineages.add(run_id)
        self._run_id, self._version = run_id, start.version
        self._digest, self._moment = start.digest, start.recorded_at
        self._sealed.open(run_id)
        return start

    def _end_run(self) -> None:
        if why := self._sealed.ends_wrong(self._version):
            self._line -= 1
            self._damaged(why)

    def _count_commit(self, moment: int, size: int, first: bool) -> None:
        """Events of one commit share their time; a commit must fit one append in this ledger."""
        if first or moment != self._moment:
            self._commit_events = self._commit_bytes = 0
        self._commit_events += 1
        self._commit_bytes += size
        what = f"line {self._line}: one commit"
        self._limits.check(what, self._commit_events, "max_batch_events")
        self._limits.check(what, self._commit_bytes, "max_batch_bytes")

    def _blobs_of(self, event: Event) -> dict[str, bytes]:
        named = set(blobs_named(event))
        for name in sorted(named - self._blobs):
            self._damaged(f"blob {name}, which the record names, is not in the file before it")
        for name in sorted(self._pending.keys() - named):
            self._damaged(f"blob {name} is before a record that does not name it")
        blobs, self._pending = self._pending, {}
        return blobs

    def _move(self, version: int, digest: bytes, moment: int) -> None:
        before = self._fork_points.get((self._run_id, version - 1))
        if before is not None and before.recorded_at == moment:
            before.ends_commit = False
        if (self._run_id, version) in self._fork_points:
            self._fork_points[self._run_id, version] = ForkPoint(digest, moment)
        self._version, self._digest, self._moment = version, digest, moment
        self._records += 1
