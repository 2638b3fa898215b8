"""Comparison of the states of two runs, without what always differs.

Ids, times, workers, and places of events are left out, as `comparison.normalize` leaves them out
of events. Fields are named for each view, not found by name: in a program's own data a field
`turn` or `at` is compared as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from turnledger.projections.persistent.lazy_json import LazyList
from turnledger.projections.run_state.json_diff import Change, changes
from turnledger.projections.run_state.state import RunState, unshared_json

_CALL: Final = frozenset(
    {
        *("call_id", "evaluation_id", "message_id", "parent", "turn", "number"),
        *("asked_at", "started_at", "ended_at"),
    }
)
_SUMMARY: Final = frozenset(
    {
        *("kind", "parent", "parent_version", "request_id", "session_id", "waiting_for"),
        *("deadline", "started_at", "ended_at", "worker", "epoch", "attempts", "tags", "agent"),
    }
)
_USAGE_TURN: Final = frozenset({"evaluation_id", "turn"})
# Messages of a run, with their ids: the history has their content.
_MESSAGES: Final = frozenset({"InnerMessage"})


def state_changes(first: RunState, second: RunState) -> Iterator[Change]:
    """What differs between the states of two runs: history, tools, slices, usage and summary.

    Of what a fork shares with its parent nothing is compared.

    Args:
        first: A run's state.
        second: Another run's state.
    """
    one, other = (_comparable(views) for views in unshared_json(first, second))
    return changes(one, other)


def _comparable(views: dict[str, Any]) -> dict[str, Any]:
    return {name: _VIEWS[name](views[name]) for name in _VIEWS if name in views}


def _history(view: dict[str, Any]) -> dict[str, Any]:
    return {"system": view["system"], "turns": view["turns"].mapped(_turn)}


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    blocks = [_without(block, frozenset({"call_id"})) for block in turn.get("blocks", ())]
    return {**turn, "blocks": blocks}


def _tools(view: LazyList[Any]) -> LazyList[Any]:
    return view.mapped(lambda call: _without(call, _CALL))


def _usage(view: dict[str, Any]) -> dict[str, Any]:
    return {**view, "turns": view["turns"].mapped(lambda turn: _without(turn, _USAGE_TURN))}


def _without(value: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if name not in names}


_VIEWS: Final[dict[str, Callable[[Any], Any]]] = {
    "history": _history,
    "tools": _tools,
    "slices": lambda view: _without(view, _MESSAGES),
    "usage": _usage,
    "summary": lambda view: _without(view, _SUMMARY),
}
