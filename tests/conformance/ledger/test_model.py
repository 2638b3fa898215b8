"""A machine that does anything to a ledger, against a model of plain dicts and lists.

Whatever Hypothesis makes of appends, retries, races, forks, claims, reads and reopened
handles, every surface answers as the model does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import message, note
from tests.conformance.surfaces import surface_names, surface_under_test
from tests.soaking import rounds
from turnledger.ledger import (
    ANY,
    NEW,
    Claim,
    ConcurrentAppendError,
    Draft,
    EvaluationStarted,
    Event,
    EventIdConflictError,
    ForkPointError,
    InvalidEventError,
    RunClaimed,
    RunClaimedError,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunWaiting,
    StaleEpochError,
    ToolCallDecided,
    TurnledgerError,
    new_run_id,
)

# How many lives `make test` has time for; opening and closing costs more on some.
LIVES = {"memory": 60, "sqlite": 30, "postgres": 15}
OTHER_LIVES = 6
HOUR = timedelta(hours=1)
SOON = timedelta(0)
FREE = ("custom", "tool_call.decided")
PALETTE: list[Event] = [
    note(1),
    note(2, text="🦜"),
    message("hi"),
    RunWaiting(reason="?"),
    ToolCallDecided(call_id="c", decision="retry"),
    RunCompleted(output=[1]),
    RunFailed(error_type="E", error_message="m"),
    RunResumed(attempt=1, from_version=1),
    EvaluationStarted(evaluation_id="e", prompt_ns="ns", prompt_key="k", prompt_digest="d"),
]
STATUS = {
    "run.waiting": "waiting",
    "run.completed": "completed",
    "run.failed": "failed",
    "run.resumed": "running",
}
number = st.sampled_from(range(60))
batches = st.lists(st.sampled_from(PALETTE), min_size=1, max_size=3)


@dataclass
class Fact:
    """What the model knows of one record."""

    run: UUID
    version: int
    event_id: UUID | None
    event: Event


@dataclass
class Lease:
    worker: str
    handle: int
    epoch: int
    over: bool


@dataclass
class Run:
    """One run of the model: its own facts, and where it came from."""

    id: UUID
    parent: Run | None = None
    at: int = 0
    kind: str = "run"
    facts: list[Fact] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    epoch: int = 0
    status: str = "running"
    prompt: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    lease: Lease | None = None

    @property
    def head(self) -> int:
        return self.at + len(self.facts)

    def line(self) -> list[Fact]:
        before = self.parent.line()[: self.at] if self.parent is not None else []
        return before + self.facts

    def ends_a_commit(self, version: int) -> bool:
        if version <= self.at:
            assert self.parent is not None
            return self.parent.ends_a_commit(version)
        return version in self.ends


class Machine(RuleBasedStateMachine):
    """Drives one surface; `surface_name` is set by a subclass."""

    surface_name: str

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(TemporaryDirectory()))
        self.surface = self.stack.enter_context(surface_under_test(self.surface_name, folder))
        self.opened = 0
        self.handles: list[tuple[int, LedgerLike]] = [self._open(), self._open()]
        self.runs: list[Run] = []
        self.log: list[Fact] = []
        self.batches: list[tuple[Run, list[Draft], tuple[Any, ...]]] = []
        self.claims: list[tuple[int, Claim, Run, timedelta]] = []

    def teardown(self) -> None:
        try:
            self.everything_is_as_the_model_says()
        finally:
            self.stack.close()

    # --- the model's own moves ---

    def _open(self) -> tuple[int, LedgerLike]:
        self.opened += 1
        return self.opened, self.surface.open()

    def _alive(self, lease: Lease) -> bool:
        if not self.surface.lease_ends_with_process:
            return True
        return any(serial == lease.handle for serial, _ in self.handles)

    def _held(self, run: Run) -> Lease | None:
        lease = run.lease
        if lease is None or lease.over or lease.epoch != run.epoch or not self._alive(lease):
            return None
        return lease

    def _record(self, run: Run, drafts: list[Draft]) -> None:
        for event, event_id in drafts:
            fact = Fact(run.id, run.head + 1, event_id, event)
            run.facts.append(fact)
            self.log.append(fact)
            if isinstance(event, RunStarted):
                run.tags = event.tags
            elif isinstance(event, RunClaimed):
                run.epoch = event.epoch
            elif isinstance(event, EvaluationStarted):
                run.prompt = f"{event.prompt_ns}/{event.prompt_key}"
            elif isinstance(event, ToolCallDecided):
                run.status = "running" if run.status == "waiting" else run.status
            else:
                run.status = STATUS.get(event.tag, run.status)
        run.ends.add(run.head)

    def _refusal(
        self, run: Run, drafts: list[Draft], expected: object, epoch: int | None
    ) -> type[TurnledgerError] | None:
        """Which error the append deserves, ids aside."""
        if epoch is not None:
            if epoch != run.epoch:
                return StaleEpochError
        elif not all(d.event.tag in FREE for d in drafts) and self._held(run):
            return RunClaimedError
        if expected is not ANY and (0 if expected is NEW else expected) != run.head:
            return ConcurrentAppendError
        if any(isinstance(d.event, RunStarted) for d in drafts[0 if run.facts else 1 :]):
            return InvalidEventError
        return None

    # --- rules ---

    def _pick(self, at: int) -> Run:
        return self.runs[at % len(self.runs)]

    def _handle(self, at: int) -> tuple[int, LedgerLike]:
        return self.handles[at % 2]

    @initialize()
    def begin(self) -> None:
        """Two runs to begin with, one of them a fork, so that every rule has something to do."""
        self.start(1, {"a": "x"})
        self.descend(0, 2, 1, "fork")

    @precondition(lambda self: len(self.runs) < 5)
    @rule(at=number, tags=st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")))
    def start(self, at: int, tags: dict[str, str]) -> None:
        """A new run begins."""
        run = Run(new_run_id())
        drafts = [Draft(RunStarted(tags=tags), uuid4()), Draft(note(0), uuid4())]
        appended = self._handle(at)[1].append(run.id, drafts, NEW if at % 3 else 0)
        assert not appended.duplicate
        self.runs.append(run)
        self._record(run, drafts)
        self.batches.append((run, drafts, appended.records))

    @rule(at=number, hand=number, events=batches, any_version=st.booleans())
    def append_well(self, at: int, hand: int, events: list[Event], any_version: bool) -> None:
        """As a worker who knows where the run stands."""
        self.append(at, hand, events, "any" if any_version else "exact", "current")

    @rule(
        at=number,
        hand=number,
        events=batches,
        expected=st.sampled_from(["exact", "any", "new", "less", "more"]),
        epoch=st.sampled_from(["none", "none", "current", "older", "newer"]),
    )
    def append(self, at: int, hand: int, events: list[Event], expected: str, epoch: str) -> None:
        """Append with any expectation and any epoch."""
        run = self._pick(at)
        drafts = [Draft(event, uuid4()) for event in events]
        expectation: Any = {
            "exact": run.head,
            "any": ANY,
            "new": NEW,
            "less": run.head - 1,
            "more": run.head + 1,
        }[expected]
        with_epoch = {
            "none": None,
            "current": run.epoch,
            "older": run.epoch - 1,
            "newer": run.epoch + 1,
        }[epoch]
        refusal = self._refusal(run, drafts, expectation, with_epoch)

        def act() -> Any:
            return self._handle(hand)[1].append(run.id, drafts, expectation, epoch=with_epoch)

        if refusal is not None:
            self._refused(refusal, act)
            return
        appended = act()
        assert not appended.duplicate
        assert [r.version for r in appended.records] == [
            run.head + 1 + place for place in range(len(drafts))
        ]
        self._record(run, drafts)
        self.batches.append((run, drafts, appended.records))

    def _refused(self, error: type[TurnledgerError], act: Callable[[], object]) -> None:
        with pytest.raises(error) as caught:
            act()
        assert type(caught.value) is error

    @rule(
        at=number,
        hand=number,
        expected=st.sampled_from([ANY, NEW, 1, 5, 99]),
        epoch=st.sampled_from([None, 0, 1, 7]),
    )
    def retry(self, at: int, hand: int, expected: Any, epoch: int | None) -> None:
        """The same drafts again give the first result, whatever else is asked."""
        run, drafts, records = self.batches[at % len(self.batches)]
        again = self._handle(hand)[1].append(run.id, drafts, expected, epoch=epoch)
        assert again.duplicate
        assert again.records == records

    @rule(
        at=number,
        where=number,
        hand=number,
        how=st.sampled_from(["changed", "more", "moved", "reordered"]),
        expected=st.sampled_from([ANY, NEW, 3]),
    )
    def reuse_an_id(self, at: int, where: int, hand: int, how: str, expected: Any) -> None:
        """Known ids with anything else than their own content are a conflict."""
        run, drafts, _ = self.batches[at % len(self.batches)]
        target, batch = run.id, list(drafts)
        if how == "changed":
            batch[-1] = Draft(note(77), batch[-1].event_id)
        elif how == "more":
            batch.insert(where % (len(batch) + 1), Draft(note(1), uuid4()))
        elif how == "moved":
            target = new_run_id() if where % 2 else self._pick(where).id
            if target == run.id:
                return
            batch = [d for d in batch if not isinstance(d.event, RunStarted)] or batch
        elif len(batch) > 1:
            batch.reverse()
        else:
            return
        self._refused(
            EventIdConflictError, lambda: self._handle(hand)[1].append(target, batch, expected)
        )

    @rule(at=number, first=number)
    def race(self, at: int, first: int) -> None:
        """Two handles at the same version: the first wins, the second is told."""
        run = self._pick(at)
        winner, loser = self._handle(first)[1], self._handle(first + 1)[1]
        version = run.head
        won, lost = [Draft(note(first), uuid4())], [Draft(note(first), uuid4())]
        records = winner.append(run.id, won, version).records
        with pytest.raises(ConcurrentAppendError) as caught:
            loser.append(run.id, lost, version)
        assert (caught.value.expected, caught.value.found) == (version, version + 1)
        self._record(run, won)
        self.batches.append((run, won, records))

    @precondition(lambda self: len(self.runs) < 8)
    @rule(
        at=number,
        version=number,
        hand=number,
        kind=st.sampled_from(["fork", "continuation", "turn"]),
    )
    def descend(self, at: int, version: int, hand: int, kind: str) -> None:
        """A fork, a continuation or a chat turn, at any version, also beyond the end."""
        parent = self._pick(at)
        version = version % (parent.head + 2)
        _, ledger = self._handle(hand)

        def act() -> UUID:
            if kind == "fork":
                return ledger.fork(parent.id, version, tags={"a": "f"})
            if kind == "continuation":
                return ledger.continuation(parent.id, at=version, tags={"a": "f"})
            child = new_run_id()
            turn = RunStarted(parent=parent.id, at=version, kind="turn", tags={"a": "f"})
            ledger.append(child, turn, NEW)
            return child

        if version == 0:
            self._refused(InvalidEventError, act)
            return
        if version > parent.head or not parent.ends_a_commit(version):
            self._refused(ForkPointError, act)
            return
        child = Run(act(), parent=parent, at=version, kind=kind)
        self.runs.append(child)
        begin = RunStarted(parent=parent.id, at=version, kind=kind, tags={"a": "f"})  # type: ignore[arg-type]
        self._record(child, [Draft(begin, None)])  # type: ignore[arg-type]

    @rule(
        at=number,
        hand=number,
        worker=st.sampled_from(["ann", "bob"]),
        ttl=st.sampled_from([HOUR, HOUR, SOON]),
    )
    def claim(self, at: int, hand: int, worker: str, ttl: timedelta) -> None:
        """Taken if it is free or one's own; refused if a living worker has it."""
        run = self._pick(at)
        serial, ledger = self._handle(hand)
        held = self._held(run)
        if held is not None and (held.worker, held.handle) != (worker, serial):
            self._refused(RunClaimedError, lambda: ledger.claim(run.id, worker=worker, ttl=ttl))
            return
        claim = ledger.claim(run.id, worker=worker, ttl=ttl)
        if held is None:
            event = RunClaimed(worker=worker, epoch=run.epoch + 1)
            self._record(run, [Draft(event, None)])  # type: ignore[arg-type]
        assert (claim.epoch, claim.version) == (run.epoch, run.head)
        run.lease = Lease(worker, serial, run.epoch, over=ttl == SOON)
        self.claims.append((serial, claim, run, ttl))

    @precondition(lambda self: self.claims)
    @rule(at=number, hand=number, events=batches, take=st.booleans())
    def intrude(self, at: int, hand: int, events: list[Event], take: bool) -> None:
        """Somebody, perhaps the worker itself, comes to a run that was claimed."""
        run = self.runs.index(self.claims[at % len(self.claims)][2])
        if take:
            self.claim(run, hand, "bob", HOUR)
        else:
            self.append(run, hand, events, "any", "none")

    @precondition(lambda self: self.claims)
    @rule(at=number)
    def heartbeat(self, at: int) -> None:
        """Prolongs the lease of whoever still has the run."""
        serial, claim, run, ttl = self.claims[at % len(self.claims)]
        lease = run.lease
        if lease is None or run.epoch != claim.epoch or lease.handle != serial:
            self._refused(StaleEpochError, claim.heartbeat)
            return
        claim.heartbeat()
        lease.over = ttl == SOON

    @precondition(lambda self: self.claims)
    @rule(at=number)
    def release(self, at: int) -> None:
        """Drops the claim's own lease, and is harmless otherwise."""
        serial, claim, run, _ = self.claims[at % len(self.claims)]
        claim.release()
        lease = run.lease
        if lease is not None and (lease.epoch, lease.handle) == (claim.epoch, serial):
            run.lease = None

    @rule(hand=number)
    def reopen(self, hand: int) -> None:
        """A handle is closed and another opened; what it had claimed is free, or stays claimed."""
        serial, ledger = self._handle(hand)
        ledger.close()
        self.handles[hand % 2] = self._open()
        self.claims = [claim for claim in self.claims if claim[0] != serial]

    @rule(
        at=number,
        hand=number,
        after=st.integers(-1, 12),
        until=st.none() | st.integers(-1, 12),
        backwards=st.booleans(),
        page=st.integers(1, 4),
    )
    def read(
        self, at: int, hand: int, after: int, until: int | None, backwards: bool, page: int
    ) -> None:
        """Any range, either way, in pages of any size."""
        run = self._pick(at)
        end = run.head if until is None else until
        wanted = [fact for fact in run.line() if after < fact.version <= end]
        records = self._handle(hand)[1].read(
            run.id, after, until, backwards=backwards, page_size=page
        )
        assert_facts(list(records), wanted[::-1] if backwards else wanted)

    @rule(
        hand=number,
        status=st.sampled_from([None, "running", "waiting", "completed"]),
        tag=st.sampled_from([None, ("a", "x"), ("a", None), ("b", "y")]),
        page=st.integers(1, 5),
    )
    def list_runs(
        self, hand: int, status: Any, tag: tuple[str, str | None] | None, page: int
    ) -> None:
        """Filtered and in pages."""
        infos = list(
            self._handle(hand)[1].runs(
                status=status, tags=dict([tag]) if tag else None, page_size=page
            )
        )
        wanted = [
            run
            for run in self.runs
            if status in (None, run.status)
            and (tag is None or (tag[0] in run.tags and tag[1] in (None, run.tags[tag[0]])))
        ]
        keys = [(info.started_at, str(info.run_id)) for info in infos]
        assert keys == sorted(keys, reverse=True)
        assert {info.run_id: about(info) for info in infos} == {
            run.id: (
                run.head,
                run.status,
                run.epoch,
                run.prompt,
                run.tags,
                run.kind,
                run.parent.id if run.parent else None,
                run.at,
            )
            for run in wanted
        }

    @rule(hand=number, after=number)
    def tail(self, hand: int, after: int) -> None:
        """The whole ledger in the order of commits, from any place on."""
        ledger = self._handle(hand)[1]
        records = list(ledger.tail(page_size=3))
        assert_facts(records, self.log)
        if records:
            place = after % len(records)
            assert list(ledger.tail(records[place].position)) == records[place + 1 :]

    @rule(hand=number)
    def verify(self, hand: int) -> None:
        """Nothing that was done through the ledger is tampering."""
        assert self._handle(hand)[1].verify(self._pick(hand).id).ok
        report = self.surface.verify_all()
        assert report.problems == ()
        assert (report.runs, report.records) == (len(self.runs), len(self.log))

    @rule(hand=number)
    def rebuild(self, hand: int) -> None:
        """The index is what the events make it."""
        ledger = self._handle(hand)[1]
        before = list(ledger.runs())
        assert self.surface.rebuild_index() == len(self.runs)
        assert list(ledger.runs()) == before

    @invariant()
    def heads_are_known(self) -> None:
        """Every handle knows every head."""
        for place, run in enumerate(self.runs[-2:]):
            assert self.handles[place][1].head(run.id) == run.head

    def everything_is_as_the_model_says(self) -> None:
        for run in self.runs:
            assert_facts(list(self.handles[0][1].read(run.id)), run.line())
        self.list_runs(1, None, None, 2)
        self.tail(0, 0)
        self.verify(1)


def about(info: Any) -> tuple[Any, ...]:
    return (
        info.version,
        info.status,
        info.epoch,
        info.prompt,
        info.tags,
        info.kind,
        info.parent,
        info.parent_version,
    )


def assert_facts(records: list[Any], facts: list[Fact]) -> None:
    assert [(r.run_id, r.version, r.event) for r in records] == [
        (f.run, f.version, f.event) for f in facts
    ]
    for record, fact in zip(records, facts, strict=True):
        assert fact.event_id in (None, record.event_id)


def machine(name: str) -> type[Machine]:
    return type(f"{name.title()}Machine", (Machine,), {"surface_name": name})


@pytest.mark.parametrize("name", surface_names())
def test_a_ledger_does_what_the_model_does(name: str) -> None:
    """Dozens of lives of a ledger, the same ones every time."""
    lives = LIVES.get(name, OTHER_LIVES)
    run_state_machine_as_test(
        machine(name), settings=settings(max_examples=lives, stateful_step_count=50)
    )


@pytest.mark.soak
@pytest.mark.parametrize("name", surface_names())
def test_a_ledger_does_what_the_model_does_for_long(name: str) -> None:
    """Lives of 80 steps, other ones every time, for as long as the soak lasts."""
    for _ in rounds(share=0.02):
        run_state_machine_as_test(
            machine(name),
            settings=settings(max_examples=50, stateful_step_count=80, derandomize=False),
        )
