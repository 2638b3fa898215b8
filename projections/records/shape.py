"""Shape of a run: one character an event, for drawing a whole run as a bar.

It is made of the records' tags alone, so no payload is decoded. An event's character never
changes: a shape that is known is extended by what was appended since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    CustomEvent,
    EvaluationFinished,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    OutputRejected,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    Record,
    ResourceSnapshotted,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    SliceEventApplied,
    StateRestored,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.ledger.arguments import check_methods, explain_arguments
from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.projections.projection import tags_of


class ShapeCharacter(NamedTuple):
    """A character of a shape, what it means, and the events that it stands for."""

    character: str
    meaning: str
    events: tuple[type[Event], ...]


# An event of a type that this program does not know: a later version wrote it.
UNKNOWN: Final = "."
# Permanent: clients draw by them. None needs an escape in JSON or HTML.
SHAPE_CHARACTERS: Final = (
    ShapeCharacter("^", "the run started", (RunStarted,)),
    ShapeCharacter("w", "a worker claimed the run", (RunClaimed,)),
    ShapeCharacter("+", "the run was resumed after an interruption", (RunResumed,)),
    ShapeCharacter("z", "the run waits for a person", (RunWaiting,)),
    ShapeCharacter("$", "the run completed", (RunCompleted,)),
    ShapeCharacter("X", "the run failed, or was parked", (RunFailed, RunParked)),
    ShapeCharacter("x", "the run was abandoned", (RunAbandoned,)),
    ShapeCharacter(
        "e",
        "an evaluation started, finished or was superseded",
        (EvaluationStarted, EvaluationFinished, EvaluationSuperseded),
    ),
    ShapeCharacter("E", "an output was rejected", (OutputRejected,)),
    ShapeCharacter("c", "a message was added or amended", (MessageAppended, ToolMessageAmended)),
    ShapeCharacter("m", "a model was called", (ModelCalled,)),
    ShapeCharacter("r", "a model replied", (ModelReplied,)),
    ShapeCharacter("M", "a model call failed", (ModelCallFailed,)),
    ShapeCharacter("t", "a tool call or a step started", (ToolCallStarted,)),
    ShapeCharacter("d", "a tool call or a step completed", (ToolCallCompleted,)),
    ShapeCharacter("T", "a tool call or a step failed", (ToolCallFailed,)),
    ShapeCharacter("?", "a call is in doubt", (ToolCallInDoubt,)),
    ShapeCharacter("q", "a person was asked to approve a call", (ApprovalRequested,)),
    ShapeCharacter("a", "a person decided about a call", (ApprovalDecided, ToolCallDecided)),
    ShapeCharacter(
        "s",
        "session state or files changed",
        (SliceEventApplied, StateRestored, ResourceSnapshotted),
    ),
    ShapeCharacter(
        "k",
        "a checkpoint was reached, stored or cleared",
        (CheckpointReached, CheckpointStored, CheckpointCleared),
    ),
    ShapeCharacter(
        "p",
        "a prompt's override or tag changed",
        (PromptOverrideSet, PromptOverrideCleared, PromptTagMoved),
    ),
    ShapeCharacter("u", "an event of the user's own", (CustomEvent,)),
    ShapeCharacter(UNKNOWN, "an event that this program does not know", ()),
)
"""The characters of a shape, by what they mean. A capital letter is a failure."""
# Bytes that a kept shape takes beside its characters.
_OVERHEAD: Final = 512
_BY_TAG: Final = {
    tag: entry.character for entry in SHAPE_CHARACTERS for tag in tags_of(*entry.events)
}


def character_of(tag: str) -> str:
    """The character of an event, by its tag."""
    return _BY_TAG.get(tag, UNKNOWN)


class Shape(msgspec.Struct, frozen=True):
    """One character for each event of a run, in order; `SHAPE_CHARACTERS` is the legend.

    The character of version N is `text[N - 1]`. A fork's shape begins with its parent's.
    """

    run_id: str
    text: str
    # Of the last event: it tells whether a run still begins with these events.
    digest: str

    @property
    def version(self) -> int:
        """The version of the last event that it has."""
        return len(self.text)


@explain_arguments
def shape(ledger: Ledger, run_id: RunId, known: Shape | None = None) -> Shape:
    """The shape of a run: one character an event, by the kind of event.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        known: An earlier shape of the same run: only what was appended since is read. If the
            run does not begin with the same events any more, all of it is read.
    """
    run = canonical_id(run_id)
    if known is None or not known.text:
        return _extended(Shape(run, "", ""), ledger.read(run))
    if known.run_id != run:
        raise InvalidInputError(
            f"Invalid known shape: it is of run {known.run_id}, expected one of run {run}."
        )
    records = ledger.read(run, known.version - 1)
    last = next(records, None)
    if last is None or last.digest != known.digest:
        return _extended(Shape(run, "", ""), ledger.read(run))
    return _extended(known, records)


def _extended(known: Shape, records: Iterable[Record]) -> Shape:
    last: Record | None = None
    found = []
    for last in records:
        found.append(character_of(last.tag))
    return known if last is None else Shape(known.run_id, known.text + "".join(found), last.digest)


@check_methods()
class Shapes:
    """Cache of shapes for many readers: each run is read once, and then only what is new.

    Thread-safe. The shapes that were asked for last are kept.

    Args:
        ledger: The ledger that has the runs.
        max_bytes: How much memory the kept shapes may take together, about a byte an event.
    """

    def __init__(self, ledger: Ledger, *, max_bytes: int = 32 * 1024 * 1024) -> None:
        self._ledger = ledger
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[str, Shape] = OrderedDict()
        self._bytes = 0
        # Readers of the same run take turns, so that one reads and the others extend. A few locks
        # are enough: two runs that share one wait for each other at worst.
        self._turns = tuple(Lock() for _ in range(64))

    def of(self, run_id: RunId) -> Shape:
        """The shape of a run as it is now."""
        run = canonical_id(run_id)
        with self._turns[hash(run) % len(self._turns)]:
            with self._lock:
                known = self._kept.get(run)
            found = shape(self._ledger, run, known)
            self._keep(found)
        return found

    def _keep(self, found: Shape) -> None:
        with self._lock:
            before = self._kept.pop(found.run_id, None)
            self._bytes += _size(found) - (_size(before) if before else 0)
            self._kept[found.run_id] = found
            while self._bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= _size(dropped)


def _size(found: Shape) -> int:
    return _OVERHEAD + found.version
