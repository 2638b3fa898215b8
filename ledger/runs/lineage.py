"""The lineage of a run: its own records, and its ancestors' up to the fork points.

A fork never copies its parent's events, so reading a run reads its lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple
from uuid import UUID, uuid5

from turnledger.ledger.errors import IntegrityFailureError, InvalidEventError, RunNotFoundError
from turnledger.ledger.events.types import RunStarted
from turnledger.ledger.runs.index import RunInfo, RunRow, damaged
from turnledger.ledger.runs.record import Draft

NO_END = 2**62
_VERSIONS = range(NO_END)


class Segment(NamedTuple):
    """Records of one run with after < version <= until."""

    run_id: str
    after: int
    until: int


def lineage(run_id: str, find: Callable[[str], RunRow | None]) -> list[Segment]:
    """The segments of a run, in the order in which they are read."""
    segments: list[Segment] = []
    until = NO_END
    current: str | None = run_id
    seen: set[str] = set()
    while current is not None:
        if current in seen:
            raise IntegrityFailureError(
                f"The index is damaged: in it, run {current} descends from itself. "
                "Verify the ledger, and rebuild the index."
            )
        seen.add(current)
        row = find(current)
        if row is None and current != run_id:
            raise IntegrityFailureError(
                f"Run {run_id} descends from run {current}, which is missing. Run `turnledger "
                "verify`; go on from a backup or an export."
            )
        if row is None:
            raise RunNotFoundError(current)
        if not isinstance(row.parent_version, int) or row.parent_version not in _VERSIONS:
            raise damaged(current, f"its parent_version is {row.parent_version!r:.80}")
        if row.parent_version < until:
            segments.append(Segment(current, row.parent_version, until))
            until = row.parent_version
        current = row.parent
    return segments[::-1]


def first_of_child(
    parent: RunInfo,
    at: int,
    kind: Literal["fork", "continuation"],
    child: UUID,
    tags: Mapping[str, str],
) -> Draft:
    """The first event of a run that goes on from another one.

    Its id follows from the child's: to start the same child again is a retry.

    Args:
        parent: The run to go on from.
        at: Its version to go on from.
        kind: Whether the child shares its events, or begins with its session state.
        child: The new run's id.
        tags: The new run's tags.

    Raises:
        InvalidEventError: No run has such a version.
    """
    try:
        started = RunStarted(
            parent=parent.run_id, at=at, kind=kind, tags=dict(tags), agent=parent.agent
        )
    except ValueError as error:
        raise InvalidEventError(f"Invalid version to go on from, at={at}: {error}") from error
    return Draft(started, uuid5(child, RunStarted.tag))
