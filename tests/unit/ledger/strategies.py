"""Strategies for events, built from their type hints: a new field is covered by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from turnledger.ledger import MediaContent, RunStarted, blob_name
from turnledger.ledger.events.types import EVENT_TYPES, Event

# The blobs that events name in their field `blobs`: to be given to the append.
BLOBS = (b"", b"\x00\xff", b"a picture")

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
moments = st.datetimes(
    datetime(1, 1, 2),
    datetime(9999, 12, 30),
    timezones=st.sampled_from(
        [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-12))]
    ),
)


def of_hint(hint: Any, meta: msgspec.Meta | None = None) -> st.SearchStrategy[Any]:
    """Values of a type as events spell it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        found = [one for one in args[1:] if isinstance(one, msgspec.Meta) and not one.extra]
        return of_hint(args[0], found[0] if found else None)
    if origin in (Union, UnionType):
        return st.one_of([of_hint(one) for one in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(of_hint(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(of_hint(args[0]), of_hint(args[1]), max_size=3)
    if hint is Any:
        return json_values
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return of_struct(hint)
    plain = {
        NoneType: st.none(),
        bool: st.booleans(),
        UUID: st.uuids(),
        datetime: moments,
        str: st.text(max_size=30),
    }
    if hint is str and meta is not None:
        return _text(meta)
    if hint is int:
        low = -(2**63) if meta is None or meta.ge is None else int(meta.ge)
        high = 2**63 - 1 if meta is None or meta.le is None else int(meta.le)
        return st.integers(low, high)
    if hint is float:
        return st.floats(0 if meta else None, allow_nan=False, allow_infinity=False)
    return plain[hint]


def _text(meta: msgspec.Meta) -> st.SearchStrategy[str]:
    if meta.pattern == r"^[^\x00]*$":
        return st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=40)
    assert meta.pattern is not None
    return st.from_regex(meta.pattern).filter(lambda text: len(text) <= (meta.max_length or 10**6))


@cache
def of_struct(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = {
        name: hint
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if get_origin(hint) is not ClassVar and name in kind.__struct_fields__
    }
    fields = {name: of_hint(hint) for name, hint in hints.items()}
    if "blobs" in fields:
        names = st.sampled_from([blob_name(content) for content in BLOBS])
        fields["blobs"] = st.lists(names, max_size=3).map(tuple)
    if kind is MediaContent:
        del fields["url"], fields["blob"]
        place = st.text(max_size=10)
        where = st.one_of(
            st.fixed_dictionaries({"url": place}), st.fixed_dictionaries({"blob": place})
        )
        return st.builds(lambda where, rest: kind(**where, **rest), where, _some(kind, fields))
    if kind is RunStarted:
        for name in ("parent", "at", "kind"):
            del fields[name]
        descent = st.one_of(
            st.just({}),
            st.fixed_dictionaries(
                {
                    "parent": st.uuids(),
                    "at": st.integers(1, 2**53),
                    "kind": st.sampled_from(["fork", "continuation"]),
                }
            ),
        )
        return st.builds(lambda way, rest: kind(**way, **rest), descent, _some(kind, fields))
    return _some(kind, fields).map(lambda values: kind(**values))


def _some(
    kind: type[msgspec.Struct], fields: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Required fields always, the others now and then."""
    required = {
        info.encode_name for info in msgspec.structs.fields(kind) if info.required
    } & fields.keys()
    return st.fixed_dictionaries(
        {name: fields[name] for name in fields if name in required},
        optional={name: fields[name] for name in fields if name not in required},
    )


def events(*kinds: type[Event]) -> st.SearchStrategy[Event]:
    """Events of these kinds, or of all."""
    return st.one_of([of_struct(kind) for kind in kinds or EVENT_TYPES.values()])
