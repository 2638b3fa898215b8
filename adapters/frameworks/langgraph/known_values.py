"""Known values: what an event may refer to instead of holding it again.

A checkpoint repeats nearly all of the one before it, and LangGraph hands whole states to tasks. So
a list is recorded as what differs from a list of the parent checkpoint, and an object that is
recorded already as a reference. What a reference names is in the run, or in what the run shares
with its ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from langgraph.checkpoint.serde.base import SerializerProtocol

from turnledger.adapters.frameworks.langgraph.packed_values import (
    Address,
    JsonReader,
    JsonWriter,
    Packed,
    pack,
)

# Shorter lists and objects stand in full: a reference would be as long. (Packed, an object is a
# list of four.)
SHORTEST_LIST = 5
SHORTEST_PACKED = 64


def key_of(item: Any) -> Any:
    """Stands for an item of a list: equal for the same msgpack only (to Python, 1 is True)."""
    return item if isinstance(item, Packed | str) else pack(item)


class StoredPart(Protocol):
    """Some items of a list."""

    @property
    def items(self) -> list[Any]: ...

    def loaded(self, serde: SerializerProtocol) -> Sequence[Any]:
        """The items, made by the serializer."""
        ...


class StoredItems:
    """The first items of a list from derived data: how many, in parts, and the last row."""

    def __init__(self, count: int, parts: Sequence[StoredPart], row: str) -> None:
        self.count = count
        self.parts = parts
        self.row = row

    @cached_property
    def items(self) -> list[Any]:
        return [item for part in self.parts for item in part.items]


@dataclass(frozen=True)
class Channel:
    """A channel's value in a checkpoint: its version, a reference to it, the objects in it.

    The reference is None as long as the checkpoint is not recorded.
    """

    version: Any
    reference: Any
    members: tuple[Packed, ...] = ()


@dataclass
class KnownList:
    """A list that is recorded, and the last row of derived data with its first items."""

    address: Address
    keys: list[Any]
    items: list[Any]
    row: str = ""
    stored: int = 0
    # The channel whose value it is in, if it is in one.
    channel: str = ""


@dataclass
class KnownValues:
    """The values of a checkpoint and of the writes after it, by where they are recorded."""

    channels: dict[str, Channel] = field(default_factory=dict)
    references: dict[Packed, Any] = field(default_factory=dict)
    _lists: dict[Any, list[KnownList]] = field(default_factory=dict)

    @property
    def members(self) -> set[Packed]:
        """The objects that the channels hold."""
        return {one for channel in self.channels.values() for one in channel.members}

    def without_channels(self) -> KnownValues:
        """The same for a checkpoint of other channels."""
        return KnownValues({}, dict(self.references), self._lists)

    def add_list(self, known: KnownList) -> None:
        self._lists.setdefault(known.keys[0], []).append(known)

    def lists_in(self, channels: Collection[str]) -> Iterator[KnownList]:
        """The lists in the values of these channels."""
        for some in self._lists.values():
            yield from (known for known in some if known.channel in channels)

    def longest(self, keys: list[Any]) -> tuple[KnownList | None, int]:
        """The known list with the most first items in common, and how many these are."""
        best, most = None, 0
        for known in self._lists.get(keys[0], ()):
            count = _common(known.keys, keys)
            if count > most:
                best, most = known, count
        return best, most


def _common(first: list[Any], second: list[Any]) -> int:
    """How many first items two lists have in common."""
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    return next(at for at in range(shorter) if first[at] != second[at])


class DeltaWriter(JsonWriter):
    """Writes the values of one event, with references to what is known."""

    def __init__(self, known: KnownValues) -> None:
        super().__init__()
        self._known = known
        self.lists: list[KnownList] = []
        # Objects that this event holds, entered when they are written: none can name itself.
        self.written: dict[Packed, Address] = {}
        self._used: dict[Packed, Any] = {}

    def _packed(self, value: Packed, path: Address) -> Any:
        if len(value.data) < SHORTEST_PACKED:
            return super()._packed(value, path)
        if (reference := self._known.references.get(value)) is not None:
            self._used[value] = reference
            return reference
        if (earlier := self.written.get(value)) is not None:
            return {"$at": [0, *earlier]}
        tree = super()._packed(value, path)
        self.written.setdefault(value, path)
        return tree

    def _list(self, value: list[Any] | tuple[Any, ...], path: Address) -> Any:
        if len(value) < SHORTEST_LIST:
            return super()._list(value, path)
        keys = [key_of(item) for item in value]
        base, keep = self._known.longest(keys)
        channel = str(path[1]) if path[0] == "values" else ""
        known = KnownList(path, keys, list(value), channel=channel)
        self.lists.append(known)
        if base is None or keep < SHORTEST_LIST:
            return super()._list(value, path)
        if base.stored <= keep:
            known.row, known.stored = base.row, base.stored
        tree: dict[str, Any] = {"$list": list(base.address), "keep": keep}
        if keep < len(value):
            inside = (*path, "then")
            tree["then"] = [
                self.value(item, (*inside, place)) for place, item in enumerate(value[keep:])
            ]
        return tree

    def known_after_writes(self, version: int) -> None:
        """The event was recorded under this version: its objects are known from now on."""
        for one, path in self.written.items():
            self._known.references[one] = {"$at": [version, *path]}

    def known_after_checkpoint(self, version: int, channels: Mapping[str, Channel]) -> KnownValues:
        """What is known once the checkpoint is recorded: its values, and no longer its parent's."""
        known = KnownValues({}, dict(self._used))
        kept = {name for name, channel in channels.items() if channel.reference is not None}
        for name, channel in channels.items():
            if name not in kept:
                channel = replace(channel, reference={"$at": [version, "values", name]})
            known.channels[name] = channel
        for one, path in self.written.items():
            known.references[one] = {"$at": [version, *path]}
        for found in self.lists:
            found.address = (version, *found.address)
        for found in (*self._known.lists_in(kept), *self.lists):
            known.add_list(found)
            _add_items(known.references, found, self._known.references)
        return known


def _add_items(
    references: dict[Packed, Any], found: KnownList, earlier: Mapping[Packed, Any]
) -> None:
    for place, item in enumerate(found.items):
        if isinstance(item, Packed) and item not in references:
            there = {"$at": list(found.address), "item": place}
            references[item] = earlier.get(item, there)


class DeltaReader(JsonReader):
    """Reads values of a run's events, following references.

    Args:
        data: Gives the data of the event with a version.
        blob: Gives a blob's bytes.
        stored: Gives the items of a list from derived data, None if they are not there.
    """

    def __init__(
        self,
        data: Callable[[int], Any],
        blob: Callable[[str], bytes],
        stored: Callable[[Address], StoredItems | None],
    ) -> None:
        super().__init__(blob)
        self._data = data
        self._stored = stored
        self._version = 0
        self._lists: dict[Address, list[Any]] = {}
        # What derived data had of a list.
        self.parts: dict[Address, StoredItems] = {}

    def loaded(self, address: Address, serde: SerializerProtocol) -> Any:
        """The value at an address, made by the serializer; that of a stored list by its parts."""
        address, node = self._followed(address)
        if isinstance(node, dict) and "$list" in node:
            found = self._appended(address, node)
            if found is not None:
                stored, more = found
                made = [item for part in stored.parts for item in part.loaded(serde)]
                return made + serde.loads_typed(("msgpack", pack(more)))
        self._version = int(address[0])
        return serde.loads_typed(self.typed(node))

    def is_readable(self, address: Address) -> bool:
        """Whether a value is not recorded in bytes of the serializer's own: encrypted, say."""
        node = self._followed(address)[1]
        return not (isinstance(node, dict) and "$typed" in node)

    def _followed(self, address: Address) -> tuple[Address, Any]:
        """Where a value was recorded first, and how."""
        node = self._raw(address)
        while isinstance(node, dict) and "$at" in node and "item" not in node:
            address = self._absolute(node["$at"], int(address[0]))
            node = self._raw(address)
        return address, node

    def _appended(self, address: Address, node: Any) -> tuple[StoredItems, list[Any]] | None:
        """A list that is stored up to a point, and what it only grew by since; else None."""
        after: list[tuple[Address, dict[str, Any]]] = []
        part = None
        while part is None:
            if not (isinstance(node, dict) and "$list" in node):
                return None
            if node.get("stored"):
                part = self._stored(address)
            if part is None:
                after.append((address, node))
                base = self._absolute(node["$list"], int(address[0]))
                address, node = self._followed(base)
        count = part.count
        more: list[Any] = []
        for place, node in reversed(after):
            if node["keep"] != count + len(more):
                return None
            more += [self._value_in(int(place[0]), item) for item in node.get("then", ())]
        return part, more

    def reference(self, key: str, tree: dict[str, Any]) -> Any:
        address = self._absolute(tree[key], self._version)
        if key == "$list":
            more = [self.value(item) for item in tree.get("then", ())]
            return self.items(address)[: tree["keep"]] + more
        if "item" in tree:
            return self.items(address)[tree["item"]]
        address, node = self._followed(address)
        return self._value_in(int(address[0]), node)

    def items(self, address: Address) -> list[Any]:
        """The items of a list. A loop: there may be thousands of lists between it and a whole."""
        after: list[tuple[Address, dict[str, Any]]] = []
        asked = address
        while (found := self._lists.get(address)) is None:
            address, node = self._followed(address)
            if not (isinstance(node, dict) and "$list" in node):
                found = self._value_in(int(address[0]), node)
                break
            if node.get("stored") and (part := self._stored(address)) is not None:
                self.parts[asked] = part
                found = part.items
                break
            after.append((address, node))
            address = self._absolute(node["$list"], int(address[0]))
        for place, node in reversed(after):
            more = [self._value_in(int(place[0]), item) for item in node.get("then", ())]
            found = found[: node["keep"]] + more
        self._lists[asked] = found
        return found

    def _value_in(self, version: int, tree: Any) -> Any:
        before, self._version = self._version, version
        try:
            return self.value(tree)
        finally:
            self._version = before

    def _absolute(self, address: list[Any], version: int) -> Address:
        return (address[0] or version, *address[1:])

    def _raw(self, address: Address) -> Any:
        version, *path = address
        tree = self._data(int(version))
        for part in path:
            tree = tree[part]
        return tree


def known_from_record(
    version: int, data: dict[str, Any], versions: Mapping[str, Any], reader: DeltaReader
) -> KnownValues:
    """What is known of a checkpoint that another process recorded, or this one long ago.

    Args:
        version: The version of its event.
        data: The event's data.
        versions: The versions of its channels.
        reader: Reads the run's values.
    """
    known = KnownValues()
    for name, tree in data["values"].items():
        path: Address = (version, "values", name)
        reference = alias(tree, path)
        members: Iterable[Any] = ()
        if reader.is_readable(path):
            for found in _lists_in(tree, path, reader):
                found.channel = name
                known.add_list(found)
                _add_items(known.references, found, {})
            value = reader._value_in(version, tree)
            members = value if isinstance(value, list) else (value,)
        known.channels[name] = Channel(
            versions.get(name), reference, tuple(one for one in members if isinstance(one, Packed))
        )
    return known


def alias(tree: Any, address: Address) -> Any:
    """A reference to a value of a channel: to where it was recorded first."""
    if isinstance(tree, dict) and "$at" in tree and tree["$at"][0]:
        return tree
    return {"$at": list(address)}


def _lists_in(tree: Any, path: Address, reader: DeltaReader) -> Iterable[KnownList]:
    if isinstance(tree, dict):
        if "$list" in tree or ("$at" in tree and "item" not in tree):
            yield from _list_at(path, reader)
        elif "$ext" in tree:
            yield from _lists_in(tree["of"], (*path, "of"), reader)
        elif not any(key[:1] == "$" for key in tree):
            for key, inner in tree.items():
                yield from _lists_in(inner, (*path, key), reader)
    elif isinstance(tree, list):
        yield from _list_at(path, reader)
        for place, inner in enumerate(tree):
            yield from _lists_in(inner, (*path, place), reader)


def _list_at(path: Address, reader: DeltaReader) -> Iterable[KnownList]:
    items = reader.items(path)
    if isinstance(items, list) and len(items) >= SHORTEST_LIST:
        known = KnownList(path, [key_of(item) for item in items], items)
        if (part := reader.parts.get(path)) is not None and part.count <= len(items):
            known.row, known.stored = part.row, part.count
        yield known
