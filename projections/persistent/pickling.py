"""Pickling of states that keeps their JSON, and so their digests, to the byte.

Plain pickle is not enough: msgspec omits a field from JSON if its value *is* the default object,
not if it equals it. A default that was pickled comes back as another object: the struct is
still equal, but has another JSON and another digest.
"""

from __future__ import annotations

import pickle  # of our own values; bytes from elsewhere are as dangerous as with pickle
from functools import cache
from io import BytesIO
from typing import Any

import msgspec


class _Pickler(pickle.Pickler):
    """Omits the fields of a struct that are its defaults: the class gives them back."""

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
    """The fields of a struct with their defaults; empty if plain pickle is exact for it."""
    names = kind.__struct_fields__
    defaults = kind.__struct_defaults__
    if all(map(_is_one_object, defaults)) or kind.__reduce__ is not msgspec.Struct.__reduce__:
        return ()
    required: tuple[Any, ...] = (msgspec.NODEFAULT,) * (len(names) - len(defaults))
    return tuple(zip(names, required + defaults, strict=True))


def _is_one_object(default: Any) -> bool:
    """Whether pickle gives back the same object, as for None, small numbers and empty text."""
    try:
        return default is pickle.loads(pickle.dumps(default))  # noqa: S301 - its own bytes
    except Exception:  # a factory is never a value; anything else fails again when it is pickled
        return True


def _made(kind: type[Any], given: dict[str, Any]) -> Any:
    return kind(**given)


def packed(value: Any) -> bytes:
    """The value as bytes."""
    file = BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def unpacked(content: bytes) -> Any:
    """The value that was packed. As with pickle, only for bytes from a trusted source."""
    return pickle.loads(content)  # noqa: S301 - see above
