"""Immutable JSON values, which messages hold.

FrozenDict and FrozenList are a dict and a list, so they compare, print and encode like any
other; changing them raises TypeError. `to_plain` makes a mutable copy.
"""

from __future__ import annotations

from typing import Any, NoReturn

from turnledger.runtime.agent.schema.values import at_key, check_depth, checked_key, checked_scalar
from turnledger.runtime.errors import DataEncodeError


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("Part of a message, and immutable: to_plain() makes a mutable copy.")


class FrozenDict(dict[str, Any]):
    """An immutable JSON object."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self

    def __copy__(self) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """An immutable JSON array."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __deepcopy__(self, memo: object) -> FrozenList:
        return self

    def __copy__(self) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def frozen_json(value: object) -> Any:
    """Make an immutable copy of a JSON value; DataEncodeError names the place of other values.

    Stricter than `to_plain`: it accepts JSON's own types only (a tuple is a list), so that
    what is read from a message equals what was put in.
    """
    return _frozen(value, "", 0)


def _frozen(value: object, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return checked_scalar(value, path)
    check_depth(depth, path)
    if isinstance(value, dict):
        return FrozenDict(
            {
                checked_key(key, path): _frozen(item, at_key(path, str(key)), depth + 1)
                for key, item in value.items()
            }
        )
    if isinstance(value, list | tuple):
        return FrozenList(
            [_frozen(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(value)]
        )
    raise DataEncodeError(
        f"{type(value).__name__} is not JSON; make it text, a number, a list or a dict first "
        "(to_plain does that for dataclasses, models, moments and sets)",
        path=path,
    )
