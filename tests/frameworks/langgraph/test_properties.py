"""The saver against LangGraph's own in memory: any course of calls gives the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import INTERRUPT, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Send

from turnledger.langgraph import TurnledgerSaver
from turnledger.ledger import Ledger

NAMESPACES = ("", "child:1", "child:1|grandchild:2")
CHANNELS = ("messages", "notes", "nested", "one")
THREADS = ("t", "another")

messages = st.builds(
    lambda kind, text, number: kind(text, number),
    st.sampled_from(
        [
            lambda text, number: HumanMessage(text, id=f"h{number}"),
            lambda text, number: AIMessage(text, id=f"a{number}"),
            lambda text, number: ToolMessage(text, tool_call_id=str(number), id=f"t{number}"),
        ]
    ),
    st.sampled_from(["", "short", "long " * 40]),
    st.integers(0, 5),
)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2),
    st.sampled_from([0.0, -0.0, 1.0, float("inf")]),
    st.sampled_from(["", "$at", "text", "text " * 50]),
    st.sampled_from([b"", b"\x00\xff", UUID(int=7), datetime(2026, 1, 1, tzinfo=UTC)]),
    st.sampled_from([{}, {"$list": [1, "values"], "keep": 3}, {1: 2, None: "x"}, {"a": [1, 2]}]),
)
items = st.one_of(messages, plain)
# A change of a list: keep so many of its first items, then add these.
changes = st.tuples(st.sampled_from([40, 40, 40, 6, 2, 0]), st.lists(items, max_size=12))
channel_changes = st.dictionaries(st.sampled_from(CHANNELS), changes, min_size=1, max_size=3)
backs = st.sampled_from([0, 0, 0, 0, 1, 2, 3, None])
queries = st.fixed_dictionaries(
    {
        "ns": st.sampled_from((None, *NAMESPACES)),
        "step": st.none() | st.integers(0, 2),
        "before": st.none() | st.integers(0, 30),
        "limit": st.none() | st.integers(0, 4),
    }
)
puts = st.tuples(
    st.just("put"),
    st.sampled_from(("t", "t", "t", "another")),
    st.sampled_from(("", "", "", *NAMESPACES)),
    backs,
    channel_changes,
    st.integers(0, 2),
)
writes = st.tuples(
    st.just("write"),
    st.sampled_from(("t", "t", "t", "another")),
    st.sampled_from(("", "", "", *NAMESPACES)),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.lists(st.tuples(st.sampled_from((*CHANNELS, INTERRUPT)), items), max_size=3),
    st.integers(0, 1),
)
removals = st.one_of(
    st.tuples(st.just("prune"), st.sampled_from(THREADS), st.just("keep_latest")),
    st.tuples(st.just("delete_runs"), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.sampled_from(THREADS)),
)
lists = st.tuples(st.just("list"), st.sampled_from(THREADS), queries)
operations = st.sampled_from(
    [puts] * 8 + [writes] * 4 + [lists] * 2 + [removals, st.tuples(st.just("forget"))]
).flatmap(lambda chosen: chosen)


class Both:
    """The two savers, and the checkpoints that they were given."""

    def __init__(self, ledger: Ledger, *, asynchronous: bool) -> None:
        self.ledger = ledger
        self.asynchronous = asynchronous
        self.ours = TurnledgerSaver(ledger)
        self.theirs = InMemorySaver()
        self.numbers = count(1)
        # By thread and namespace: id, values, versions of every checkpoint that is there.
        self.there: dict[tuple[str, str], list[tuple[str, Any, Any]]] = {}

    def call(self, name: str, *args: Any, **more: Any) -> Any:
        """A method of our saver, as it is or its async twin."""
        if not self.asynchronous:
            return getattr(self.ours, name)(*args, **more)
        return asyncio.run(getattr(self.ours, f"a{name}")(*args, **more))

    def listed(self, *args: Any, **more: Any) -> list[CheckpointTuple]:
        if not self.asynchronous:
            return list(self.ours.list(*args, **more))

        async def collected() -> list[CheckpointTuple]:
            return [one async for one in self.ours.alist(*args, **more)]

        return asyncio.run(collected())

    def where(self, thread: str, ns: str | None, checkpoint_id: str | None = None) -> Any:
        found: dict[str, Any] = {"thread_id": thread}
        if ns is not None:
            found["checkpoint_ns"] = ns
        if checkpoint_id is not None:
            found["checkpoint_id"] = checkpoint_id
        return {"configurable": found}

    # --- operations ---

    def put(self, thread: str, ns: str, back: int | None, changed: Any, run: int) -> None:
        known = self.there.setdefault((thread, ns), [])
        parent = known[-1 - back] if back is not None and back < len(known) else None
        before, versions = (parent[1], parent[2]) if parent is not None else ({}, {})
        number = next(self.numbers)
        values = dict(before)
        for name, (keep, more) in changed.items():
            kept = values.get(name, [])
            if name == "nested" and isinstance(kept, dict):
                kept = kept["list"]
            if name == "one":
                values[name] = more[0] if more else None
                continue
            together = [*kept[:keep], *more] if isinstance(kept, list) else more
            values[name] = {"list": together, "send": Send("n", {"m": together[:6]})}
            if name != "nested":
                values[name] = together
        new = dict.fromkeys(changed, number)
        checkpoint_id = f"{number:04}"
        checkpoint = {
            "v": 1,
            "id": checkpoint_id,
            "ts": "now",
            "channel_values": values,
            "channel_versions": {**versions, **new},
            "versions_seen": {},
            "updated_channels": sorted(new),
        }
        metadata: dict[str, Any] = {"source": "loop", "step": number % 3, "run_id": str(run)}
        roots = self.there.get((thread, ""), [])
        if ns and len(roots) > run:
            metadata["parents"] = {"": roots[-1 - run][0]}  # of one of the last branches
        where = self.where(thread, ns, parent[0] if parent is not None else None)
        self.theirs.put(where, checkpoint, metadata, new)  # type: ignore[arg-type]
        self.call("put", where, checkpoint, metadata, new)
        known.append((checkpoint_id, values, checkpoint["channel_versions"]))

    def write(self, thread: str, ns: str, back: int, writes: Any, task: int) -> None:
        known = self.there.get((thread, ns), [])
        if back < len(known):
            where = self.where(thread, ns, known[-1 - back][0])
            self.theirs.put_writes(where, writes, str(task), f"path {-task}")
            self.call("put_writes", where, writes, str(task), f"path {-task}")

    def list(self, thread: str, query: Any) -> None:
        more: dict[str, Any] = {"limit": query["limit"]}
        if query["step"] is not None:
            more["filter"] = {"step": query["step"], "source": "loop"}
        if query["before"] is not None:
            more["before"] = self.where(thread, None, f"{query['before']:04}")
        ns = query["ns"]
        if ns is None:
            del more["limit"]  # theirs are by namespace, and it is not told which come first
        where = self.where(thread, ns)
        ours, theirs = self.listed(where, **more), list(self.theirs.list(where, **more))
        if ns is None:
            theirs.sort(key=lambda one: one.checkpoint["id"], reverse=True)
        assert [plainly(one) for one in ours] == [plainly(one) for one in theirs]

    def prune(self, thread: str, strategy: str) -> None:
        self.call("prune", [thread], strategy=strategy)
        for (of, _), known in self.there.items():
            if of == thread:
                self._gone(of, known, lambda one, known=known: one != known[-1][0])

    def delete_runs(self, run: int) -> None:
        self.call("delete_for_runs", [str(run)])
        for (thread, ns), known in self.there.items():
            stored = self.theirs.storage[thread][ns]
            self._gone(
                thread,
                known,
                lambda one, stored=stored: (
                    self.theirs.serde.loads_typed(stored[one][1])["run_id"] == str(run)
                ),
            )

    def _gone(self, thread: str, known: Any, is_gone: Callable[[str], bool]) -> None:
        gone = {one for one, *_ in known if is_gone(one)}
        known[:] = [one for one in known if one[0] not in gone]
        for stored in self.theirs.storage[thread].values():
            for one in gone & stored.keys():
                del stored[one]

    def delete(self, thread: str) -> None:
        self.theirs.delete_thread(thread)
        self.call("delete_thread", thread)
        for (of, _), known in self.there.items():
            if of == thread:
                known.clear()

    def forget(self) -> None:
        """A new process: nothing is known but what the ledger has."""
        self.ours = TurnledgerSaver(self.ledger)

    def agree(self) -> None:
        for (thread, ns), known in self.there.items():
            for checkpoint_id in (None, *(one for one, *_ in known)):
                where = self.where(thread, ns, checkpoint_id)
                ours, theirs = self.call("get_tuple", where), self.theirs.get_tuple(where)
                assert plainly(ours) == plainly(theirs)


def plainly(found: CheckpointTuple | None) -> Any:
    """A tuple as text: 1, 1.0 and True are equal to Python."""
    if found is None:
        return None
    return {
        "config": found.config,
        "parent": found.parent_config,
        "checkpoint": {name: repr(value) for name, value in sorted(found.checkpoint.items())}
        | {"channel_values": repr(sorted(found.checkpoint["channel_values"].items()))},
        "metadata": found.metadata,
        "writes": repr(found.pending_writes),
    }


@given(st.lists(operations, min_size=10, max_size=40))
@settings(max_examples=30)
def test_any_course_of_calls_gives_the_same(course: list[Any]) -> None:
    """Branches, namespaces, writes, pruning, deleting, listing: as InMemorySaver, cold and warm."""
    _check(course, asynchronous=False)


@given(st.lists(operations, min_size=5, max_size=20))
@settings(max_examples=10)
def test_any_course_of_awaited_calls_gives_the_same(course: list[Any]) -> None:
    """The same through the async methods."""
    _check(course, asynchronous=True)


def test_equal_is_not_the_same() -> None:
    """1, True and 1.0 are equal to Python, and each comes back as it was."""
    alike = [[one] * 8 for one in (1, True, 1.0, 1)]
    course = [("put", "t", "", 0, {"notes": (0, some)}, 0) for some in alike]
    _check(course, asynchronous=False)


def _check(course: list[Any], *, asynchronous: bool) -> None:
    with Ledger.open("memory://") as ledger:
        both = Both(ledger, asynchronous=asynchronous)
        for name, *args in course:
            getattr(both, name)(*args)
        both.agree()
        both.forget()
        both.agree()
        assert ledger.verify_all().ok
