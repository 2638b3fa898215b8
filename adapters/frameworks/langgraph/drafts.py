"""Drafts: checkpoints to be recorded, and their values as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from turnledger.adapters.frameworks.langgraph.known_values import (
    Channel,
    DeltaReader,
    DeltaWriter,
    KnownValues,
)
from turnledger.adapters.frameworks.langgraph.packed_values import Address, Packed, unpack
from turnledger.ledger import TurnledgerError

# Bytes as the serializer gives them, and their kind.
Typed = tuple[str, bytes]


class CheckpointNotRecordableError(TurnledgerError, ValueError):
    """A checkpoint can't be recorded so that it is restored as it was; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A checkpoint to be recorded.

    `root` is the root checkpoint that a subgraph's checkpoint belongs to, `changed` the channels
    that changed since the parent; `rest` is the checkpoint without its id and values.
    """

    ns: str
    checkpoint: Checkpoint
    parent: str | None
    root: str | None
    rest: Typed
    metadata: Typed
    changed: frozenset[str]


def dumped(serde: SerializerProtocol, value: Any) -> Typed:
    """A value as the serializer packs it."""
    kind, data = serde.dumps_typed(value)
    if kind == "pickle":
        raise CheckpointNotRecordableError(
            f"Invalid value of type {type(value).__name__}: the serializer can only pickle it, and "
            "the ledger takes no pickles. Nothing was written. Keep plain data, messages, "
            "dataclasses or pydantic models in the graph's state."
        )
    return kind, data


def typed_json(writer: DeltaWriter, typed: Typed, path: Address) -> Any:
    return writer.typed(*typed, path)


def plain_map(reader: DeltaReader, tree: Any) -> Mapping[str, Any]:
    found = reader.value(tree)
    return found if isinstance(found, dict) else {}


def values_of(
    serde: SerializerProtocol, writer: DeltaWriter, draft: Draft, known: KnownValues
) -> tuple[dict[str, Any], dict[str, Channel], list[BaseMessage]]:
    """The values of a checkpoint as JSON, its channels, and the messages that entered them."""
    given, versions = draft.checkpoint["channel_values"], draft.checkpoint["channel_versions"]
    values: dict[str, Any] = {}
    channels: dict[str, Channel] = {}
    entered: dict[Packed, BaseMessage] = {}
    before = known.members if not draft.ns else set()
    for name in dict.fromkeys((*given, *known.channels)):
        kept = known.channels.get(name)
        if kept is not None and name not in draft.changed and versions.get(name) == kept.version:
            values[name], channels[name] = kept.reference, kept
            continue
        if name not in given:
            continue
        path: Address = ("values", name)
        kind, data = dumped(serde, given[name])
        if kind != "msgpack":
            values[name] = writer.typed(kind, data, path)
            channels[name] = Channel(versions.get(name), None)
            continue
        value = unpack(data)
        values[name] = writer.value(value, path)
        items = value if isinstance(value, list) else [value]
        members = tuple(one for one in items if isinstance(one, Packed))
        channels[name] = Channel(versions.get(name), None, members)
        if not draft.ns and name[:2] != "__" and ":" not in name:
            objects = given[name] if isinstance(given[name], list) else [given[name]]
            for one, there in zip(items, objects, strict=True):
                if isinstance(there, BaseMessage) and one not in before:
                    entered.setdefault(one, there)
    return values, channels, list(entered.values())
