"""Ten thousand malformed inputs, at the codec and at append: typed errors, nothing written.

An input that is accepted is not malformed: it must be read back with the same meaning. The numbers
count refusals only.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from tests.conformance.samples import PICTURE, note, one_of_each, started
from turnledger.ledger import (
    ANY,
    NEW,
    Codec,
    CustomEvent,
    Draft,
    Event,
    EventDecodeError,
    InvalidEventError,
    InvalidInputError,
    Ledger,
    RunStarted,
    TurnledgerError,
    new_run_id,
)
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.events.upcasters import UPCASTERS

AT_THE_CODEC = 7000
AT_APPEND = {"memory": 1000, "sqlite": 200}
CODEC = Codec()


# --- the codec -------------------------------------------------------------------------


def payloads() -> list[tuple[str, bytes]]:
    """A valid payload of every tag, also of the retired ones."""
    old = (Path(__file__).parent / "payloads" / "message.recorded.json").read_bytes()
    found = [CODEC.encode(event) for event in [started(), *one_of_each()]]
    prompt = b'{"prompt_ns":"n","prompt_key":"k",'
    found += [
        ("prompt.override_set", prompt + b'"path":"p","body":"b","replaces":"d"}'),
        ("prompt.override_cleared", prompt + b'"path":"p"}'),
        ("prompt.tag_moved", prompt + b'"tag_name":"stable","version":1}'),
    ]
    found += [("run.claimed", b'{"worker":"w","epoch":1}'), ("message.recorded", old)]
    assert {tag for tag, _ in found} == {*EVENT_TYPES, *UPCASTERS}
    return found


JUNK_JSON = [
    b"null",
    b"true",
    b"-1",
    b"1.5",
    b"1e400",
    b"-1e400",
    b"9" * 400,
    b"9" * 5000,
    b"NaN",
    b"Infinity",
    b'""',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\x00"',
    b'"unterminated',
    b"[]",
    b"[[]]",
    b"{}",
    b'{"a":1}',
    b"[" * 2000,
    b"[" * 2000 + b"]" * 2000,
    b'{"a":' * 2000 + b"1" + b"}" * 2000,
    b"",
    b"undefined",
    b"'single'",
    b"\xef\xbb\xbf{}",
]


def junk(dice: random.Random) -> tuple[str, bytes]:
    """A tag, known or not, with something that never was its payload."""
    tags = [
        *EVENT_TYPES,
        *UPCASTERS,
        "",
        "no.such",
        "RUN.STARTED",
        "custom\x00",
        "ledger.events.types:X",
    ]
    raw = dice.choice(
        [
            dice.choice(JUNK_JSON),
            bytes(dice.randrange(256) for _ in range(dice.randrange(40))),
            "".join(dice.choice('{}[]":,0123e-.ntf\\u ') for _ in range(30)).encode(),
        ]
    )
    return dice.choice(tags), raw


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from paths(item, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with another one at the path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


def look(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def mutated(tag: str, data: bytes, dice: random.Random) -> bytes:
    """A valid payload with one thing about it changed."""
    how = dice.choice(["drop", "rename", "extra", "junk", "junk", "truncate", "byte", "wrap"])
    value = msgspec.json.decode(data)
    objects = [p for p in paths(value) if isinstance(look(value, p), dict)]
    path = dice.choice(objects)
    here = dict(look(value, path))
    if how == "truncate":
        return data[: dice.randrange(len(data))]
    if how == "byte":
        raw = bytearray(data)
        raw[dice.randrange(len(raw))] = dice.randrange(256)
        return bytes(raw)
    if how == "wrap":
        return dice.choice([b"[%b]", b'{"data":%b}', b"%b %b", b"%b,"]).replace(b"%b", data)
    if how == "extra":
        here["".join(dice.choices(string.ascii_lowercase, k=5))] = dice.choice([None, 1, [], {}])
    elif here and how == "drop":
        del here[dice.choice(sorted(here))]
    elif here and how == "rename":
        key = dice.choice(sorted(here))
        here[key + dice.choice(["_", "s", "\x00", " "])] = here.pop(key)
    else:
        marker = "<<here>>"
        text = msgspec.json.encode(put(value, dice.choice(list(paths(value))), marker))
        return text.replace(b'"<<here>>"', dice.choice(JUNK_JSON))
    return msgspec.json.encode(put(value, path, here))


def test_malformed_payloads_are_typed_errors() -> None:
    """Junk and mutated payloads of every tag: EventDecodeError, which names the tag."""
    dice = random.Random(20260101)
    valid = payloads()
    refused: dict[str, int] = {}
    while sum(refused.values()) < AT_THE_CODEC:
        if dice.random() < 0.25:
            tag, data = junk(dice)
        else:
            tag, good = dice.choice(valid)
            data = mutated(tag, good, dice)
        given: Any = data
        if dice.random() < 0.5:
            given = data.decode("utf-8", "surrogateescape")
        outcome = decoded(tag, given)
        if isinstance(outcome, EventDecodeError):
            assert outcome.tag == tag
            assert repr(tag) in str(outcome)
            refused[tag] = refused.get(tag, 0) + 1
        else:
            assert_sound(outcome)
    assert {*EVENT_TYPES, *UPCASTERS} <= set(refused)


def decoded(tag: str, data: Any) -> Event | EventDecodeError:
    try:
        return CODEC.decode(tag, data)
    except EventDecodeError as error:
        return error


def assert_sound(event: Event) -> None:
    """What was accepted is an event like any other, or is over the limits for a new one."""
    try:
        tag, data = CODEC.encode(event)
    except InvalidInputError:
        return
    assert CODEC.decode(tag, data) == event


@pytest.mark.parametrize("data", [None, 7, 1.5, [], {}, object()])
def test_what_is_neither_text_nor_bytes_is_a_typed_error(data: Any) -> None:
    """Also for retired tags."""
    for tag in ("custom", "message.recorded"):
        with pytest.raises(EventDecodeError):
            CODEC.decode(tag, data)


# --- append ------------------------------------------------------------------------------


class Hostile:
    """Fails at whatever is asked of it."""

    def __repr__(self) -> str:
        return "<hostile>"

    def __iter__(self) -> Iterator[Any]:
        raise ZeroDivisionError

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def circle() -> list[Any]:
    one: list[Any] = []
    one.append({"again": one})
    return one


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def bad_values() -> list[Any]:
    """What no field of any event takes."""
    return [
        object(),
        Hostile(),
        {1, 2},
        frozenset("ab"),
        b"bytes",
        bytearray(b"x"),
        memoryview(b"x"),
        float("nan"),
        float("inf"),
        2j,
        "\ud800",
        ["a\udfff"],
        {"\ud800": 1},
        {1: 2},
        {None: 1},
        {("a",): 1},
        {"a": {1, 2}},
        [object()],
        circle(),
        deep(300),
        deep(5000),
        datetime(2026, 1, 1),
        range(3),
        iter([1]),
        (n for n in "ab"),
        lambda: None,
        int,
        Exception("x"),
        RunStarted(),
        Ellipsis,
        NotImplemented,
    ]


def wrong_field(dice: random.Random) -> Event | None:
    """A valid event with one field of it replaced by something that no field takes."""
    event = dice.choice([started(), *one_of_each()])
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    bad = dice.choice(bad_values())
    try:
        if "message" in fields and dice.random() < 0.8:
            inner = fields["message"]
            values = {name: getattr(inner, name) for name in inner.__struct_fields__}
            values[dice.choice(sorted(values))] = bad
            fields["message"] = type(inner)(**values)
        else:
            fields[dice.choice(sorted(fields))] = bad
        return type(event)(**fields)
    except (ValueError, TypeError):
        return None  # the class itself refused it


NON_EVENTS: list[Any] = [
    None,
    7,
    "run.started",
    b"{}",
    {},
    {"type": "custom", "data": {}},
    [],
    (note(), uuid4()),
    RunStarted,
    object(),
    Hostile(),
    {"a": note()},
    [[note()]],
    3.5,
    True,
]
BAD_IDS: list[Any] = [None, 7, "", "x", "0" * 31, "g" * 32, b"0" * 32, 1.5, object(), [], "\ud800"]
BAD_VERSIONS: list[Any] = [-1, True, False, "1", 1.0, None, float("nan"), object(), [], "new", b"1"]
BAD_EPOCHS: list[Any] = ["1", 1.0, True, object(), [], b"1", float("inf")]
BAD_BLOBS: list[Any] = [
    [None],
    ["x"],
    [7],
    [bytearray(b"x")],
    [b"ok", "x"],
    "text",
    7,
    [[b"x"]],
    None,
    1.5,
    b"bytes",
    object(),
]


def malformed_append(dice: random.Random) -> dict[str, Any] | None:
    """Arguments of an append, one of them malformed."""
    arguments: dict[str, Any] = {"events": [note()], "expected_version": ANY}
    how = dice.choice(
        ["field", "field", "field", "field", "event", "id", "version", "epoch", "blobs", "run"]
    )
    if how == "field":
        event = wrong_field(dice)
        if event is None:
            return None
        batch: list[Any] = [note()] * dice.randrange(3)
        batch.insert(dice.randrange(len(batch) + 1), event)
        arguments["events"] = batch
    elif how == "event":
        bad = dice.choice(NON_EVENTS)
        arguments["events"] = dice.choice([bad, [bad], [note(), bad], (bad, note())])
    elif how == "id":
        arguments["events"] = [note(), Draft(note(), dice.choice(BAD_IDS))]
    elif how == "version":
        arguments["expected_version"] = dice.choice(BAD_VERSIONS)
    elif how == "epoch":
        arguments["epoch"] = dice.choice(BAD_EPOCHS)
    elif how == "blobs":
        arguments["blobs"] = dice.choice(BAD_BLOBS)
    else:
        arguments["run_id"] = dice.choice(BAD_IDS)
    return arguments


def appended(ledger: Ledger, run: Any, arguments: dict[str, Any]) -> object:
    try:
        return ledger.append(run, **arguments)
    except (TurnledgerError, ZeroDivisionError) as error:
        return error


@pytest.mark.slow
@pytest.mark.parametrize("store", AT_APPEND)
def test_malformed_appends_are_typed_errors_and_write_nothing(store: str, tmp_path: Path) -> None:
    """Wrong fields, non-events, ids, versions, epochs, blobs: refused, head and tail unchanged."""
    dice = random.Random(20260102)
    url = "memory://" if store == "memory" else str(tmp_path / "ledger.db")
    with Ledger.open(url) as ledger:
        run = new_run_id()
        ledger.append(run, [RunStarted(), note()], NEW, blobs=[PICTURE])
        before = (list(ledger.tail()), list(ledger.runs()))
        refused = 0
        while refused < AT_APPEND[store]:
            arguments = malformed_append(dice)
            if arguments is None:
                continue
            spare = new_run_id()
            target = arguments.pop("run_id", dice.choice([run, spare]))
            outcome = appended(ledger, target, arguments)
            if isinstance(outcome, ZeroDivisionError):
                assert isinstance(arguments["events"], Hostile)
            else:
                assert isinstance(outcome, InvalidInputError), arguments
                assert str(outcome)
            refused += 1
            assert ledger.head(run) == 2
            assert ledger.head(spare) == 0
        assert (list(ledger.tail()), list(ledger.runs())) == before
        assert ledger.append(run, note(), 2).version == 3
        assert ledger.verify_all().ok


def test_what_an_iterable_raises_is_passed_on() -> None:
    """An error of the caller's own is not turned into one of ours; nothing is written."""

    def events(error: BaseException) -> Iterator[Event]:
        yield note()
        raise error

    def blobs(error: BaseException) -> Iterator[bytes]:
        yield b"x"
        raise error

    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        for error in (ZeroDivisionError(), TypeError("mine"), KeyboardInterrupt(), ValueError()):
            with pytest.raises(type(error)) as caught:
                ledger.append(run, events(error), NEW)
            assert caught.value is error
            with pytest.raises(type(error)) as caught:
                ledger.append(run, note(), NEW, blobs=blobs(error))
            assert caught.value is error
        assert ledger.head(run) == 0
        assert list(ledger.tail()) == []


def test_a_malformed_event_is_named_with_its_field() -> None:
    """So that one knows where to look."""
    with Ledger.open("memory://") as ledger:
        for event, parts in (
            (RunStarted(time_limit="long"), ["RunStarted", "time_limit"]),  # type: ignore[arg-type]
            (RunStarted(tags={"a": 1}), ["RunStarted", "tags"]),  # type: ignore[dict-item]
            (CustomEvent(kind="nodot"), ["CustomEvent", "kind"]),
            (CustomEvent(kind="a.b", data={"x": [{1}]}), ["CustomEvent", "data.x[0]", "set"]),
            (CustomEvent(kind="a.b", data=b"x"), ["CustomEvent", "data"]),
        ):
            with pytest.raises(InvalidEventError) as caught:
                ledger.append(new_run_id(), event, NEW)
            for part in parts:
                assert part in str(caught.value)
