"""Thread runs: where a thread's checkpoints and writes are, over the runs that it consists of.

A thread's main line is the run with the id `run_id_for(thread)`; each branch is a fork. Runs are
read from their ends, as far as it is needed: the newest checkpoint is found in the last records,
and only a question about others reads all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from turnledger.adapters.frameworks.langgraph.conversation import EVALUATION, Place
from turnledger.ledger import (
    CustomEvent,
    IntegrityFailureError,
    Ledger,
    MessageAppended,
    Record,
    run_id_for,
)

THREAD_TAG = "langgraph.thread"
CHECKPOINT = "langgraph.checkpoint"
WRITES = "langgraph.writes"
REMOVED = "langgraph.removed"
_CUSTOM = CustomEvent.tag
_MESSAGE = MessageAppended.tag
# How many records are read at a time; at the end of a run first fewer and then more, and after
# so many times all. How many of a run are kept.
WINDOW = 32
_FIRST_WINDOW = 8
_WINDOWS = 8
_KEPT = 256


class Entry(NamedTuple):
    """A checkpoint of a thread: where it is recorded, and what it follows."""

    ns: str
    id: str
    parent: str | None
    run: str
    version: int
    position: int
    # There was one with a higher id.
    older: bool


class _Data(msgspec.Struct, gc=False):
    """The fields of our events' data by which they are found; all else is skipped."""

    ns: str = ""
    id: str = ""
    parent: str | None = None
    older: bool = False
    checkpoint: str = ""
    all: bool = False
    ids: dict[str, list[str]] = {}


class _Custom(msgspec.Struct, gc=False):
    kind: str
    data: msgspec.Raw = msgspec.Raw(b"null")


_custom = msgspec.json.Decoder(_Custom).decode
_data = msgspec.json.Decoder(_Data).decode


@dataclass
class ThreadRun:
    """One run of a thread: which of its records were read (low < version <= head)."""

    run: str
    parent: str | None
    # The version that it forked at, if its parent is a run of the thread too; else 0.
    start: int
    low: int
    head: int
    # The last root checkpoint, the last checkpoint of each namespace, and the last message.
    tips: dict[str, Entry] = field(default_factory=dict)
    last_message: int = 0
    place: Place | None = None
    records: OrderedDict[int, Record] = field(default_factory=OrderedDict)


class ThreadRuns:
    """The runs of one thread, as far as they were read."""

    def __init__(self, ledger: Ledger, thread: str) -> None:
        self._ledger = ledger
        self.thread = thread
        self.runs: dict[str, ThreadRun] = {}
        self._entries: dict[tuple[str, str], Entry] = {}
        self._writes: dict[tuple[str, str], dict[tuple[str, int], None]] = {}
        self._removed: dict[tuple[str, str], int] = {}
        self._all_removed = -1

    @cached_property
    def main(self) -> str:
        """The id of the main line."""
        return str(run_id_for(self.thread))

    # --- reading ---

    def refresh(self) -> None:
        """Read what others appended since."""
        infos = list(self._ledger.runs(tags={THREAD_TAG: self.thread}))
        if not any(info.tags.get("name") == self.thread for info in infos):
            # The main line may be a run that was begun by others: then it has their tags.
            if not self._ledger.head(self.main):
                return
            infos.append(self._ledger.run(self.main))
        of_thread = {info.run_id for info in infos}
        for info in reversed(infos):
            run = self.runs.get(str(info.run_id))
            if run is None:
                shared = info.parent is not None and info.parent in of_thread
                self._add(
                    str(info.run_id),
                    str(info.parent) if shared else None,
                    info.parent_version if shared else 0,
                    info.version,
                )
            elif run.head < info.version:
                for record in self._ledger.read(run.run, after=run.head):
                    self._take(run, record)

    def _add(self, run_id: str, parent: str | None, start: int, head: int) -> ThreadRun:
        run = ThreadRun(run_id, parent, start, low=head, head=head)
        self.runs[run_id] = run
        return run

    def begun(self, run_id: str, parent: Entry | None) -> None:
        """A run was begun here: a fork from a checkpoint, or the main line."""
        at = parent.version if parent is not None else 0
        self._add(run_id, parent.run if parent is not None else None, at, at)

    def appended(self, run_id: str, records: tuple[Record, ...]) -> None:
        """Records were appended to a run here."""
        run = self.runs[run_id]
        if records[0].version > run.head + 1:  # by others, through the same claim
            for record in self._ledger.read(run_id, run.head, records[0].version - 1):
                self._take(run, record)
        for record in records:
            self._take(run, record)

    def _back(self, run: ThreadRun, count: int | None = WINDOW) -> None:
        """Read records before those that were read: some, or all."""
        low = max(run.start, run.low - count) if count is not None else run.start
        for record in self._ledger.read(run.run, after=low, until=run.low):
            self._take(run, record)
        run.low = low

    def complete(self) -> None:
        """Read all that was not read yet."""
        for run in self.runs.values():
            if run.low > run.start:
                self._back(run, None)

    def _take(self, run: ThreadRun, record: Record) -> None:
        version = record.version
        run.head = max(run.head, version)
        if record.tag == _MESSAGE:
            if version > run.last_message:
                run.last_message, run.place = version, None
            return
        if record.tag != _CUSTOM:
            return
        custom = _custom(record.data)
        if custom.kind not in (CHECKPOINT, WRITES, REMOVED):
            return
        data = _data(custom.data)
        if custom.kind == CHECKPOINT:
            self._keep(run, record)
            entry = Entry(
                data.ns, data.id, data.parent, run.run, version, record.position, data.older
            )
            before = self._entries.get((data.ns, data.id))
            if before is None or before.position < record.position:
                self._entries[data.ns, data.id] = entry
            tip = run.tips.get(data.ns)
            if tip is None or tip.version < version:
                run.tips[data.ns] = entry
        elif custom.kind == WRITES:
            self._keep(run, record)
            self._writes.setdefault((data.ns, data.checkpoint), {})[run.run, version] = None
        elif data.all:
            self._all_removed = max(self._all_removed, record.position)
        else:
            for ns, ids in data.ids.items():
                for one in ids:
                    known = self._removed.get((ns, one), -1)
                    self._removed[ns, one] = max(known, record.position)

    def _keep(self, run: ThreadRun, record: Record) -> None:
        run.records[record.version] = record
        if len(run.records) > _KEPT:
            run.records.popitem(last=False)

    def record(self, run_id: str, version: int) -> Record:
        """A record that a run has, or shares; those before it are read along."""
        run = self.runs[run_id]
        while version <= run.start and run.parent is not None:
            run = self.runs[run.parent]
        found = run.records.get(version)
        if found is None:
            for record in self._ledger.read(run.run, max(version - WINDOW, 0), version):
                if record.tag == _CUSTOM:
                    self._keep(run, record)
            found = run.records.get(version)
        if found is None:
            raise IntegrityFailureError(
                f"Run {run_id} is damaged: its checkpoints name event {version}, which is not "
                f"theirs. Run `turnledger verify {run_id}`."
            )
        return found

    def data(self, run_id: str, version: int) -> Any:
        """The data of one of our events."""
        event = self.record(run_id, version).event
        return event.data if isinstance(event, CustomEvent) else None

    # --- asking ---

    def is_visible(self, entry: Entry) -> bool:
        """Whether it was neither deleted nor pruned."""
        removed = self._removed.get((entry.ns, entry.id), -1)
        return entry.position > max(removed, self._all_removed)

    def find(self, ns: str, checkpoint_id: str) -> Entry | None:
        """A checkpoint by its id."""
        entry = self._entries.get((ns, checkpoint_id))
        if entry is None:
            self.complete()
            entry = self._entries.get((ns, checkpoint_id))
        return entry if entry is not None and self.is_visible(entry) else None

    def newest(self, ns: str) -> Entry | None:
        """The checkpoint with the highest id."""
        found = [self._tip(run, ns) for run in self.runs.values()]
        tips = [entry for entry in found if entry is not None]
        if len(tips) < len(found) or any(
            entry.older or not self.is_visible(entry) for entry in tips
        ):
            self.complete()
            tips = list(self.entries(ns))
        return max(tips, key=lambda entry: entry.id, default=None)

    def _tip(self, run: ThreadRun, ns: str) -> Entry | None:
        for attempt in range(_WINDOWS):
            if ns in run.tips or run.low <= run.start:
                break
            self._back(run, _FIRST_WINDOW << attempt)
        return run.tips.get(ns)

    def continues(self, entry: Entry, run_id: str) -> bool:
        """Whether a root checkpoint is the last one of a run: what follows it goes there."""
        run = self.runs.get(run_id)
        if run is None:
            return False
        while run.low > run.start and "" not in run.tips:
            self._back(run)
        return run.tips.get("") == entry

    def recorded(self, ns: str, checkpoint_id: str) -> Entry | None:
        """A checkpoint by its id, also one that was removed."""
        if self.find(ns, checkpoint_id) is None:
            self.complete()
        return self._entries.get((ns, checkpoint_id))

    def entries(self, ns: str | None) -> Iterator[Entry]:
        """All visible checkpoints of a namespace, or of all; read `complete` before."""
        for entry in self._entries.values():
            if (ns is None or entry.ns == ns) and self.is_visible(entry):
                yield entry

    def writes(self, entry: Entry) -> list[tuple[str, int]]:
        """Where the writes of a checkpoint are: runs and versions, in their order."""
        return sorted(
            self._writes.get((entry.ns, entry.id), ()),
            key=lambda place: self.record(*place).position,
        )

    def is_shared(self, entry: Entry, run_id: str) -> bool:
        """Whether a checkpoint is among the records of a run, or of what it shares."""
        run: ThreadRun | None = self.runs.get(run_id)
        limit = None
        while run is not None:
            if entry.run == run.run:
                return limit is None or entry.version <= limit
            limit = run.start if limit is None else min(limit, run.start)
            run = self.runs.get(run.parent) if run.parent is not None else None
        return False

    def place(self, run_id: str, until: int | None = None) -> Place:
        """Where the conversation of a run is, at its end or at a version."""
        run = self.runs[run_id]
        if until is not None:
            return self._place(run_id, until)
        if run.place is None:
            run.place = self._place(run_id, run.last_message or None)
        return run.place

    def _place(self, run_id: str, until: int | None) -> Place:
        for record in self._ledger.read(run_id, until=until, backwards=True, page_size=WINDOW):
            event = record.event if record.tag == _MESSAGE else None
            if isinstance(event, MessageAppended) and event.message.evaluation_id == EVALUATION:
                return Place(event.message.sequence + 1, event.message.turn)
        return Place()


def threads(ledger: Ledger) -> Iterator[str]:
    """All threads of a ledger."""
    seen: set[str] = set()
    for info in ledger.runs(tags={THREAD_TAG: None}):
        thread = info.tags[THREAD_TAG]
        if thread not in seen:
            seen.add(thread)
            yield thread


def tags_of(thread: str, *, is_main: bool) -> Mapping[str, str]:
    """The tags of a thread's run; its main line has the thread's id as its name."""
    return {THREAD_TAG: thread, **({"name": thread} if is_main else {})}
