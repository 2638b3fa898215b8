"""TurnledgerSaver: a checkpointer for LangGraph that keeps its threads in a ledger.

Checkpoints and writes are CustomEvents, and each message that enters a thread's state is a
MessageAppended, so that all views of a run work on a thread. See `packed_values` for the form of
the values, `known_values` for what is not recorded twice, `thread_runs` for threads and runs.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from turnledger.adapters.frameworks.langgraph.drafts import Draft, dumped
from turnledger.adapters.frameworks.langgraph.thread import Thread
from turnledger.adapters.frameworks.langgraph.thread_runs import Entry, tags_of, threads
from turnledger.ledger import AsyncLedger, InvalidInputError, Ledger, run_id_for
from turnledger.ledger.errors import short_repr
from turnledger.runtime.agents.shared_ledgers import shared_ledger

T = TypeVar("T")
# How many threads are kept in memory.
_THREADS = 64
# What a checkpoint's event holds beside the rest of the checkpoint.
_ASIDE = ("id", "channel_values")


class _Threads:
    """The threads that this process used last."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = Lock()
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._async: AsyncLedger | None = None

    @contextmanager
    def locked(self, name: str, *, refreshed: bool = False) -> Iterator[Thread]:
        """A thread under its lock; `refreshed` with what others appended."""
        thread = self.find(name)
        thread = thread.replayed() or thread
        with thread.lock:
            if refreshed or not thread.runs.runs:
                thread.runs.refresh()
            yield thread

    def find(self, name: str) -> Thread:
        """A thread."""
        with self._lock:
            thread = self._threads.get(name)
            if thread is None:
                thread = self._threads[name] = Thread(self._ledger, name)
                self._forget()
            self._threads.move_to_end(name)
            return thread

    def _forget(self) -> None:
        for name in list(self._threads)[:-_THREADS]:
            if self._threads[name].is_idle:
                del self._threads[name]

    async def call(self, work: Callable[[], T]) -> T:
        """Run it on a thread of a pool, with the caller's context."""
        with self._lock:
            if self._async is None:
                self._async = AsyncLedger(self._ledger)
        return await self._async.call(work)


class TurnledgerSaver(BaseCheckpointSaver[int]):
    """A LangGraph checkpointer over a ledger, sync and async.

        graph = builder.compile(checkpointer=TurnledgerSaver("runs.db"))

    Only classes that LangGraph calls safe, and those that the serializer was given, are made again
    from a checkpoint: `JsonPlusSerializer(allowed_msgpack_modules=[Order])`. An object of another
    class comes back as its plain data.

    Args:
        ledger: An open ledger, or its path or URL.
        serde: LangGraph's serializer. What it gives other than msgpack (encrypted bytes, say) is
            recorded in full whenever it changes.
    """

    def __init__(
        self, ledger: Ledger | str | os.PathLike[str], *, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=None))
        self.ledger = ledger if isinstance(ledger, Ledger) else shared_ledger(ledger)
        self._threads = _Threads(self.ledger)

    @contextmanager
    def thread(self, thread_id: str) -> Iterator[Thread]:
        """A thread under its lock, for the middleware."""
        thread = self._threads.find(thread_id)
        with thread.lock:
            yield thread

    # --- reading ---

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint with its writes: the one that the config names, or the newest."""
        with self._threads.locked(_thread_of(config), refreshed=True) as thread:
            entry = _entry(thread, config)
            return self._tuple(thread, entry) if entry is not None else None

    def _tuple(self, thread: Thread, entry: Entry) -> CheckpointTuple:
        checkpoint, metadata = thread.load(self.serde, entry)
        return CheckpointTuple(
            config=_config(thread.name, entry.ns, entry.id),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=_config(thread.name, entry.ns, entry.parent) if entry.parent else None,
            pending_writes=thread.writes(self.serde, entry),
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first.

        Args:
            config: The thread, and perhaps the namespace and the checkpoint; None is all threads.
            filter: Values that the metadata must have.
            before: Only checkpoints with a lower id than this one's.
            limit: How many at most.
        """
        left = limit
        for name, entry in self._listed(config, before):
            if left is not None and left <= 0:
                return
            with self._threads.locked(name) as thread:
                if filter and not _fits(thread.metadata(self.serde, entry), filter):
                    continue
                found = self._tuple(thread, entry)
            left = None if left is None else left - 1
            yield found

    def _listed(
        self, config: RunnableConfig | None, before: RunnableConfig | None
    ) -> Sequence[tuple[str, Entry]]:
        wanted: dict[str, Any] = config["configurable"] if config is not None else {}
        names = [_thread_of(config)] if config is not None else [*threads(self.ledger)]
        below = get_checkpoint_id(before) if before is not None else None
        found = []
        for name in names:
            with self._threads.locked(name, refreshed=True) as thread:
                thread.runs.complete()
                for entry in thread.runs.entries(wanted.get("checkpoint_ns")):
                    if wanted.get("checkpoint_id") not in (None, "", entry.id):
                        continue
                    if not below or entry.id < below:
                        found.append((name, entry))
        return sorted(found, key=lambda one: one[1].id, reverse=True)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes that LangGraph rebuilds delta channels from; pruned ones are read too.

        Args:
            config: The checkpoint.
            channels: The channels.
        """
        found: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        left = set(channels)
        with self._threads.locked(_thread_of(config), refreshed=True) as thread:
            entry = _entry(thread, config)
            while left and entry is not None and entry.parent is not None:
                entry = thread.runs.recorded(entry.ns, entry.parent)
                if entry is None:
                    break
                for write in reversed(thread.writes(self.serde, entry, left)):
                    found[write[1]]["writes"].append(write)
                for name in thread.runs.data(entry.run, entry.version)["values"].keys() & left:
                    found[name]["seed"] = thread.value(self.serde, entry, name)
                    left.discard(name)
        for history in found.values():
            history["writes"].reverse()
        return found

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version of a channel; that of a thread from another saver stays text."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{0:016}"
        return super().get_next_version(current, channel)

    # --- writing ---

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Record a checkpoint.

        Args:
            config: The thread, the namespace, and the parent checkpoint.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            new_versions: The channels that changed since the parent.
        """
        name, wanted = _thread_of(config), config["configurable"]
        ns = wanted.get("checkpoint_ns", "")
        above = {**(wanted.get("checkpoint_map") or {}), **(metadata.get("parents") or {})}
        rest = {key: value for key, value in checkpoint.items() if key not in _ASIDE}
        draft = Draft(
            ns=ns,
            checkpoint=checkpoint,
            parent=get_checkpoint_id(config),
            root=above.get(""),
            rest=dumped(self.serde, rest),
            metadata=dumped(self.serde, get_checkpoint_metadata(config, metadata)),
            changed=frozenset(new_versions),
        )
        with self._threads.locked(name) as thread:
            thread.put(self.serde, draft)
        return _config(name, ns, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Record what a task wrote after a checkpoint.

        Args:
            config: The checkpoint.
            writes: Channels and values.
            task_id: The task.
            task_path: Its place among the tasks of the step.
        """
        wanted = config["configurable"]
        task = {"task": task_id, "path": task_path}
        ns = wanted.get("checkpoint_ns", "")
        with self._threads.locked(_thread_of(config)) as thread:
            thread.put_writes(self.serde, ns, wanted["checkpoint_id"], writes, task)

    # --- deleting and copying ---

    def delete_thread(self, thread_id: str) -> None:
        """Mark all checkpoints of a thread as deleted: they are not found any more.

        The ledger is append-only: their records stay in it.
        """
        with self._threads.locked(str(thread_id), refreshed=True) as thread:
            thread.remove(None)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Mark the checkpoints of LangGraph's runs as deleted, in all threads; records stay."""
        wanted = {str(one) for one in run_ids}
        for name in threads(self.ledger) if wanted else ():
            with self._threads.locked(name, refreshed=True) as thread:
                thread.runs.complete()
                ids: dict[str, list[str]] = {}
                for entry in thread.runs.entries(None):
                    if str(thread.metadata(self.serde, entry).get("run_id")) in wanted:
                        ids.setdefault(entry.ns, []).append(entry.id)
                if ids:
                    thread.remove(ids)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Mark checkpoints as deleted; their records stay.

        Args:
            thread_ids: The threads.
            strategy: "keep_latest" keeps the newest of each namespace, "delete" none.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError(
                f"Invalid strategy {short_repr(strategy)}: expected 'keep_latest' or 'delete'."
            )
        for name in thread_ids:
            if strategy == "delete":
                self.delete_thread(name)
                continue
            with self._threads.locked(str(name), refreshed=True) as thread:
                thread.runs.complete()
                ids: dict[str, list[str]] = {}
                for entry in thread.runs.entries(None):
                    ids.setdefault(entry.ns, []).append(entry.id)
                for some in ids.values():
                    some.remove(max(some))
                if any(ids.values()):
                    thread.remove(ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread: each of its runs is forked at its end, and nothing is stored twice.

        Args:
            source_thread_id: The thread to copy.
            target_thread_id: The copy.
        """
        target = str(target_thread_id)
        with self._threads.locked(str(source_thread_id), refreshed=True) as thread:
            for run in thread.runs.runs.values():
                main = run_id_for(target)
                is_main = run.run == thread.runs.main and not self.ledger.head(main)
                self.ledger.fork(
                    run.run,
                    self.ledger.head(run.run),
                    child=main if is_main else None,
                    tags=tags_of(target, is_main=is_main),
                )

    # --- async: the same on a pool of threads ---

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await self._threads.call(partial(self.get_tuple, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`.

        Args:
            config: The thread, and perhaps the namespace and the checkpoint; None is all threads.
            filter: Values that the metadata must have.
            before: Only checkpoints with a lower id than this one's.
            limit: How many at most.
        """
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await self._threads.call(lambda: next(found, None))) is not None:
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`.

        Args:
            config: The checkpoint.
            channels: The channels.
        """
        work = partial(self.get_delta_channel_history, config=config, channels=channels)
        return await self._threads.call(work)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`.

        Args:
            config: The thread, the namespace, and the parent checkpoint.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            new_versions: The channels that changed since the parent.
        """
        work = partial(self.put, config, checkpoint, metadata, new_versions)
        return await self._threads.call(work)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`.

        Args:
            config: The checkpoint.
            writes: Channels and values.
            task_id: The task.
            task_path: Its place among the tasks of the step.
        """
        await self._threads.call(partial(self.put_writes, config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._threads.call(partial(self.delete_thread, thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await self._threads.call(partial(self.delete_for_runs, run_ids))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await self._threads.call(partial(self.prune, thread_ids, strategy=strategy))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await self._threads.call(partial(self.copy_thread, source_thread_id, target_thread_id))


def _thread_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _config(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def _entry(thread: Thread, config: RunnableConfig) -> Entry | None:
    """The checkpoint that a config names, or the newest."""
    ns = config["configurable"].get("checkpoint_ns", "")
    if checkpoint_id := get_checkpoint_id(config):
        return thread.runs.find(ns, checkpoint_id)
    return thread.runs.newest(ns)


def _fits(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(metadata.get(key) == value for key, value in wanted.items())
