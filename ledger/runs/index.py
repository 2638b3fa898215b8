"""The run index: one row for each run, derived from its events alone.

It is written in the append's own transaction, so it never lags, and can be rebuilt from the
events at any time. It serves listings, the version that an append goes on from, and epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from turnledger.ledger.clock import to_datetime
from turnledger.ledger.errors import EventDecodeError, IntegrityFailureError
from turnledger.ledger.events.chain import GENESIS, UUID_TEXT
from turnledger.ledger.events.types import (
    AGENT_TAG,
    EVENT_TYPES,
    PROMPT_TAGS,
    ApprovalDecided,
    EvaluationStarted,
    Event,
    PromptEvent,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunKind,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallDecided,
)
from turnledger.ledger.runs.names import UNQUEUED_TAGS
from turnledger.ledger.runs.record import Columns

# What a row of the index is about: a run, or the stream of a prompt's overrides.
StreamKind: TypeAlias = RunKind | Literal["prompt"]
PROMPT: StreamKind = "prompt"
RunStatus = Literal["running", "waiting", "completed", "failed", "parked", "abandoned"]

_STATUS: Mapping[type[Event], RunStatus] = {
    RunResumed: "running",
    RunWaiting: "waiting",
    ToolCallDecided: "running",
    ApprovalDecided: "running",
    RunCompleted: "completed",
    RunFailed: "failed",
    RunParked: "parked",
    RunAbandoned: "abandoned",
}
INDEXED_TAGS = PROMPT_TAGS.union(
    kind.tag for kind in (RunStarted, RunClaimed, EvaluationStarted, *_STATUS)
)


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A run's row: its head, status and origin. Times are microseconds since 1970."""

    run_id: str
    version: int = 0
    digest: bytes = GENESIS
    recorded_at: int = 0
    epoch: int = 0
    status: RunStatus = "running"
    started_at: int = 0
    prompt: str = ""
    kind: StreamKind = "run"
    parent: str | None = None
    parent_version: int = 0
    tags: str = "{}"

    @property
    def length(self) -> int:
        """How many own records the run has; 0 if the row is damaged."""
        numbers: tuple[Any, Any] = (self.version, self.parent_version)
        return numbers[0] - numbers[1] if all(isinstance(n, int) for n in numbers) else 0

    @property
    def tag_map(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self.tags, type=dict[str, str])
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise damaged(self.run_id, error) from error


_NUMBERS = ("version", "recorded_at", "epoch", "started_at", "parent_version")
_TYPES: Mapping[str, type | UnionType] = {
    **dict.fromkeys(RunRow.__struct_fields__, str),
    **dict.fromkeys(_NUMBERS, int),
    "digest": bytes,
    "parent": str | None,
}


def damaged(run_id: object, why: object) -> IntegrityFailureError:
    """The error for a row of the index that no append can have written."""
    return IntegrityFailureError(
        f"The index's row of run {run_id!s:.80} is damaged: {why}. Run `turnledger verify`; "
        "`turnledger rebuild-index` rebuilds the index from the events."
    )


def list_key(value: Any) -> tuple[int, Any]:
    """A key that orders values of any type as SQLite does: numbers, text, bytes, the others."""
    if isinstance(value, int):
        return 0, value
    if isinstance(value, str):
        return 1, value
    return (2, value) if isinstance(value, bytes) else (3, repr(value))


def place_of(row: RunRow) -> tuple[Any, Any]:
    """Where a row stands in a listing; in a damaged index, whatever types it has."""
    return list_key(row.started_at), list_key(row.run_id)


def check_types(row: RunRow, *names: str) -> None:
    """IntegrityFailureError if a column, of `names` or of all, has a type that no append writes."""
    for name in names or row.__struct_fields__:
        value = getattr(row, name)
        if not isinstance(value, _TYPES[name]):
            raise damaged(row.run_id, f"{name} is {value!r:.80}")


def is_work(row: RunRow, agents: Collection[str]) -> bool:
    """Whether a run is one that workers of these agents may take, if no lease of it counts.

    Prompts are completed, and a fork that was never run waits for a person.
    """
    if row.status != "running" or (row.kind == "fork" and not row.epoch):
        return False
    tags = row.tag_map
    return tags.get(AGENT_TAG) in agents and not any(tag in tags for tag in UNQUEUED_TAGS)


def tag_text(key: str, value: str | None = None) -> str:
    """What a row's `tags` hold as text if the run has this tag, with any value or this one.

    It is exact: within a key or a value, quotes are escaped.
    """
    end = "" if value is None else msgspec.json.encode(value).decode()
    return f"{msgspec.json.encode(key).decode()}:{end}"


def child_of(run_id: str, parent_digest: bytes, recorded_at: int, started: RunStarted) -> RunRow:
    """The row of a fork or continuation before its first own event."""
    return RunRow(
        run_id,
        version=started.at,
        digest=parent_digest,
        recorded_at=recorded_at,
        kind=started.kind,
        parent=str(started.parent),
        parent_version=started.at,
    )


def evolve(row: RunRow, event: Event) -> RunRow:
    """What an event changes in its run's row, but for version, digest and time."""
    if isinstance(event, RunStarted):
        named = {**event.tags, AGENT_TAG: event.agent} if event.agent else event.tags
        tags = msgspec.json.encode(dict(sorted(named.items()))).decode()
        return msgspec.structs.replace(row, tags=tags, status="running")
    if isinstance(event, RunClaimed):
        return msgspec.structs.replace(row, epoch=event.epoch)
    if isinstance(event, EvaluationStarted):
        return msgspec.structs.replace(row, prompt=f"{event.prompt_ns}/{event.prompt_key}")
    if isinstance(event, PromptEvent):
        # Completed: whatever lists work that is left to do never finds it.
        prompt = f"{event.prompt_ns}/{event.prompt_key}"
        return msgspec.structs.replace(row, kind=PROMPT, prompt=prompt, status="completed")
    if isinstance(event, ToolCallDecided | ApprovalDecided) and row.status != "waiting":
        return row
    return msgspec.structs.replace(row, status=_STATUS[type(event)])


def advance(
    row: RunRow, events: Iterable[Event], version: int, digest: bytes, recorded_at: int
) -> RunRow:
    """The row after a commit.

    Args:
        row: The row before.
        events: Those of the commit that change the index.
        version: The run's version now.
        digest: The last event's.
        recorded_at: The commit's time.
    """
    # By its version, not by its time, which may be anything in a ledger that was tampered with.
    started_at = recorded_at if row.version == row.parent_version else row.started_at
    for event in events:
        row = evolve(row, event)
    return RunRow(
        row.run_id,
        version,
        digest,
        recorded_at,
        row.epoch,
        row.status,
        started_at,
        row.prompt,
        row.kind,
        row.parent,
        row.parent_version,
        row.tags,
    )


def _indexed(tag: str, data: str, decode: Callable[[str, str], Event]) -> Event | None:
    """The event if it changes the index; that of a retired tag may, by its successor."""
    if tag in EVENT_TYPES and tag not in INDEXED_TAGS:
        return None
    event = decode(tag, data)
    return event if event.tag in INDEXED_TAGS else None


class Loss(NamedTuple):
    """Records of a run that the index names and that are missing."""

    run_id: str
    # The version and epoch by the index, and those by the last record that there is.
    version: int
    epoch: int
    last: int
    last_epoch: int

    def __str__(self) -> str:
        lost = "version" if self.version == self.last + 1 else f"versions {self.last + 1} to"
        return f"run {self.run_id}: {lost} {self.version} missing, by the index"


class RebuiltIndex(NamedTuple):
    """The run index as the records make it.

    Of `kept` runs the row in the index stays as it is: it names records that are `lost`, or the
    run is `unreadable`, for a reason. `accepted` losses are in `rows`, lowered to what there is.
    """

    rows: list[RunRow]
    kept: frozenset[str]
    lost: list[Loss]
    accepted: list[Loss]
    unreadable: dict[str, str]


# By run, version and epoch in the index: of any type, if the index was damaged.
Heads: TypeAlias = Mapping[str, tuple[Any, Any]]


def rebuilt_index(
    rows: Iterable[Columns],
    decode: Callable[[str, str], Event],
    heads: Heads,
    accept: Collection[str] = (),
) -> RebuiltIndex:
    """The index from all records, without repairing in silence what shows that some are lost.

    Args:
        rows: All records in the ledger's order.
        decode: Decodes an event.
        heads: The index as it is.
        accept: Runs whose loss is accepted.
    """
    unreadable: dict[str, str] = {}
    index = fold_index(rows, decode, unreadable)
    lost, accepted = list[Loss](), list[Loss]()
    for run_id, (version, epoch) in heads.items():
        found = index.get(run_id) or RunRow(run_id)
        if not isinstance(version, int) or version <= found.version or run_id in unreadable:
            continue
        if not UUID_TEXT.fullmatch(run_id):
            continue  # never written by an append
        known = epoch if isinstance(epoch, int) else found.epoch
        loss = Loss(run_id, version, known, found.version, found.epoch)
        (accepted if run_id in accept else lost).append(loss)
    kept = frozenset([loss.run_id for loss in lost]) | unreadable.keys()
    return RebuiltIndex(
        [row for row in index.values() if row.run_id not in kept],
        frozenset(kept),
        lost,
        accepted,
        unreadable,
    )


def fold_index(
    rows: Iterable[Columns], decode: Callable[[str, str], Event], unreadable: dict[str, str]
) -> dict[str, RunRow]:
    """The rows by run, from all records in the ledger's order.

    A run with a record that can't be read is in `unreadable`, with the reason.
    """
    index: dict[str, RunRow] = {}
    for _, run_id, version, tag, _, recorded_at, digest, data in rows:
        is_first = run_id not in index
        row = index.get(run_id) or RunRow(run_id)
        try:
            event = _indexed(tag, data, decode)
        except (EventDecodeError, IntegrityFailureError) as error:
            unreadable.setdefault(run_id, f"run {run_id}, version {version}: {error}")
            event = None
        # A later one was forged: taken for its origin, it could make a run its own ancestor.
        if is_first and isinstance(event, RunStarted) and event.parent is not None:
            row = child_of(run_id, digest, recorded_at, event)
        events = () if event is None else (event,)
        index[run_id] = advance(row, events, version, digest, recorded_at)
    return index


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run's entry in the index. `agent` is the name of the agent that it belongs to, or ""."""

    run_id: UUID
    version: int
    digest: str
    status: RunStatus
    epoch: int
    prompt: str
    tags: dict[str, str]
    kind: StreamKind
    parent: UUID | None
    parent_version: int
    started_at: datetime
    updated_at: datetime
    agent: str = ""


def describe(row: RunRow) -> RunInfo:
    """The row in the types that users work with."""
    check_types(row)
    tags = row.tag_map
    try:
        return _described(row, tags)
    except (AttributeError, TypeError, ValueError, IntegrityFailureError) as error:
        raise damaged(row.run_id, error) from error


def _described(row: RunRow, tags: dict[str, str]) -> RunInfo:
    agent = tags.pop(AGENT_TAG, "")
    return RunInfo(
        run_id=UUID(row.run_id),
        version=row.version,
        digest=row.digest.hex(),
        status=row.status,
        epoch=row.epoch,
        prompt=row.prompt,
        tags=tags,
        kind=row.kind,
        parent=UUID(row.parent) if row.parent else None,
        parent_version=row.parent_version,
        started_at=to_datetime(row.started_at),
        updated_at=to_datetime(row.recorded_at),
        agent=agent,
    )
