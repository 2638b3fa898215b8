"""Snapshot: a session's state as a value that can be stored and restored.

    {"slices": [{"slice_type": "module:Class", "item_type": "module:Class", "items": [...]}]}

Decoding one needs none of the types, and imports nothing: its names are only compared with those
that the program has declared, when the snapshot is restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from turnledger.ledger import InnerMessage
from turnledger.ledger.arguments import explain_methods
from turnledger.projections import Declarations, get_inner_messages
from turnledger.projections.session.slices import SlicesState
from turnledger.runtime.agent.schema.values import read_json, to_plain
from turnledger.runtime.errors import SchemaError, SnapshotRestoreError
from turnledger.runtime.session.types import MESSAGES, spelling


class SnapshotSlice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slice of a snapshot: its type as "module:Class", that of its values, and these as JSON.

    `name` is the slice's name in the ledger, if that is not its class's name.
    """

    slice_type: str
    item_type: str
    items: tuple[Any, ...] = ()
    name: str = ""

    @property
    def declared_name(self) -> str:
        """The slice's name in the ledger: `name`, else that of the class."""
        return self.name or self.slice_type.rpartition(":")[2].rpartition(".")[2]


class _Form(msgspec.Struct, frozen=True):
    slices: tuple[SnapshotSlice, ...]
    tag: str | None = None


@explain_methods()
@dataclass(frozen=True, slots=True)
class Snapshot:
    """Session state at one version; includes the messages if they are recorded as a slice."""

    slices: tuple[SnapshotSlice, ...] = ()
    tag: str | None = None

    @classmethod
    def of_slices(
        cls,
        state: SlicesState,
        declarations: Declarations | None = None,
        *,
        tag: str | None = None,
    ) -> Snapshot:
        """Make the snapshot of folded state; undeclared types are spelled by their names."""
        declared = declarations.declared() if declarations is not None else {}

        def spelled(name: str) -> str:
            return spelling(declared[name]) if name in declared else name

        slices = []
        for name in sorted(state.slices):
            items = tuple(to_plain(value) for value in shown(name, state.all(name)))
            own_name = name if name in declared and declared[name].__name__ != name else ""
            item_type = spelled(state.slices[name].item)
            slices.append(SnapshotSlice(spelled(name), item_type, items, own_name))
        return cls(tuple(slices), tag)

    def to_plain(self) -> dict[str, Any]:
        """Return the snapshot as plain JSON."""
        form: dict[str, Any] = {"slices": [msgspec.to_builtins(one) for one in self.slices]}
        for one, entry in zip(self.slices, form["slices"], strict=True):
            entry["items"] = list(one.items)
        return form if self.tag is None else {**form, "tag": self.tag}

    def to_json(self) -> str:
        """Encode the snapshot as JSON text."""
        return msgspec.json.encode(self.to_plain()).decode()

    @classmethod
    def from_plain(cls, data: Any) -> Snapshot:
        """Decode a snapshot from plain JSON; SnapshotRestoreError if it is invalid."""
        try:
            form = msgspec.convert(data, _Form)
        except (msgspec.ValidationError, UnicodeError) as error:
            raise SnapshotRestoreError(f"Invalid snapshot of a session: {error}") from error
        return cls(form.slices, form.tag)

    @classmethod
    def from_json(cls, text: str | bytes) -> Snapshot:
        """Decode a snapshot from JSON text; SnapshotRestoreError if it is invalid."""
        return cls.from_plain(json_of(text, "snapshot of a session"))


def json_of(text: str | bytes, what: str) -> Any:
    """Parse the JSON text of a snapshot; SnapshotRestoreError if it is invalid."""
    try:
        return read_json(text if isinstance(text, str) else bytes(text).decode())
    except (SchemaError, UnicodeDecodeError, TypeError) as error:
        raise SnapshotRestoreError(f"Invalid {what}: {error}") from error


class _Messages:
    """Adapts messages to what `get_inner_messages` reads from a session."""

    def __init__(self, messages: tuple[InnerMessage, ...]) -> None:
        self._messages = messages

    def select_all(self, slice_type: Any, /) -> tuple[InnerMessage, ...]:
        return self._messages


def shown(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a slice's values as readers get them: calls with the status of their results."""
    if name != MESSAGES or not all(isinstance(value, InnerMessage) for value in values):
        return values
    with_status = {m.message_id: m for m in get_inner_messages(_Messages(values))}
    return tuple(with_status[message.message_id] for message in values)
