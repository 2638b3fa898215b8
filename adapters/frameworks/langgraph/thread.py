"""A LangGraph thread in a ledger: reads and records its checkpoints, writes and messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Condition, RLock
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import (
    ERROR,
    INTERRUPT,
    WRITES_IDX_MAP,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from turnledger.adapters.frameworks.langgraph.conversation import Place, conversation_events
from turnledger.adapters.frameworks.langgraph.drafts import (
    Draft,
    Typed,
    dumped,
    plain_map,
    typed_json,
    values_of,
)
from turnledger.adapters.frameworks.langgraph.known_values import (
    DeltaReader,
    DeltaWriter,
    KnownList,
    KnownValues,
    known_from_record,
)
from turnledger.adapters.frameworks.langgraph.open_run import (
    REPLIES,
    OpenRun,
    recorded_replies,
)
from turnledger.adapters.frameworks.langgraph.packed_values import Address
from turnledger.adapters.frameworks.langgraph.stored_lists import StoredLists
from turnledger.adapters.frameworks.langgraph.thread_runs import (
    CHECKPOINT,
    REMOVED,
    WRITES,
    Entry,
    ThreadRuns,
    tags_of,
)
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    CustomEvent,
    Event,
    Ledger,
    Record,
    RunStarted,
)
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.runs.append import Entry as PreparedEvent
from turnledger.runtime.steps import StepScope, current_scope

REQUEST_TYPE = "langgraph.thread"
_REPLAYED = "langgraph.thread"
# How often an append is tried beside other writers, and how many namespaces are remembered.
_ATTEMPTS = 100
_NAMESPACES = 32
# What is written when a task is interrupted or fails: the graph stops, or is about to.
_STOPS = (INTERRUPT, ERROR)
# What may be redacted of an event: values, and not the ids that a checkpoint is found by.
_VALUES = ("data.rest", "data.metadata", "data.values", "data.writes")
# Seconds that a step waits for its checkpoint to be recorded.
_PATIENCE = 10.0


class Thread:
    """One thread as this process knows it. Use it under its lock.

    Args:
        ledger: The ledger.
        name: The thread's id.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.lock = RLock()
        self.name = name
        self.runs = ThreadRuns(ledger, name)
        self._ledger = ledger
        self._lists = StoredLists(ledger)
        # By namespace: the checkpoint that was put last, and what is known of its values.
        self._known: OrderedDict[str, tuple[Entry, KnownValues]] = OrderedDict()
        # Writes that came before their checkpoint: LangGraph stores both in the background.
        self._early: dict[tuple[str, str], list[Callable[[], None]]] = {}
        # A checkpoint was recorded.
        self._recorded = Condition(self.lock)
        # Whether state was recorded redacted in this process. Then its lists are not stored as
        # derived data, which is not redacted: what is known of them here has the secret.
        self._is_redacted = False
        # The run that the middleware has open.
        self.opened: OpenRun | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing that is not recorded, and no run is open."""
        return not self._early and (self.opened is None or self.opened.is_closed)

    @property
    def is_replay(self) -> bool:
        return self.opened is not None and self.opened.is_replay

    # --- reading ---

    def load(self, serde: SerializerProtocol, entry: Entry) -> tuple[Any, Any]:
        """A checkpoint and its metadata."""
        data = self.runs.data(entry.run, entry.version)
        load = self._loader(serde, entry.run, entry.version)
        values = {name: load("values", name) for name in data["values"]}
        rest = {"id": entry.id, "channel_values": values}
        return {**load("rest"), **rest}, load("metadata")

    def metadata(self, serde: SerializerProtocol, entry: Entry) -> Any:
        """The metadata of a checkpoint."""
        return self._loader(serde, entry.run, entry.version)("metadata")

    def value(self, serde: SerializerProtocol, entry: Entry, channel: str) -> Any:
        """One channel's value in a checkpoint; KeyError if it has none."""
        return self._loader(serde, entry.run, entry.version)("values", channel)

    def writes(
        self, serde: SerializerProtocol, entry: Entry, channels: Iterable[str] | None = None
    ) -> list[tuple[str, str, Any]]:
        """The writes of a checkpoint in LangGraph's order; those to some channels, or all."""
        found: dict[tuple[str, int], tuple[str, str, str, int, int]] = {}
        for run, version in self.runs.writes(entry):
            data = self.runs.data(run, version)
            for place, (number, channel, _) in enumerate(data["writes"]):
                key = (data["task"], number)
                if number < 0 or key not in found:  # a normal write is stored once
                    found[key] = (data["path"], channel, run, version, place)
        order = sorted(found, key=lambda key: writes_sort_key(found[key][0], *key))
        return [
            (key[0], channel, self._loader(serde, run, version)("writes", place, 2))
            for key in order
            for _, channel, run, version, place in (found[key],)
            if channels is None or channel in channels
        ]

    def _loader(self, serde: SerializerProtocol, run: str, version: int) -> Callable[..., Any]:
        reader = self._reader(run)
        return lambda *path: reader.loaded((version, *path), serde)

    def _reader(self, run: str) -> DeltaReader:
        def stored(address: Address) -> Any:
            return self._lists.find(self.runs.record(run, int(address[0])).run_key, address)

        return DeltaReader(partial(self.runs.data, run), self._ledger.blob, stored)

    # --- checkpoints ---

    def put(self, serde: SerializerProtocol, draft: Draft) -> None:
        """Record a checkpoint, and the messages that entered the state with it."""
        self._retried(lambda: self._put(serde, draft))
        for write in self._early.pop((draft.ns, draft.checkpoint["id"]), ()):
            write()
        self._recorded.notify_all()

    def _put(self, serde: SerializerProtocol, draft: Draft) -> None:
        ns, checkpoint_id = draft.ns, draft.checkpoint["id"]
        parent = self.runs.find(ns, draft.parent) if draft.parent else None
        run, fork = self._run_of(draft, parent)
        known = self._known_for(ns, parent, run, fork)
        writer = DeltaWriter(known)
        values, channels, entered = values_of(serde, writer, draft, known)
        newest = self.runs.newest(ns)
        data: dict[str, Any] = {"ns": ns, "id": checkpoint_id}
        if draft.parent:
            data["parent"] = draft.parent
        if newest is not None and newest.id > checkpoint_id:
            data["older"] = True
        data["rest"] = typed_json(writer, draft.rest, ("rest",))
        data["metadata"] = typed_json(writer, draft.metadata, ("metadata",))
        data["values"] = values
        due = list(self._due(writer.lists, values)) if not self._is_redacted else []
        event = CustomEvent(kind=CHECKPOINT, data=data, blobs=tuple(writer.blobs))
        # The checkpoint is the last event of its commit: a fork begins at the end of one.
        events = [*self._conversation(run, fork, entered), event]
        recorded = self._append(run, events, writer.blobs.values(), fork)[-1]
        entry = self.runs.find(ns, checkpoint_id)
        assert entry is not None
        self._remember(ns, entry, writer.known_after_checkpoint(recorded.version, channels))
        for one in due if not self._is_redacted else ():
            self._lists.store(recorded.run_key, one)

    def _run_of(self, draft: Draft, parent: Entry | None) -> tuple[str, Entry | None]:
        """The run that a checkpoint belongs to; with the checkpoint that it forks at, a new run."""
        runs = self.runs
        if draft.ns:
            root = runs.find("", draft.root) if draft.root else None
            held = root or parent or runs.newest("")
            return (held.run if held is not None else runs.main), None
        if parent is None:
            return runs.main, None
        if runs.continues(parent, parent.run):
            return parent.run, None
        return self._ledger.clock.new_id(), parent

    def _conversation(
        self, run: str, fork: Entry | None, entered: Sequence[BaseMessage]
    ) -> Iterator[Event]:
        if not entered:
            return iter(())
        place = Place()
        if fork is not None:
            place = self.runs.place(fork.run, fork.version)
        elif run in self.runs.runs:
            place = self.runs.place(run)
        return conversation_events(entered, place, self._replies(run))

    def _replies(self, run: str) -> Collection[str]:
        """The ids of replies that the middleware recorded, in this process or before it."""
        scope = self.scope_of(run)
        if scope is None and self.opened is not None and self.opened.run == run:
            scope = self.opened.scope  # of an agent that has ended inside of a larger graph
        if scope is not None:
            found: Collection[str] = scope.memory.get(REPLIES, ())
            return found
        # A saver alone claims nothing.
        is_claimed = run in self.runs.runs and self._ledger.run(run).epoch > 0
        return recorded_replies(self._ledger, run) if is_claimed else ()

    def _due(self, lists: Iterable[KnownList], values: Mapping[str, Any]) -> Iterator[KnownList]:
        """The lists that are stored for fast reading with this checkpoint; they are marked."""
        for one in lists:
            field, *path = one.address
            tree = values[str(path[0])] if field == "values" and len(path) == 1 else None
            if isinstance(tree, dict) and "$list" in tree and self._lists.is_due(one):
                tree["stored"] = True
                yield one

    # --- writes ---

    def put_writes(
        self,
        serde: SerializerProtocol,
        ns: str,
        checkpoint_id: str,
        writes: Sequence[tuple[str, Any]],
        task: Mapping[str, str],
    ) -> None:
        """Record what a task wrote, in the run that holds the checkpoint.

        Args:
            serde: Packs the values.
            ns: The checkpoint's namespace.
            checkpoint_id: The checkpoint.
            writes: Channels and values.
            task: The task's id and path, under "task" and "path".
        """
        if self.runs.find(ns, checkpoint_id) is None:
            self.runs.refresh()
        if self.runs.find(ns, checkpoint_id) is None:
            again = partial(self.put_writes, serde, ns, checkpoint_id, writes, task)
            self._early.setdefault((ns, checkpoint_id), []).append(again)
            return
        packed = [(channel, dumped(serde, value)) for channel, value in writes]
        self._retried(lambda: self._put_writes(ns, checkpoint_id, packed, task))
        if self.opened is not None and any(channel in _STOPS for channel, _ in writes):
            self.opened.leave()

    def _put_writes(
        self,
        ns: str,
        checkpoint_id: str,
        writes: Sequence[tuple[str, Typed]],
        task: Mapping[str, str],
    ) -> None:
        entry = self.runs.find(ns, checkpoint_id)
        if entry is None:
            return  # deleted meanwhile
        writer = DeltaWriter(self._known_for(ns, entry, entry.run, None))
        recorded = [
            [
                WRITES_IDX_MAP.get(channel, place),
                channel,
                typed_json(writer, typed, ("writes", place, 2)),
            ]
            for place, (channel, typed) in enumerate(writes)
        ]
        data = {"ns": ns, "checkpoint": checkpoint_id, **task, "writes": recorded}
        event = CustomEvent(kind=WRITES, data=data, blobs=tuple(writer.blobs))
        appended = self._append(entry.run, [event], writer.blobs.values())
        writer.known_after_writes(appended[-1].version)

    # --- deleting ---

    def remove(self, ids: Mapping[str, Sequence[str]] | None) -> None:
        """Mark checkpoints as removed, by namespace; None is all. Their records stay."""
        data = {"all": True} if ids is None else {"ids": {ns: [*some] for ns, some in ids.items()}}
        for run in list(self.runs.runs):
            event = CustomEvent(kind=REMOVED, data=data)
            appended = self._ledger.append(run, event, expected_version=ANY)
            self.runs.appended(run, appended.records)
        self._known.clear()
        if ids is None:
            self._early.clear()

    # --- what is known ---

    def _known_for(self, ns: str, base: Entry | None, run: str, fork: Entry | None) -> KnownValues:
        """What an event of a run may refer to: the values of a checkpoint, and what followed it.

        Args:
            ns: The namespace.
            base: The parent checkpoint, or the one that writes belong to.
            run: The run that the event goes to.
            fork: The checkpoint that the run forks at, if it is new.
        """
        if base is None:
            return self._known_around(ns, run)
        if fork is None and not self.runs.is_shared(base, run):
            return KnownValues()
        known = self._known.get(ns)
        # Writes after the fork's checkpoint are not in the fork.
        if known is not None and known[0] == base and fork is None and base.run == run:
            return known[1]
        data = self.runs.data(base.run, base.version)
        versions = data["rest"].get("channel_versions", {}) if "$typed" not in data["rest"] else {}
        reader = self._reader(base.run)
        loaded = known_from_record(base.version, data, plain_map(reader, versions), reader)
        if fork is None and (known is None or known[0].version < base.version):
            self._remember(ns, base, loaded)
        return loaded

    def _known_around(self, ns: str, run: str) -> KnownValues:
        """For a subgraph's first checkpoint: what is known of the graph that it is in."""
        while ns:
            ns = ns.rpartition("|")[0]
            entry, known = self._known.get(ns, (None, None))
            if entry is not None and known is not None and entry.run == run:
                return known.without_channels()
        return KnownValues()

    def _remember(self, ns: str, entry: Entry, known: KnownValues) -> None:
        self._known[ns] = entry, known
        self._known.move_to_end(ns)
        if len(self._known) > _NAMESPACES:
            self._known.popitem(last=False)

    # --- appending ---

    def _retried(self, work: Callable[[], None]) -> None:
        """Do it again with what others appended, until nobody appends in between."""
        for attempt in range(_ATTEMPTS):
            try:
                work()
            except ConcurrentAppendError:
                if attempt == _ATTEMPTS - 1:
                    raise
                self.runs.refresh()
            else:
                return

    def _append(
        self,
        run: str,
        events: Sequence[Event],
        blobs: Iterable[bytes],
        fork: Entry | None = None,
    ) -> tuple[Record, ...]:
        """Append to a run at the version that was read, or with the claim of its scope."""
        ready = [self._prepared(event) for event in events]
        known = self.runs.runs.get(run)
        scope = self.scope_of(run)
        if known is None:
            started = self._started(run, fork)
            appended = self._ledger.append(run, [started, *ready], NEW, blobs=tuple(blobs))
            self.runs.begun(run, fork)
            records = appended.records
        elif scope is not None:
            records = tuple(scope.recorder.append(ready, tuple(blobs)))
        else:
            records = self._ledger.append(run, ready, known.head, blobs=tuple(blobs)).records
        self.runs.appended(run, records)
        return records

    def _started(self, run: str, fork: Entry | None = None) -> RunStarted:
        return RunStarted(
            request_type=REQUEST_TYPE,
            tags=dict(tags_of(self.name, is_main=run == self.runs.main)),
            parent=UUID(fork.run) if fork is not None else None,
            at=fork.version if fork is not None else 0,
            kind="fork" if fork is not None else "run",
            catalogue=CATALOGUE,
        )

    # --- the run that steps are recorded in ---

    def scope_of(self, run: str) -> StepScope | None:
        """Where steps of a run are recorded now, with its claim: by context, or opened here."""
        scope = current_scope()
        if scope is not None and scope.ledger is self._ledger and str(scope.run_id) == run:
            return scope
        opened = self.opened
        if opened is None or opened.is_closed or opened.run != run:
            return None
        return opened.scope

    def replayed(self) -> Thread | None:
        """In a replay, the thread as it is made again: in memory, and from its beginning."""
        if self.opened is None and current_scope() is None:
            return None
        scope = self.scope_of(self.runs.main)
        if scope is None or not scope.is_replay:
            return None
        with self.lock:
            found: Thread | None = scope.memory.get(_REPLAYED)
            if found is None:
                found = Thread(Ledger.open("memory://", redactor=None), self.name)
                scope.memory[_REPLAYED] = found
        return found

    def open(self, checkpoint_id: str | None) -> OpenRun:
        """The run that a checkpoint is in, claimed: opened, or open already.

        Args:
            checkpoint_id: The root checkpoint whose tasks run. LangGraph records it in the
                background, so it is waited for. None if it is recorded later only.
        """
        if self.opened is not None and self.is_replay:
            return self.opened
        entry = self.wait_for(checkpoint_id) if checkpoint_id is not None else None
        run = entry.run if entry is not None else self.runs.main
        if self.opened is not None and self.opened.run != run:
            self.opened.close(None)
            self.opened = None
        if self.opened is None or self.opened.is_closed:
            self.opened = OpenRun.claimed(self._ledger, run, self._started(run))
            self.runs.refresh()
        self.opened.since = entry.version if entry is not None else 0
        return self.opened

    def unfinished(self, checkpoint_id: str | None) -> OpenRun | None:
        """The run that a checkpoint is in, claimed, if it is not completed; arguments as of `open`.

        A process before this one may have made all calls, and been killed before the end.
        """
        if self.opened is not None and self.is_replay:
            return self.opened
        entry = self.wait_for(checkpoint_id) if checkpoint_id is not None else None
        if self.opened is not None:
            return self.opened
        run = entry.run if entry is not None else self.runs.main
        info = self._ledger.run(run) if self._ledger.head(run) else None
        is_open = info is not None and info.epoch > 0 and info.status == "running"
        return self.open(checkpoint_id) if is_open else None

    def wait_for(self, checkpoint_id: str) -> Entry | None:
        """A root checkpoint that is being recorded; None if that takes too long."""
        self._recorded.wait_for(lambda: self.runs.find("", checkpoint_id), _PATIENCE)
        return self.runs.find("", checkpoint_id)

    def _prepared(self, event: Event) -> PreparedEvent:
        """Encode an event; RedactedStateError if its state is not to be redacted."""
        made = self._ledger.prepare(
            event, exact=("data",) if isinstance(event, CustomEvent) else ()
        )
        if not all(part.path.startswith(_VALUES) for part in made.redacted_state):
            raise made.refused("a checkpoint is found by this")
        self._is_redacted = self._is_redacted or bool(made.redacted_state)
        return made
