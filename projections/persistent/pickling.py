"""Values as bytes and back, so that what comes back is written as the very same JSON.

Plain pickle is not enough: msgspec leaves a field out of JSON if its value *is* the default,
not if it equals it. A default that was pickled comes back as another object, so that the
struct is still equal, but has another JSON and another digest.
"""

from __future__ import annotations

import pickle  # of our own values, for this process or for who trusts the bytes as pickle's
from functools import cache
from io import BytesIO
from typing import Any

import msgspec


class _Pickler(pickle.Pickler):
    """Leaves out of a struct what is its default: the class gives it back."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, msgspec.Struct):
            return NotImplemented
        kind = type(value)
        fields = _fields(kind)
        if not fields:
            return NotImplemented
        given = {
            name: found
            for name, default in fields
            if (found := getattr(value, name)) is not default
        }
        return _made, (kind, given)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of a struct with their defaults; none if plain pickle is exact for it."""
    names = kind.__struct_fields__
    defaults = kind.__struct_defaults__
    if all(map(_is_one_object, defaults)) or kind.__reduce__ is not msgspec.Struct.__reduce__:
        return ()
    required: tuple[Any, ...] = (msgspec.NODEFAULT,) * (len(names) - len(defaults))
    return tuple(zip(names, required + defaults, strict=True))


def _is_one_object(default: Any) -> bool:
    """Whether it comes back as itself, as None, small numbers and empty text do."""
    try:
        return default is pickle.loads(pickle.dumps(default))  # noqa: S301 - its own bytes
    except Exception:  # a factory is never a value, and of others pickle will say the same then
        return True


def _made(kind: type[Any], given: dict[str, Any]) -> Any:
    return kind(**given)


def packed(value: Any) -> bytes:
    """The value as bytes."""
    file = BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def unpacked(content: bytes) -> Any:
    """The value of such bytes. As with pickle, only for bytes of one's own."""
    return pickle.loads(content)  # noqa: S301 - see above
