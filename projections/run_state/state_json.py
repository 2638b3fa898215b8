"""A run's state as JSON: the whole of it, or the value that a JSON Pointer names."""

from __future__ import annotations

from typing import Any

from turnledger.ledger import InvalidInputError, Ledger, RecordNotFoundError
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.persistent.lazy_json import (
    MISSING,
    plain_json,
    pointer_parts,
    resolve,
)
from turnledger.projections.projection import Projection, fold
from turnledger.projections.run_state.state import built_in, state_at
from turnledger.projections.session.declarations import Declarations


@explain_arguments
def state_json(
    ledger: Ledger,
    run_id: RunId,
    version: int | None = None,
    *,
    pointer: str = "",
    declarations: Declarations | None = None,
) -> Any:
    """A run's state as plain JSON, as `turnledger state` prints it.

    The keys of the whole are the names of the views: history, tools, slices, checkpoints, usage,
    summary, timeline. With a pointer, only the view that it begins with is folded.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        version: The last version to fold; by default all.
        pointer: A JSON Pointer into the state, "/usage/total"; by default the whole.
        declarations: Types and reducers of the program's slices; without, slices are plain JSON.

    Raises:
        InvalidInputError: The pointer is invalid, or names nothing in this state.
        RecordNotFoundError: The run has no event with that version.
    """
    return plain_json(
        lazy_state_json(ledger, run_id, version, pointer=pointer, declarations=declarations)
    )


def lazy_state_json(
    ledger: Ledger,
    run_id: RunId,
    version: int | None = None,
    *,
    pointer: str = "",
    declarations: Declarations | None = None,
) -> Any:
    """The same as `state_json`, in which long lists are made item by item (`LazyList`)."""
    if not pointer:
        return state_at(ledger, run_id, version, declarations=declarations).lazy_json()
    view, within = view_pointed_at(pointer, declarations)
    state = fold(ledger.read(run_id, until=version), view)
    if version is not None and (head := ledger.head(run_id)) < version:
        raise RecordNotFoundError(str(run_id), version, head)
    found = resolve(view.lazy_json(state), within)
    if found is MISSING:
        when = "" if version is None else f" at version {version}"
        raise InvalidInputError(
            f"There is no value at {pointer!r} in the state of run {run_id}{when}."
        )
    return found


def view_pointed_at(
    pointer: str, declarations: Declarations | None
) -> tuple[Projection[Any], tuple[str, ...]]:
    """The view that a JSON Pointer into a state begins with, and the rest of the pointer."""
    try:
        path = pointer_parts(pointer)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    views = {view.name: view for view in built_in(declarations)}
    if not path or path[0] not in views:
        raise InvalidInputError(
            f"Unknown view in {pointer!r}: a pointer begins with one of {', '.join(views)}."
        )
    return views[path[0]], path[1:]
