"""The check of one run's records: order, digests, content, and the run's row in the index.

`verify` and recovery share it. `verify` reads raw rows of every kind of damage and collects
problems; a recovery reads the rows that it folds anyway (`CheckedReader`) and stops at the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from turnledger.ledger.clock import is_moment
from turnledger.ledger.errors import EventDecodeError, IntegrityFailureError, RunNotFoundError
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.events.chain import UUID_TEXT, link
from turnledger.ledger.events.types import Event, PromptEvent, RunStarted
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.index import (
    INDEXED_TAGS,
    PROMPT,
    RunRow,
    advance,
    check_types,
    child_of,
)
from turnledger.ledger.runs.lineage import NO_END, Segment, lineage
from turnledger.ledger.runs.record import Columns, RawRow, Record, Row, as_row
from turnledger.ledger.stores.base import PAGE, Store

_UUID: Final = re.compile(UUID_TEXT.pattern.encode())


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


def text_of(value: Any) -> str:
    """A stored value of any type, as text for a report."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def problem_at(row: RawRow, what: str) -> Problem:
    """The problem that a record has."""
    return Problem(
        run_id=text_of(row.run_id),
        version=row.version if isinstance(row.version, int) else None,
        position=row.position if isinstance(row.position, int) else None,
        event_id=text_of(row.event_id),
        what=what,
    )


def is_id(value: Any) -> bool:
    """Whether stored bytes are a UUID in canonical form."""
    return isinstance(value, bytes) and _UUID.fullmatch(value) is not None


class RunCheck:
    """Checks the records of one run in their order, and folds the run's row in the index.

    `state` is that row after the last record that was checked.
    """

    def __init__(
        self,
        start: RunRow,
        index: RunRow | None,
        codec: Codec,
        *,
        is_blob: Callable[[str], bool] | None = None,
    ) -> None:
        """Begin before a run's first own record.

        Args:
            start: The run's row there: at version 0, or as a child at its parent's version.
            index: The row in the index, as read before the records; None if it has none.
            codec: Decodes the events.
            is_blob: Says whether a blob is there and sound; None if blobs are not checked.
        """
        self.state = start
        self.index = index
        self.count = 0
        # The state at the version that the index has: other writers may append meanwhile.
        self.at_index: RunRow | None = None
        self._codec = codec
        self._is_blob = is_blob
        self._position = 0

    def expect(self, index: RunRow) -> None:
        """Compare with this row of the index from now on, which was read later."""
        self.index = index
        self.at_index = self.state if index.version == self.state.version else None

    def take(self, row: RawRow) -> Event | Problem:
        """Check the next record; its event, or what is wrong.

        Raises:
            EventDecodeError: Its digest is right, and this program can't read it.
        """
        before = self.state
        if row.version != before.version + 1:
            return self._gap(row)
        if what := self._wrong_columns(row):
            return problem_at(row, what)
        event = self._codec.decode(row.tag.decode(errors="replace"), row.data)
        if what := self._wrong_event(event):
            return problem_at(row, what)
        indexed = (event,) if event.tag in INDEXED_TAGS else ()
        self.state = advance(before, indexed, row.version, row.digest, row.recorded_at)
        self._position = row.position
        self.count += 1
        if self.index is not None and self.index.version == row.version:
            self.at_index = self.state
        return event

    def ahead(self) -> Problem | None:
        """The problem of an index that names later records than there are."""
        index, state = self.index, self.state
        if index is None or not isinstance(index.version, int) or index.version <= state.version:
            return None
        return Problem(
            run_id=state.run_id,
            version=state.version + 1,
            what=f"missing: the index has version {index.version}",
        )

    def differs(self, folded: RunRow) -> str:
        """How the index differs from a state that the records fold to; empty if it does not."""
        index = self.index
        wrong = [
            f"{name} {getattr(index, name)!r} instead of {getattr(folded, name)!r}"
            for name in folded.__struct_fields__
            if getattr(index, name) != getattr(folded, name)
        ]
        return f"the index has {', '.join(wrong)}: rebuild the index" if wrong else ""

    def _wrong_columns(self, row: RawRow) -> str | None:
        """What is wrong with a record, as far as that can be seen without decoding it."""
        previous, moment = self.state.digest, self.state.recorded_at
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
        if not isinstance(row.position, int) or row.position <= self._position:
            return f"position {text_of(row.position)} does not come after position {self._position}"
        if row.recorded_at < moment:
            return "recorded_at goes backwards"
        if not is_id(row.event_id):
            return "the event's id is not a UUID in canonical form"
        return None

    def _wrong_event(self, event: Event) -> str | None:
        is_blob = self._is_blob
        for name in blobs_named(event) if is_blob is not None else ():
            if is_blob is not None and not is_blob(name):
                return f"blob {name} is missing or changed"
        if self.count and isinstance(event, RunStarted):
            return "the run starts a second time"
        if self.count and isinstance(event, PromptEvent) != (self.state.kind == PROMPT):
            return "events of a prompt and of a run are in one stream"
        return None

    def _gap(self, row: RawRow) -> Problem:
        """The problem of a record whose version does not follow."""
        wanted = self.state.version + 1
        if wanted == 1 and self.index is not None:
            wanted = first_version(self.index) or wanted
        if row.version == wanted:
            return problem_at(row, "the data does not name the parent that the run starts from")
        if isinstance(row.version, int) and row.version > wanted:
            what = f"the record is missing; the next one is version {row.version}"
            return Problem(run_id=text_of(row.run_id), version=wanted, what=what)
        return problem_at(row, f"expected version {wanted}, found {text_of(row.version)}")


def first_version(index: RunRow) -> int | None:
    """The version of a run's first own record, by the index; None if that is damaged."""
    at: Any = index.parent_version
    return at + 1 if isinstance(at, int) else None


# --- reading with checks --------------------------------------------------------------


class CheckedReader:
    """Reads a run with its ancestors and checks each record on the way; it can be read on.

    The index row is read before the records, so that others may append meanwhile. Of an ancestor,
    the records up to the version that the run goes on from count, and nothing after it. Blobs are
    checked when they are used (`Ledger.blob`).
    """

    def __init__(self, store: Store, codec: Codec, run_id: str) -> None:
        self.run_id = run_id
        self._store = store
        self._codec = codec
        self._check: RunCheck | None = None

    @property
    def version(self) -> int:
        """The version up to which the run was read and checked."""
        return self._check.state.version if self._check is not None else 0

    def read_on(self) -> Iterator[Record]:
        """The records since the last call, at first all of them.

        Raises:
            IntegrityFailureError: A record is damaged or missing, or the index row differs.
            EventDecodeError: A record is as it was recorded, and this program can't read it.
        """
        index = self._row(self.run_id)
        check = self._check
        if check is None:
            *ancestors, own = lineage(self.run_id, self._store.run)
            before = None
            for segment in ancestors:
                before = yield from self._ancestor(segment, before)
            check = yield from self._read(own, index, None, before)
        else:
            check.expect(index)
            own = Segment(self.run_id, check.state.version, NO_END)
            yield from self._read(own, index, check, None)
        self._compare(check, index)
        self._check = check

    def _ancestor(
        self, segment: Segment, before: RunCheck | None
    ) -> Generator[Record, None, RunCheck]:
        row = self._row(segment.run_id)
        check = yield from self._read(segment, row, None, before)
        state = check.state
        if state.version != segment.until:
            raise self._damaged(_missing(state))
        found, wanted = (row.parent, row.parent_version), (state.parent, state.parent_version)
        if found != wanted or row.version < segment.until:
            what = (
                f"the index has parent {found[0]} at {found[1]} and version {row.version}; the "
                f"records, parent {wanted[0]} at {wanted[1]} and version {segment.until} at "
                "least: rebuild the index"
            )
            raise self._damaged(Problem(run_id=segment.run_id, what=what))
        return check

    def _read(
        self, segment: Segment, index: RunRow, check: RunCheck | None, before: RunCheck | None
    ) -> Generator[Record, None, RunCheck]:
        """Read and check one run's own records; `before` has checked those that it starts from."""
        low = segment.after
        while low < segment.until:
            page = self._store.rows(segment.run_id, low, segment.until, backwards=False, limit=PAGE)
            for columns in page:
                row = _raw(columns)
                if check is None:
                    check = RunCheck(self._start(row, before), index, self._codec)
                event = self._taken(check, row)
                yield Record(columns, self._codec, event)
            if len(page) < PAGE or check is None:
                break
            low = check.state.version
        return check or RunCheck(_before_first(index), index, self._codec)

    def _taken(self, check: RunCheck, row: RawRow) -> Event:
        try:
            found = check.take(row)
        except EventDecodeError as error:
            raise unreadable(error, self._store, self._codec, text_of(row.run_id), row) from error
        if isinstance(found, Problem):
            raise self._damaged(found)
        return found

    def _start(self, row: RawRow, before: RunCheck | None) -> RunRow:
        """A run's row before its first own record."""
        run_id, event = text_of(row.run_id), None
        with suppress(EventDecodeError, IntegrityFailureError, AttributeError, UnicodeDecodeError):
            event = self._codec.decode(row.tag.decode(), row.data)
        if not isinstance(event, RunStarted) or event.parent is None:
            return RunRow(run_id)
        origin = before.state if before is not None else RunRow(run_id)
        return child_of(run_id, origin.digest, origin.recorded_at, event)

    def _compare(self, check: RunCheck, index: RunRow) -> None:
        """Compare the index row with the records up to the version that it names."""
        problem = check.ahead()
        if problem is not None:
            raise self._damaged(problem)
        state = check.state
        what = check.differs(check.at_index) if check.at_index is not None else ""
        if check.at_index is None or (
            # Records and their row are written together: a row read later can't be behind.
            state.version > index.version and self._row(self.run_id).version < state.version
        ):
            what = (
                f"the index has version {index.version}, the last record is version "
                f"{state.version}: rebuild the index"
            )
        if what:
            raise self._damaged(Problem(run_id=self.run_id, version=state.version, what=what))

    def _row(self, run_id: str) -> RunRow:
        row = self._store.run(run_id)
        if row is None:
            raise RunNotFoundError(run_id)
        check_types(row)
        return row

    def _damaged(self, problem: Problem) -> IntegrityFailureError:
        return IntegrityFailureError(
            f"Run {self.run_id} is damaged and is not worked on: {problem}. Nothing was run. "
            f"`turnledger verify {self.run_id}` says more; go on from a backup or an export, fork "
            "it before the damage, or abandon it."
        )


def unreadable(
    error: EventDecodeError, store: Store, codec: Codec, run_id: str, row: RawRow | Row
) -> EventDecodeError:
    """The error of a record that this program can't read, with its place and the catalogues.

    A newer program may have written since the ledger was opened: which catalogue wrote here is
    asked again.
    """
    codec.written = store.written_catalogue()
    try:
        codec.decode(error.tag, row.data)
    except EventDecodeError as again:
        error = again
    return error.located(run_id, row.version)


def _missing(state: RunRow) -> Problem:
    return Problem(run_id=state.run_id, version=state.version + 1, what="the record is missing")


def _before_first(index: RunRow) -> RunRow:
    return RunRow(index.run_id, version=index.parent_version)


def _raw(columns: Columns) -> RawRow:
    """A row with its text as bytes, as it is on disk; what is not stored as text becomes None."""
    row = as_row(columns)
    run_id, tag, event_id, data = map(_bytes, (row.run_id, row.tag, row.event_id, row.data))
    return RawRow(
        row.position, run_id, row.version, tag, event_id, row.recorded_at, row.digest, data
    )


def _bytes(text: Any) -> bytes | None:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else None
