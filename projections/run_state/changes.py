"""What changed in a run's state: with one event (`step`), or between two versions (`diff`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import msgspec

from turnledger.ledger import InvalidInputError, Ledger, RecordNotFoundError
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.run_state.json_diff import Change, changes
from turnledger.projections.run_state.moments import EVERY, Moments
from turnledger.projections.run_state.state import RunState, unshared_json
from turnledger.projections.session.declarations import Declarations


@final
class Step(msgspec.Struct, frozen=True):
    """What the event of a version changed in the state, without the gaps of the timeline."""

    version: int
    changes: tuple[Change, ...]

    def patch(self) -> list[dict[str, Any]]:
        """The changes as a JSON Patch (RFC 6902) of the state before."""
        return [change.operation() for change in self.changes]


@explain_arguments
def step(
    ledger: Ledger,
    run_id: RunId,
    version: int,
    *,
    moments: Moments | None = None,
    declarations: Declarations | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Step:
    """What one event changed in its run's state.

    Only what the states before and after it do not share is compared. Gaps of the timeline are
    left out: they follow from all spans.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        version: The event's version.
        moments: Where the state before it is from; without, the run is folded up to it.
        declarations: Types and reducers of the program's slices; without, slices are plain JSON.
            Moments have their own.
        cancelled: Asked before each page of events; if it is true, the fold ends.

    Raises:
        RunNotFoundError: The run is not in the ledger.
        RecordNotFoundError: The run has no event with that version.
        FoldCancelledError: `cancelled` was true before the state was there.
    """
    record = ledger.record(run_id, version)
    known = moments_of(ledger, moments, declarations)
    before = known.at(run_id, version - 1, cancelled=cancelled)
    return Step(version, step_changes(before, before.after((record,))))


def step_changes(before: RunState, after: RunState) -> tuple[Change, ...]:
    """What changed from one state to another, without the gaps of the timeline."""
    views = unshared_json(before, after)
    for view in views:
        view.get("timeline", {}).pop("gaps", None)
    return tuple(changes(*views))


def moments_of(
    ledger: Ledger, moments: Moments | None, declarations: Declarations | None
) -> Moments:
    """The moments that were given, or some that keep nothing.

    InvalidInputError if they are of another ledger, or given besides declarations.
    """
    if moments is None:
        return Moments(ledger, declarations=declarations, budget=0)
    if moments.ledger is not ledger:
        raise InvalidInputError("Invalid moments: they are of another ledger.")
    if declarations is not None:
        raise InvalidInputError(
            "Declarations are given together with moments: give them to Moments(declarations=)."
        )
    return moments


@explain_arguments
def diff(
    ledger: Ledger,
    run_id: RunId,
    a: int,
    b: int,
    *,
    moments: Moments | None = None,
    declarations: Declarations | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> list[dict[str, Any]]:
    """What changed from version a to version b, as a JSON Patch (RFC 6902) of the state.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        a: A version; 0 is before the first event.
        b: Another version, before or after that.
        moments: Where the states are from; without, the run is folded up to the later one.
        declarations: Types and reducers of the program's slices; without, slices are plain JSON.
            Moments have their own.
        cancelled: Asked before each page of events; if it is true, the fold ends.
    """
    found = state_changes(
        ledger, run_id, a, b, moments=moments, declarations=declarations, cancelled=cancelled
    )
    return [change.operation() for change in found]


def state_changes(
    ledger: Ledger,
    run_id: RunId,
    a: int,
    b: int,
    *,
    moments: Moments | None = None,
    declarations: Declarations | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> list[Change]:
    """The same as `diff`, with what was there before."""
    low, high = sorted((a, b))
    known = moments_of(ledger, moments, declarations)
    earlier = known.at(run_id, low, cancelled=cancelled)
    # From the earlier one, so that they share what did not change; if that is far, from a moment.
    if moments is None or high - low <= EVERY:
        later = earlier.after(ledger.read(run_id, low, high))
    else:
        later = known.at(run_id, high, cancelled=cancelled)
    if later.version != high:
        raise RecordNotFoundError(str(run_id), high, ledger.head(run_id))
    before, after = (earlier, later) if a <= b else (later, earlier)
    return list(changes(*unshared_json(before, after)))
