"""Packed values: what LangGraph's serializer makes of a value, as JSON, and back.

The serializer gives msgpack, in which an object of a class is an extension: a code and more
msgpack. Here that is readable JSON, and every value is restored by packing it again and handing
it to the serializer, with its list of allowed classes. This module imports no class named by data.

JSON stands for itself, except for objects with a key that begins with "$":

| form | what it is |
|---|---|
| `{"$ext": CODE, "of": VALUE}` | an extension |
| `{"$bytes": BASE64}`, `{"$blob": NAME}` | bytes; long ones are a blob of the ledger |
| `{"$float": TEXT}` | a number that JSON has not: nan, inf, -inf |
| `{"$map": [[KEY, VALUE], ...]}` | an object with other keys than plain text |
| `{"$packed": BASE64}` | msgpack, of what is nested too deep for the ledger |
| `{"$typed": [TYPE, VALUE]}` | bytes of another kind than msgpack: encrypted ones, say |
| `{"$at": ADDRESS}`, `{"$at": ADDRESS, "item": N}` | the value at an address, or an item of it |
| `{"$list": ADDRESS, "keep": N, "then": [...]}` | the first N items of that list, and more |

An address is the version of an event, of version 0 the event itself, and the way to a value in
its data. It names what was recorded before: an earlier event, or an earlier place in the same one.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from math import isfinite
from typing import Any, TypeAlias

import ormsgpack
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2

from turnledger.ledger import blob_name

Address: TypeAlias = tuple[int | str, ...]
# Bytes from this length on are a blob.
BLOB_BYTES = 4096
# What JSON has as it is; without a call for each, an event is read twice as fast.
_PLAIN = frozenset((str, int, float, bool, type(None)))
# How many bytes `array_head` takes.
HEAD = 5
# The ledger takes 64 levels: an extension's take three, and the event around it some more.
DEEPEST = 44
# The messages that threads consist of. LangGraph makes them without asking, as it calls them safe.
_MESSAGES = {
    (kind.__module__, kind.__name__): kind
    for kind in (AIMessage, HumanMessage, SystemMessage, ToolMessage)
}
# A message's content is a list of four: the class's module and name, the fields, and a method.
_BEGINNINGS = tuple(
    b"\x94" + b"".join(map(ormsgpack.packb, kind_and_name)) for kind_and_name in _MESSAGES
)


class Packed:
    """An extension value of msgpack: an object of a class, as the serializer packs it."""

    __slots__ = ("code", "data")

    def __init__(self, code: int, data: bytes) -> None:
        self.code = code
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and self.data == other.data and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"<Packed {self.code}: {len(self.data)} bytes>"


def unpack(data: bytes) -> Any:
    """A value of plain types and Packed, of which only the outermost are opened."""
    return ormsgpack.unpackb(data, ext_hook=Packed, option=ormsgpack.OPT_NON_STR_KEYS)


def pack(value: Any) -> bytes:
    """The msgpack of a value as `unpack` gives it."""
    packed: bytes = ormsgpack.packb(value, default=_extension, option=ormsgpack.OPT_NON_STR_KEYS)
    return packed


def message(content: bytes) -> Packed:
    """A message as the serializer packs it, of its content."""
    return Packed(EXT_PYDANTIC_V2, content)


def is_message(item: Any) -> bool:
    """Whether an item is a message of a class that `made_messages` knows."""
    return (
        isinstance(item, Packed)
        and item.code == EXT_PYDANTIC_V2
        and item.data.startswith(_BEGINNINGS)
    )


def made_messages(contents: bytes) -> list[BaseMessage] | None:
    """The messages of a packed list of their contents, as LangGraph makes them, but at once.

    It unpacks each message by itself, and imports its module. None if it has to: for a message
    with objects in it, or one that is invalid.
    """
    try:
        found = ormsgpack.unpackb(contents, option=ormsgpack.OPT_NON_STR_KEYS)
        return [_validated(_MESSAGES[module, name], fields) for module, name, fields, _ in found]
    except Exception:
        return None


def _validated(kind: type[BaseMessage], fields: dict[str, Any]) -> BaseMessage:
    """A message of its fields, with all validators of its class.

    The constructors above pydantic's take a third of the time, and only take `content_blocks` for
    `content`: of a message that has this field, they are called.
    """
    if "content_blocks" in fields:
        return kind(**fields)
    made: BaseMessage = object.__new__(kind)
    kind.__pydantic_validator__.validate_python(fields, self_instance=made)
    return made


def array_head(length: int) -> bytes:
    """What a packed list of so many items begins with."""
    return b"\xdd" + length.to_bytes(HEAD - 1)


def _extension(value: Packed) -> Any:
    return ormsgpack.Ext(value.code, value.data)


def base64(content: bytes) -> str:
    return b64encode(content).decode()


class JsonWriter:
    """Writes values as JSON. A subclass may put references in the place of what is known.

    Args:
        blob_bytes: The length from which on bytes become a blob.
    """

    def __init__(self, blob_bytes: int = BLOB_BYTES) -> None:
        self._blob_bytes = blob_bytes
        self.blobs: dict[str, bytes] = {}

    def typed(self, kind: str, data: bytes, path: Address) -> Any:
        """A value as the serializer gave it.

        Args:
            kind: The kind of the bytes, "msgpack" if they can be read.
            data: The bytes.
            path: Where it will stand.
        """
        if kind == "null":
            return None
        if kind == "msgpack":
            return self.value(unpack(data), path)
        if kind == "bytes":
            return self._bytes(data)
        return {"$typed": [kind, self._bytes(bytes(data))]}

    def value(self, value: Any, path: Address) -> Any:
        """A value of plain types and Packed."""
        if value is None or isinstance(value, str | bool | int):
            return value
        if isinstance(value, float):
            return value if isfinite(value) else {"$float": repr(value)}
        if isinstance(value, bytes):
            return self._bytes(value)
        if len(path) > DEEPEST:
            return {"$packed": base64(pack(value))}
        if isinstance(value, Packed):
            return self._packed(value, path)
        if isinstance(value, list | tuple):
            return self._list(value, path)
        return self._map(value, path)

    def _bytes(self, value: bytes) -> Any:
        if len(value) < self._blob_bytes:
            return {"$bytes": base64(value)}
        name = blob_name(value)
        self.blobs[name] = value
        return {"$blob": name}

    def _packed(self, value: Packed, path: Address) -> Any:
        try:
            inner = unpack(value.data)
        except ValueError:  # an extension of somebody else's
            return {"$ext": value.code, "of": self._bytes(value.data), "raw": True}
        return {"$ext": value.code, "of": self.value(inner, (*path, "of"))}

    def _list(self, value: list[Any] | tuple[Any, ...], path: Address) -> Any:
        return [self.value(item, (*path, place)) for place, item in enumerate(value)]

    def _map(self, value: dict[Any, Any], path: Address) -> Any:
        if all(isinstance(key, str) and key[:1] != "$" for key in value):
            return {key: self.value(item, (*path, key)) for key, item in value.items()}
        inside = (*path, "$map")
        return {
            "$map": [
                [self.value(key, (*inside, place, 0)), self.value(item, (*inside, place, 1))]
                for place, (key, item) in enumerate(value.items())
            ]
        }


class JsonReader:
    """Reads values from JSON; `typed` gives them as the serializer takes them."""

    def __init__(self, blob: Callable[[str], bytes]) -> None:
        self._blob = blob

    def typed(self, tree: Any) -> tuple[str, bytes]:
        """A value as the serializer gave it."""
        if isinstance(tree, dict) and "$typed" in tree:
            kind, data = tree["$typed"]
            return kind, self.value(data)
        return "msgpack", pack(self.value(tree))

    def value(self, tree: Any) -> Any:
        """A value of plain types and Packed."""
        if isinstance(tree, dict):
            for key in tree:
                if key[:1] == "$":
                    return self._special(key, tree)
                break
            return {
                key: item if type(item) in _PLAIN else self.value(item)
                for key, item in tree.items()
            }
        if isinstance(tree, list):
            return [item if type(item) in _PLAIN else self.value(item) for item in tree]
        return tree

    def _special(self, key: str, tree: dict[str, Any]) -> Any:
        given = tree[key]
        match key:
            case "$ext":
                of = self.value(tree["of"])
                return Packed(given, of if tree.get("raw") else pack(of))
            case "$bytes":
                return b64decode(given)
            case "$blob":
                return self._blob(given)
            case "$float":
                return float(given)
            case "$map":
                return {_as_key(self.value(name)): self.value(item) for name, item in given}
            case "$packed":
                return unpack(b64decode(given))
        return self.reference(key, tree)

    def reference(self, key: str, tree: dict[str, Any]) -> Any:
        """The value that a reference stands for."""
        raise NotImplementedError


def _as_key(value: Any) -> Any:
    """A key of a map: msgpack has lists where Python has tuples."""
    return tuple(map(_as_key, value)) if isinstance(value, list) else value
