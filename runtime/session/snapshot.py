"""A session's state as a value that can be written down and brought back.

    {"slices": [{"slice_type": "module:Class", "item_type": "module:Class", "items": [...]}]}

Reading one needs none of the types, and imports nothing: a name in it is only ever compared
with those that a program has declared, when the snapshot is restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from turnledger.ledger import InnerMessage
from turnledger.projections import Declarations, get_inner_messages
from turnledger.projections.session.slices import SlicesState
from turnledger.runtime.agent.schema.values import read_json, to_plain
from turnledger.runtime.errors import SchemaError, SnapshotRestoreError
from turnledger.runtime.session.types import MESSAGES, spelling


class SnapshotSlice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slice: how its type is spelled, and its values as JSON.

    `name` is what the slice is called in the ledger, if that is not its class's name.
    """

    slice_type: str
    item_type: str
    items: tuple[Any, ...] = ()
    name: str = ""

    @property
    def declared_name(self) -> str:
        """What it is called in the ledger, as far as the snapshot says."""
        return self.name or self.slice_type.rpartition(":")[2].rpartition(".")[2]


class _Form(msgspec.Struct, frozen=True):
    slices: tuple[SnapshotSlice, ...]
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Session state at one moment, its conversation included if that is recorded as a slice."""

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
        """The snapshot of folded state; types that nobody declared go by their names."""
        declared = declarations.declared() if declarations is not None else {}
        slices = []
        for name in sorted(state.slices):
            kind = declared.get(name)
            spelled = spelling(kind) if kind is not None else name
            items = tuple(to_plain(value) for value in shown(name, state.all(name)))
            own_name = name if kind is not None and kind.__name__ != name else ""
            slices.append(SnapshotSlice(spelled, spelled, items, own_name))
        return cls(tuple(slices), tag)

    def to_plain(self) -> dict[str, Any]:
        """The snapshot as plain JSON."""
        form: dict[str, Any] = {"slices": [msgspec.to_builtins(one) for one in self.slices]}
        for one, entry in zip(self.slices, form["slices"], strict=True):
            entry["items"] = list(one.items)
        return form if self.tag is None else {**form, "tag": self.tag}

    def to_json(self) -> str:
        """The snapshot as JSON text."""
        return msgspec.json.encode(self.to_plain()).decode()

    @classmethod
    def from_plain(cls, data: Any) -> Snapshot:
        """The snapshot that plain JSON means; SnapshotRestoreError if it is none."""
        try:
            form = msgspec.convert(data, _Form)
        except msgspec.ValidationError as error:
            raise SnapshotRestoreError(f"This is no snapshot of a session: {error}") from error
        return cls(form.slices, form.tag)

    @classmethod
    def from_json(cls, text: str | bytes) -> Snapshot:
        """The snapshot that a text means; SnapshotRestoreError if it is none."""
        return cls.from_plain(json_of(text, "snapshot of a session"))


def json_of(text: str | bytes, what: str) -> Any:
    """The JSON in a text that is to be a snapshot."""
    try:
        return read_json(text if isinstance(text, str) else bytes(text).decode())
    except (SchemaError, UnicodeDecodeError, TypeError) as error:
        raise SnapshotRestoreError(f"This is no {what}: {error}") from error


class _Messages:
    """Messages, for questions that are asked of a session."""

    def __init__(self, messages: tuple[InnerMessage, ...]) -> None:
        self._messages = messages

    def select_all(self, slice_type: Any, /) -> tuple[InnerMessage, ...]:
        return self._messages


def shown(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A slice's values as readers see them: calls have the status that tool messages say."""
    if name != MESSAGES or not all(isinstance(value, InnerMessage) for value in values):
        return values
    with_status = {m.message_id: m for m in get_inner_messages(_Messages(values))}
    return tuple(with_status[message.message_id] for message in values)
