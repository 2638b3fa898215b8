"""The codec: any object as an event on the way in, any bytes on the way out."""

from __future__ import annotations

import decimal
import enum
import json
import random
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

import msgspec

from tests.fuzz.material import payloads
from tests.fuzz.mutating import JUNK, as_json, mutate_bytes, mutate_json
from tests.fuzz.targets import Target, promise
from turnledger.ledger import Codec, EventDecodeError, InvalidInputError
from turnledger.ledger.events.messages import InnerMessage
from turnledger.ledger.events.types import EVENT_TYPES, Event
from turnledger.ledger.events.upcasters import UPCASTERS

CODEC = Codec()
TAGS = (*EVENT_TYPES, *UPCASTERS)
WORDS = tuple(sorted({name for kind in EVENT_TYPES.values() for name in kind.__struct_fields__}))


class Decoding(Target):
    """Damaged payloads of every tag."""

    name = "decode"
    inputs = 150_000
    few = 10_000
    goal = 500_000

    def draw(self, dice: random.Random) -> tuple[str, bytes]:
        tag, data = dice.choice(payloads())
        if dice.random() < 0.1:
            tag = dice.choice(TAGS) if dice.random() < 0.8 else dice.choice(("", "x.y", "\ud800"))
        if dice.random() < 0.5:
            return tag, mutate_bytes(dice, data, [dice.choice(payloads())[1]])
        return tag, as_json(dice, mutate_json(dice, json.loads(data), WORDS))

    def check(self, given: tuple[str, bytes]) -> bool:
        tag, data = given
        try:
            event = CODEC.decode(tag, data)
        except EventDecodeError:
            return False
        try:
            again, encoded = CODEC.encode(event)
        except InvalidInputError:
            return False  # readable, but nothing that an append would take
        promise(again == event.tag, f"{tag} came back as {again}")
        promise(CODEC.decode(again, encoded) == event, f"{event} came back otherwise: {encoded!r}")
        return True

    def shown(self, given: tuple[str, bytes]) -> str:
        return f"{given[0]!r} base64 {b64encode(given[1]).decode()}"


class Colour(enum.Enum):
    RED = "red"


class Wayward:
    """An object that fails at whatever is asked of it."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def __eq__(self, other: object) -> bool:
        raise self._error("no comparison")

    def __repr__(self) -> str:
        raise self._error("no repr")

    __hash__ = None  # type: ignore[assignment]


class OwnText(str):
    """Text that claims to differ from all text."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


class OwnDict(dict[str, Any]):
    """A dict that hides what it holds."""

    def items(self) -> Any:
        raise RuntimeError("no items")


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append({"again": circle})
    return circle


def _deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


OBJECTS: tuple[Callable[[], Any], ...] = (
    object,
    lambda: float("nan"),
    lambda: float("-inf"),
    lambda: b"bytes",
    lambda: bytearray(b"b"),
    lambda: memoryview(b"m"),
    lambda: {1, 2},
    lambda: frozenset("a"),
    lambda: (1, (2,)),
    lambda: datetime(2026, 1, 1),
    lambda: datetime(2026, 1, 1, tzinfo=UTC),
    lambda: datetime.max.replace(tzinfo=UTC),
    lambda: decimal.Decimal("1.10"),
    lambda: decimal.Decimal("NaN"),
    lambda: UUID(int=7),
    lambda: Colour.RED,
    lambda: 10**5000,
    lambda: -(10**30),
    lambda: {1: 2},
    lambda: {None: 1},
    lambda: {(1, 2): 3},
    lambda: {"\ud800": 1},
    lambda: {"a": {"b": {1.5: None}}},
    lambda: Wayward(RuntimeError),
    lambda: Wayward(ValueError),
    lambda: Wayward(KeyError),
    lambda: [Wayward(ZeroDivisionError)],
    lambda: OwnText("own"),
    lambda: OwnDict(a=1),
    lambda: {"a": OwnDict(b=[OwnText("c")])},
    _circle,
    lambda: _deep(63),
    lambda: _deep(64),
    lambda: _deep(65),
    lambda: _deep(3000),
    lambda: msgspec.Raw(b'{"a":1}'),
    lambda: msgspec.Raw(b"]broken"),
    lambda: msgspec.UNSET,
    lambda: (number for number in range(3)),
    lambda: Exception("an error"),
    lambda: int,
    lambda: len,
    lambda: InnerMessage("user", "hi", "e", 0),
    lambda: InnerMessage("user", None, 1, -1),  # type: ignore[arg-type]
    lambda: range(3),
    lambda: "x" * 600,
    lambda: "\x00",
    lambda: "a\ud800",
    lambda: True,
    lambda: 2**53 + 1,
    lambda: -1,
    lambda: 1.0,
    lambda: "2026-01-02T03:04:05Z",
)


@cache
def _samples() -> dict[type[Event], list[dict[str, Any]]]:
    found: dict[type[Event], list[dict[str, Any]]] = {}
    for tag, data in payloads():
        event = CODEC.decode(tag, data)
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        found.setdefault(type(event), []).append(fields)
    return found


class Encoding(Target):
    """Events whose fields hold any object of Python's."""

    name = "encode"
    inputs = 130_000
    few = 6_000
    goal = 260_000

    def draw(self, dice: random.Random) -> tuple[type[Event], dict[str, Any]]:
        kind = dice.choice(tuple(_samples()))
        fields = dict(dice.choice(_samples()[kind]))
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            name = dice.choice(tuple(fields) or ("reason",))
            message = fields.get("message")
            if isinstance(message, InnerMessage) and dice.random() < 0.9:
                # The role is checked when a message is made: no codec sees another.
                name = dice.choice([n for n in message.__struct_fields__ if n != "role"])
                changed = msgspec.structs.replace(message, **{name: _object(dice)})
                fields["message"] = changed
            else:
                fields[name] = _object(dice)
        return kind, fields

    def check(self, given: tuple[type[Event], dict[str, Any]]) -> bool:
        kind, fields = given
        try:
            event = kind(**fields)
        except (TypeError, ValueError):
            return False  # Python's own, before there is an event
        except (KeyError, RuntimeError, ZeroDivisionError):
            return False  # what a Wayward raises of itself when it is looked at
        try:
            tag, data, checked, _ = CODEC.encode_checked(event)
        except InvalidInputError:
            return False
        promise(CODEC.decode(tag, data) == checked, "what was checked is not what is read")
        again = CODEC.encode(checked)
        promise(CODEC.decode(*again) == checked, "encoding it again gives something else")
        return True

    def shown(self, given: tuple[type[Event], dict[str, Any]]) -> str:
        kind, fields = given
        return f"{kind.__name__} with " + ", ".join(
            f"{name}={_spelt(value)}" for name, value in fields.items()
        )


def _object(dice: random.Random) -> Any:
    match dice.randrange(6):
        case 0:
            return dice.choice(JUNK)
        case 1:
            return {dice.choice(WORDS): dice.choice(OBJECTS)()}
        case 2:
            return [dice.choice(JUNK), dice.choice(OBJECTS)()]
        case 3:
            return (dice.choice(OBJECTS)(),)
        case _:
            return dice.choice(OBJECTS)()


def _spelt(value: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", f"{value!r:.300}")  # the same in every process
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
