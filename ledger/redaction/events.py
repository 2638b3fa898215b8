"""Redaction of events: replaces secrets in their text and free JSON, and nowhere else.

Ids, digests, blob names, times and numbers stay: the ledger finds and verifies records by them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from turnledger.ledger.events.messages import (
    InnerMessage,
    MediaContent,
    TextContent,
    ToolCallRecord,
)
from turnledger.ledger.events.types import (
    Event,
    MessageAppended,
    OfferedTool,
    ResourceSnapshotted,
    SliceChange,
)
from turnledger.ledger.redaction.redactor import Path, Redactor

StructT = TypeVar("StructT", bound=msgspec.Struct)
_MARK = r"\[redacted: ([^]]*)\]"

# Fields with text that identifies something.
_IDS = frozenset(
    {
        "blob",
        "blobs",
        "call_id",
        "call_ids",
        "digest",
        "evaluation_id",
        "outcome_digest",
        "parent",
        "prompt_digest",
        "request_digest",
        "spec",
        "state_digest",
        "tool_call_id",
        "tools_digest",
    }
)
_NO_TEXT = (NoneType, bool, int, float, UUID, datetime)


def _holds_text(hint: Any) -> bool:
    if get_origin(hint) is Literal or hint in _NO_TEXT:
        return False
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint in _HOLDERS
    parts = [one for one in get_args(hint) if one is not Ellipsis]
    return any(_holds_text(one) for one in parts) if parts else True


_HOLDERS = (InnerMessage, ToolCallRecord, TextContent, MediaContent, OfferedTool, SliceChange)


@cache
def _text_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a struct that hold text."""
    return tuple(
        name
        for name, hint in get_type_hints(kind).items()
        if name in kind.__struct_fields__ and name not in _IDS and _holds_text(hint)
    )


@cache
def _getter(kind: type[Event]) -> Callable[[Event], Any] | None:
    """Gets all text of an event at once, for the prefilter."""
    names = _text_fields(kind)
    if kind is MessageAppended:
        names = tuple(f"message.{name}" for name in _text_fields(InnerMessage))
    return attrgetter(*names) if names else None


_encode = msgspec.json.Encoder().encode


def redacted(event: Event, redactor: Redactor) -> Event:
    """An event with its secrets replaced; the same object if there are none.

    The result may not fit its type, since a marker may be too long for a field: encode it.
    """
    return _struct(event, redactor, ()) if may_hold_secrets((event,), redactor) else event


def may_hold_secrets(events: Iterable[Event], redactor: Redactor) -> bool:
    """Whether one of these events may have to be redacted: one look at the text of all of them."""
    texts: list[str] = []
    for event in events:
        getter = _getter(type(event))
        values = () if getter is None else getter(event)
        for value in values if type(values) is tuple else (values,):
            if type(value) is str:
                texts.append(value)
            elif value or value == 0:
                texts.append(_encode(value).decode())
    return redactor.may_be_in("\n".join(texts))


class RedactedPart(msgspec.Struct, frozen=True):
    """A part of an event that the redactor changed, and what it found there.

    `path` leads to it from the event, "message.content[0].text"; `formats` are the names of the
    formats, patterns or fields whose marks stand in it now.
    """

    path: str
    formats: tuple[str, ...]

    @property
    def field(self) -> str:
        """The event's field that it is in."""
        return self.path.partition(".")[0].partition("[")[0]

    def __str__(self) -> str:
        path = self.path[:200] if self.path.isprintable() else repr(self.path[:200])
        return f"{path} ({', '.join(self.formats)})"


def redacted_parts(given: Event, made: Event) -> tuple[RedactedPart, ...]:
    """What a redactor changed in an event."""
    return tuple(
        RedactedPart(path.removeprefix("."), new_formats(before, after))
        for path, before, after in replaced_parts(given, made, "")
    )


def new_formats(given: Any, made: Any) -> tuple[str, ...]:
    """The formats whose marks a value has, and did not have before it was redacted."""
    return tuple(Counter(re.findall(_MARK, str(made))) - Counter(re.findall(_MARK, str(given))))


def replaced_parts(given: Any, made: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The places where a redacted value differs from the given one: what they held, and hold."""
    if given is made or given == made:
        return
    if isinstance(given, msgspec.Struct) and type(made) is type(given):
        for name in given.__struct_fields__:
            yield from replaced_parts(getattr(given, name), getattr(made, name), f"{path}.{name}")
    elif isinstance(given, dict) and isinstance(made, dict) and len(given) == len(made):
        # In order, since a key may be a secret itself: the error names it as redacted.
        for (key, item), (new_key, new) in zip(given.items(), made.items(), strict=True):
            if key != new_key:
                yield f"{path}.{new_key}", key, new_key
            yield from replaced_parts(item, new, f"{path}.{new_key}")
    elif (
        isinstance(given, list | tuple)
        and isinstance(made, list | tuple)
        and len(given) == len(made)
    ):
        for place, (item, new) in enumerate(zip(given, made, strict=True)):
            yield from replaced_parts(item, new, f"{path}[{place}]")
    else:
        yield path, given, made


def _struct(holder: StructT, redactor: Redactor, path: Path) -> StructT:
    changed = {}
    for name in _text_fields(type(holder)):
        value = getattr(holder, name)
        if isinstance(holder, ResourceSnapshotted) and name == "files":
            made: Any = _paths(value, redactor)
        else:
            made = _value(value, redactor, (*path, name))
        if made is not value:
            changed[name] = made
    if "files" in changed and isinstance(holder, ResourceSnapshotted):
        # A file with a redacted name is recorded under the marker: that it is also "removed" under
        # the same marker would say that it is gone.
        changed["removed"] = tuple(
            path for path in changed.get("removed", holder.removed) if path not in changed["files"]
        )
    return msgspec.structs.replace(holder, **changed) if changed else holder


def _value(value: Any, redactor: Redactor, path: Path) -> Any:
    if isinstance(value, msgspec.Struct):
        return _struct(value, redactor, path)
    if isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        made = tuple(_value(item, redactor, path) for item in value)
        return value if all(a is b for a, b in zip(made, value, strict=True)) else made
    return redactor.value(value, path)


def _paths(files: Mapping[str, str], redactor: Redactor) -> Mapping[str, str]:
    """Redact paths of files; the values are blob names and stay."""
    names = redactor.value(dict.fromkeys(files, 0))
    if list(names) == list(files):
        return files
    return dict(zip(names, files.values(), strict=True))
