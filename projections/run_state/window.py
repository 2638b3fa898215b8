"""Window: a slice of one list of a view, made without the whole view."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, final

import msgspec

from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.projections.persistent.lazy_json import LazyList, plain_json, pointer_parts
from turnledger.projections.run_state.json_diff import escaped
from turnledger.projections.run_state.state import RunState

# The most items of a window.
MOST_ITEMS: Final = 1_000


@final
class Window(msgspec.Struct, frozen=True):
    """A slice of one list of a view, and what the view has besides its lists."""

    version: int
    # The list, "history/turns"; empty if the view has none.
    name: str
    total: int
    start: int
    items: tuple[Any, ...]
    # The view's fields that are not lists of this kind: they do not grow with the run.
    rest: dict[str, Any]
    # All lists of the view by the names that a window has them by.
    lists: tuple[str, ...]


@explain_arguments
def window(state: RunState, view: str, start: int = 0, limit: int = 100) -> Window:
    """A slice of a view of a state. It costs the slice, however long the run is.

    Of a view that has lists in it, one is named ("history/messages"); else it is the first
    (history/turns, usage/turns, timeline/spans). The tools are a list themselves. Only a window of
    "timeline/gaps" costs the run's length: gaps follow from all spans.

    Args:
        state: The state.
        view: A view, or a list in one, as a JSON Pointer without its first slash.
        start: The place of the first item; -50 for the last 50, at least -1,000.
        limit: How many items at most; 0 to 1,000.

    Raises:
        InvalidInputError: There is no such view or list, or a number is out of bounds.
    """
    if not -MOST_ITEMS <= start < 2**63:
        raise InvalidInputError(f"Invalid start: got {start}, expected {-MOST_ITEMS} or more.")
    if not 0 <= limit <= MOST_ITEMS:
        raise InvalidInputError(f"Invalid limit: got {limit}, expected 0 to {MOST_ITEMS}.")
    try:
        view_name, *within = pointer_parts(f"/{view}")
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    outline = state.lazy_view(view_name)
    lists, rest = _parts(view_name, outline)
    name = next(iter(lists), "") if not within else "/".join(map(escaped, (view_name, *within)))
    if within and name not in lists:
        known = ", ".join(lists) or "none"
        raise InvalidInputError(f"No list {short_repr(view)} in the state: there are {known}.")
    found = lists.get(name, ())
    if start < 0:
        start = max(len(found) + start, 0)
    items = islice(found.after(start), limit) if isinstance(found, LazyList) else ()
    return Window(state.version, name, len(found), start, tuple(items), rest, tuple(lists))


def _parts(view: str, outline: Any) -> tuple[dict[str, LazyList[Any]], dict[str, Any]]:
    """The lists of a view by their names, and its other fields."""
    if isinstance(outline, LazyList):
        return {view: outline}, {}
    lists: dict[str, LazyList[Any]] = {}
    rest: dict[str, Any] = {}
    for name, value in outline.items():
        if isinstance(value, LazyList):
            lists[f"{view}/{escaped(name)}"] = value
        else:
            rest[name] = plain_json(value)
    return lists, rest
