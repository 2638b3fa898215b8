"""Encodes Python values as plain JSON, and parses JSON text; rejects what would not round-trip.

`to_plain` converts a program's values to objects, lists, text and numbers, for the ledger and for
models; `read_json` parses what a model wrote. Decoding into a type is in
`runtime.agent.schema.schema`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger.errors import error_message
from turnledger.ledger.events.limits import INT_RANGE, Limits
from turnledger.projections.digests import canonical
from turnledger.projections.session.declarations import dumped
from turnledger.runtime.errors import DataDecodeError, DataEncodeError, SchemaError

# The ledger's default: deeper values, and those that contain themselves, are rejected.
MAX_DEPTH = Limits().max_json_depth
# msgspec encodes these as text, and decodes them again.
_ENCODED_AS_TEXT = (datetime, date, time, timedelta, UUID, Decimal)


def to_plain(value: object) -> Any:
    """Convert a value to plain JSON.

    Dataclasses, msgspec Structs and pydantic models become objects, enums their values, sets
    sorted lists, dates and UUIDs text. DataEncodeError names the place of anything else:
    NaN and infinity, keys that are not text, bytes, text that is not Unicode, integers beyond
    64 bits, and objects of other types.
    """
    return _plain(value, "", 0)


def to_text(value: object) -> str:
    """Encode a value as compact JSON text, its fields in their own order."""
    return msgspec.json.encode(to_plain(value)).decode()


def read_json(text: str) -> Any:
    """Parse JSON text; DataDecodeError names the line and column, or the place in the data."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DataDecodeError(
            f"this is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataDecodeError(f"this is not JSON that can be read: {error}") from error
    try:
        return to_plain(data)
    except DataEncodeError as error:
        raise DataDecodeError(error.reason, path=error.path) from error


def pydantic_module() -> Any:
    """Return pydantic if the program has imported it: without, there are no types of it."""
    return sys.modules.get("pydantic")


def is_model(value: object) -> bool:
    """Whether a value is an instance of a pydantic model."""
    pydantic = pydantic_module()
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def is_record(value: object) -> bool:
    """Whether a value is a dataclass, a msgspec Struct or a pydantic model: not a class itself."""
    return (
        isinstance(value, msgspec.Struct)
        or is_model(value)
        or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    )


def checked_text(value: str, *, path: str = "") -> str:
    """Return the text as a plain str; DataEncodeError if it has half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataEncodeError(
            f"half of a surrogate pair at character {error.start} is not Unicode text", path=path
        ) from error
    return str.__str__(value)


def checked_scalar(value: str | float, path: str) -> str | int | float:
    """Return text or a number as its plain type; DataEncodeError if JSON can't hold it."""
    if isinstance(value, str):
        return checked_text(value, path=path)
    if isinstance(value, int):
        # Not of a subclass: a range would compare it with one number after the other.
        if (plain := int(value)) not in INT_RANGE:
            raise DataEncodeError("an integer beyond 64 bits; make it text", path=path)
        return plain
    if not isfinite(value):
        raise DataEncodeError(f"JSON has no {value}; use None or text", path=path)
    return float(value)


def checked_key(key: object, path: str) -> str:
    """Return the key of an object; DataEncodeError if it is not text."""
    if not isinstance(key, str):
        raise DataEncodeError(f"the keys of an object are text, this is {key!r}", path=path)
    return checked_text(key, path=path)


def check_depth(depth: int, path: str) -> None:
    """DataEncodeError for a container that is nested too deep, or holds itself."""
    if depth >= MAX_DEPTH:
        raise DataEncodeError(
            f"nested deeper than {MAX_DEPTH} levels, or holds itself", path=path[:200]
        )


def at_key(path: str, key: str) -> str:
    """Return the path of an object's entry."""
    return f"{path}.{key}" if path else key


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _plain(value: object, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, path, depth)
    if isinstance(value, str | int | float):
        return checked_scalar(value, path)
    if isinstance(value, _ENCODED_AS_TEXT):
        return msgspec.to_builtins(value)
    check_depth(depth, path)
    return _container(value, path, depth + 1)


def _container(value: object, path: str, depth: int) -> Any:
    if isinstance(value, Mapping):
        return {
            checked_key(key.value if isinstance(key, Enum) else key, path): _plain(
                item, at_key(path, str(key)), depth
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return _items(value, path, depth)
    if isinstance(value, set | frozenset):
        return sorted(_items(value, path, depth), key=canonical)
    if isinstance(value, msgspec.Struct):
        return _struct(value, path, depth)
    if is_model(value):
        return _plain(_dumped(value, path), path, depth - 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name), at_key(path, field.name), depth)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, bytes | bytearray | memoryview):
        raise DataEncodeError("bytes are not JSON; make them text (base64, say)", path=path)
    raise DataEncodeError(
        f"{type(value).__name__} is not JSON; use a dataclass, a msgspec Struct, a pydantic "
        "model, or text, numbers, lists and dicts",
        path=path,
    )


def _items(values: Iterable[object], path: str, depth: int) -> list[Any]:
    return [_plain(item, f"{path}[{place}]", depth) for place, item in enumerate(values)]


def _struct(value: msgspec.Struct, path: str, depth: int) -> Any:
    config = value.__struct_config__
    fields = [
        (name, getattr(value, field))
        for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    ]
    tag = [] if config.tag is None else [(config.tag_field or "type", config.tag)]
    if config.array_like:
        return _items([item for _, item in [*tag, *fields]], path, depth)
    return {
        name: _plain(item, at_key(path, name), depth)
        for name, item in [*tag, *fields]
        if item is not msgspec.UNSET
    }


def _dumped(model: Any, path: str) -> Any:
    try:
        return dumped(model)
    except SchemaError:
        raise
    except Exception as error:
        raise DataEncodeError(
            f"{type(model).__name__}: {error_message(error)}", path=path
        ) from error
