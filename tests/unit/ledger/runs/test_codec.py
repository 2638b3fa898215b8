"""The codec: what goes in comes out equal, and nothing else goes in."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Any, get_args
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given, settings

from tests.conformance.samples import message, one_of_each, started
from tests.unit.ledger.strategies import of_struct
from turnledger.ledger import (
    CheckpointReached,
    Codec,
    CustomEvent,
    Event,
    EventDecodeError,
    InnerMessage,
    InvalidEventError,
    MediaContent,
    MessageAppended,
    RunStarted,
    RunWaiting,
    TurnledgerError,
    UnknownEventTypeError,
)
from turnledger.ledger.events import types as events
from turnledger.ledger.events.types import CATALOGUE, EVENT_TYPES, BaseEvent

CODEC = Codec()


class Text(str):
    """Text with methods of its own, like LangChain's: called, it gives something else."""

    def __call__(self) -> str:
        return "called"

    def __str__(self) -> str:
        return "something else"


class Proud(Text):
    """Text that equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 7


class Shade(StrEnum):
    """Text from a list."""

    RED = "red"


class Size(IntEnum):
    """A number from a list."""

    LARGE = 3


class Metres(float):
    """A number with a unit, like numpy's."""


class Pieces(int):
    """A number with a unit."""


@pytest.mark.parametrize("kind", EVENT_TYPES.values(), ids=lambda kind: kind.__name__)
def test_what_is_encoded_is_decoded_equal(kind: type[Event]) -> None:
    """For every kind of event, whatever its fields hold; and the second time it is the same."""

    @settings(max_examples=30)
    @given(of_struct(kind))
    def comes_back(event: Event) -> None:
        tag, data = CODEC.encode(event)
        assert tag == kind.tag
        decoded = CODEC.decode(tag, data)
        assert decoded == event
        assert type(decoded) is kind
        assert CODEC.encode(decoded) == (tag, data)
        assert CODEC.decode(tag, data.decode()) == event

    comes_back()


def subclasses(kind: type) -> set[type]:
    return {kind, *(one for child in kind.__subclasses__() for one in subclasses(child))}


def test_every_event_is_in_the_union_and_in_the_registry() -> None:
    """A forgotten one could be written by nobody and read by nobody."""
    declared = {
        one
        for one in subclasses(BaseEvent) - {BaseEvent}
        if one.__module__ == "turnledger.ledger.events.types"
    }
    assert declared == set(get_args(Event)) == set(EVENT_TYPES.values())
    assert declared == {
        value
        for value in vars(events).values()
        if isinstance(value, type) and issubclass(value, BaseEvent) and value is not BaseEvent
    }


def test_tags_are_unique_plain_and_their_own() -> None:
    """A tag is lower-case words with dots; each class states its own."""
    tags = [kind.tag for kind in get_args(Event)]
    assert len(set(tags)) == len(tags) == len(EVENT_TYPES)
    for tag, kind in EVENT_TYPES.items():
        assert "tag" in vars(kind)
        assert kind.tag == tag
        assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", tag)


def test_every_event_says_what_it_means() -> None:
    """Each class has a docstring of its own."""
    assert all((vars(kind).get("__doc__") or "").strip() for kind in EVENT_TYPES.values())


def test_no_import_path_reaches_the_disk() -> None:
    """Neither tags nor payloads name a module or a class."""
    for event in [started(), *one_of_each()]:
        tag, data = CODEC.encode(event)
        text = tag + data.decode()
        assert "ledger." not in text
        assert type(event).__name__ not in text


def test_defaults_are_not_written() -> None:
    """A payload holds what was said."""
    assert CODEC.encode(RunStarted()) == ("run.started", b"{}")
    assert CODEC.encode(RunWaiting(reason="")) == ("run.waiting", b'{"reason":""}')


def test_events_are_immutable() -> None:
    """A fact is not changed after it was stated."""
    for event in [started(), *one_of_each(), message().message]:
        field = event.__struct_fields__[0]
        with pytest.raises(AttributeError):
            setattr(event, field, None)


def test_what_is_no_event_is_refused() -> None:
    """Also a message, a dict that looks like one, a class, and somebody's own subclass."""

    class Private(CustomEvent, frozen=True):
        pass

    for thing in (
        None,
        7,
        "run.started",
        {"tag": "custom"},
        message().message,
        RunStarted,
        Private(kind="a.b"),
        object(),
    ):
        with pytest.raises(InvalidEventError, match="not in the catalogue"):
            CODEC.encode(thing)  # type: ignore[arg-type]


class Colour(Enum):
    RED = "red"


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WRONG: list[Any] = [
    RunWaiting(reason=7),  # type: ignore[arg-type]
    RunWaiting(reason=None),  # type: ignore[arg-type]
    RunWaiting(reason=b"bytes"),  # type: ignore[arg-type]
    RunWaiting(reason="x", call_ids="abc"),  # type: ignore[arg-type]
    RunWaiting(reason="x", call_ids=(1,)),  # type: ignore[arg-type]
    RunWaiting(reason="x", call_ids=(b"x",)),  # type: ignore[arg-type]
    RunStarted(tags={"a": 1}),  # type: ignore[dict-item]
    RunStarted(tags={"a": b"b"}),  # type: ignore[dict-item]
    RunStarted(tags=[("a", "b")]),  # type: ignore[arg-type]
    RunStarted(request_id="not a uuid"),  # type: ignore[arg-type]
    RunStarted(time_limit=-1.0),
    RunStarted(time_limit="5"),  # type: ignore[arg-type]
    RunStarted(requested_at=datetime(2026, 1, 1)),
    RunStarted(requested_at="2026-01-01T00:00:00"),  # type: ignore[arg-type]
    RunStarted(request={1: 2}),
    RunStarted(request={"a": {1, 2}}),
    RunStarted(request=float("nan")),
    RunStarted(request=float("inf")),
    RunStarted(request=b"bytes"),
    RunStarted(request=uuid4()),
    RunStarted(request=[NOON]),
    RunStarted(request=Colour.RED),
    RunStarted(request=RunStarted()),
    RunStarted(request=object()),
    RunStarted(request={"a": {"b": uuid4()}}),
    CustomEvent(kind="no_dot"),
    CustomEvent(kind="a.b\n"),
    CustomEvent(kind="a..b"),
    CustomEvent(kind="a.é"),
    CustomEvent(kind="a." + "b" * 200),
    MessageAppended(message=None),  # type: ignore[arg-type]
    MessageAppended(message={"role": "user"}),  # type: ignore[arg-type]
    MessageAppended(
        message={"role": "user", "content": "", "evaluation_id": "", "sequence": 0}  # type: ignore[arg-type]
    ),
    MessageAppended(message=InnerMessage("user", b"x", "e", 0)),  # type: ignore[arg-type]
    MessageAppended(message=InnerMessage("user", "x", "e", -1)),
    MessageAppended(message=InnerMessage("user", "x", "e", True)),
    MessageAppended(message=InnerMessage("user", "x", "e", 1.5)),  # type: ignore[arg-type]
    MessageAppended(message=InnerMessage("user", "x", "e", 2**53 + 1)),
    MessageAppended(message=InnerMessage("user", "x", "e", 0, value={1})),
    MessageAppended(message=InnerMessage("user", "x", "e", 0, value={"a": uuid4()})),
    MessageAppended(message=InnerMessage("user", "x", "e", 0, parts=("text",))),  # type: ignore[arg-type]
    CheckpointReached(
        phase="elsewhere",  # type: ignore[arg-type]
        tool_calls_completed=0,
        state_digest="",
        created_at=NOON,
    ),
]


@pytest.mark.parametrize("event", WRONG, ids=[f"{n}" for n in range(len(WRONG))])
def test_a_field_of_another_type_is_refused(event: Event) -> None:
    """What would come back as something else, or not at all, does not go in."""
    with pytest.raises(InvalidEventError, match=type(event).__name__):
        CODEC.encode(event)


def test_tuples_are_lists_in_free_json() -> None:
    """JSON knows one kind of sequence; a list where a tuple is declared is fine too."""
    event = CustomEvent(kind="a.b", data={"a": (1, (2, [3]))})
    assert CODEC.decode(*CODEC.encode(event)).data == {"a": [1, [2, [3]]]}  # type: ignore[union-attr]
    waiting = RunWaiting(reason="x", call_ids=["a", "b"])  # type: ignore[arg-type]
    assert CODEC.decode(*CODEC.encode(waiting)) == RunWaiting(reason="x", call_ids=("a", "b"))


@pytest.mark.parametrize("kind", [Text, Proud])
def test_text_of_a_class_of_its_own_is_text(kind: type[Text]) -> None:
    """In typed fields and free JSON, as values and as keys; what is read is plain text."""
    one = kind("ü ' \" \\ x")
    plain = str.__str__(one)
    for event, expected in [
        (CustomEvent(kind="a.b", data=one), CustomEvent(kind="a.b", data=plain)),
        (
            CustomEvent(kind=kind("a.b"), data={one: [{"x": one, "n": 1}]}),
            CustomEvent(kind="a.b", data={plain: [{"x": plain, "n": 1}]}),
        ),
        (RunStarted(tags={one: one}), RunStarted(tags={plain: plain})),
        (message(content=one, value=(one,)), message(content=plain, value=[plain])),
    ]:
        tag, data, decoded, _ = CODEC.encode_checked(event)
        assert (tag, data) == CODEC.encode(expected)
        assert decoded == expected
        assert repr(decoded) == repr(expected)
    read = CODEC.encode_checked(CustomEvent(kind="a.b", data={one: one}))[2]
    assert isinstance(read, CustomEvent)
    assert {type(part) for pair in read.data.items() for part in pair} == {str}


def test_enums_and_numbers_of_classes_of_their_own_are_their_values() -> None:
    """Nothing is lost of them in JSON."""
    data = {Shade.RED: [Shade.RED, Size.LARGE, Metres(1.5), Pieces(7)]}
    read = CODEC.encode_checked(CustomEvent(kind="a.b", data=data))[2]
    assert repr(read) == repr(CustomEvent(kind="a.b", data={"red": ["red", 3, 1.5, 7]}))


@pytest.mark.parametrize(
    "data",
    [
        {Proud("k"): 1, "k": 2},
        Metres("nan"),
        Pieces(2**64),
        {Pieces(1): "x"},
        Text("\ud800"),
        [Proud("x"), {1: 2}],
    ],
    ids=["two-keys", "nan", "too-long", "number-as-key", "no-unicode", "beside"],
)
def test_subclasses_hide_nothing_that_is_not_json(data: object) -> None:
    """Two keys that are the same text would be one; other refusals are as for plain values."""
    with pytest.raises(InvalidEventError):
        CODEC.encode(CustomEvent(kind="a.b", data=data))


@pytest.mark.parametrize(
    "offset",
    [
        timedelta(hours=14),
        timedelta(hours=-12),
        timedelta(minutes=1),
        timedelta(hours=1, seconds=30),
        timedelta(microseconds=1),
    ],
)
def test_a_moment_means_the_same_afterwards(offset: timedelta) -> None:
    """In any time zone, also one that is off by seconds; or it is refused."""
    moment = datetime(1901, 2, 3, 4, 5, 6, 789, tzinfo=timezone(offset))
    event = RunStarted(requested_at=moment)
    try:
        tag, data = CODEC.encode(event)
    except InvalidEventError:
        return
    assert CODEC.decode(tag, data) == event


def test_media_is_in_exactly_one_place() -> None:
    """url or blob, by construction."""
    for places in ({}, {"url": "u", "blob": "b"}):
        with pytest.raises(ValueError, match="exactly one"):
            MediaContent("image", **places)


def test_a_run_with_a_parent_says_where_it_left_it() -> None:
    """parent, at and kind go together."""
    parent = UUID(int=1)
    for fields in (
        {"parent": parent},
        {"parent": parent, "at": 1},
        {"parent": parent, "kind": "fork"},
        {"at": 1},
        {"kind": "fork"},
        {"time_limit": float("inf")},
        {"time_limit": float("nan")},
    ):
        with pytest.raises(ValueError):
            RunStarted(**fields)


def test_every_required_field_is_required_in_data_too() -> None:
    """A payload without one is no event."""
    for event in [started(), *one_of_each()]:
        tag, data = CODEC.encode(event)
        for info in msgspec.structs.fields(type(event)):
            if info.required:
                payload = msgspec.json.decode(data)
                del payload[info.encode_name]
                with pytest.raises(EventDecodeError, match=info.encode_name) as caught:
                    CODEC.decode(tag, msgspec.json.encode(payload))
                assert caught.value.tag == tag


def test_a_field_that_nobody_declared_is_an_error() -> None:
    """Nothing is dropped silently, on any level."""
    for tag, data in (
        ("run.started", b'{"more":1}'),
        ("run.started", b'{"budget":{"more":1}}'),
        (
            "message.appended",
            b'{"message":{"role":"user","content":"","evaluation_id":"","sequence":0,"more":1}}',
        ),
    ):
        with pytest.raises(EventDecodeError, match="more"):
            CODEC.decode(tag, data)


@pytest.mark.parametrize("written", [None, 0, CATALOGUE])
def test_an_unknown_tag_from_an_older_ledger_is_damage(written: int | None) -> None:
    """The program knows all that could have been written here."""
    with pytest.raises(UnknownEventTypeError, match="not too old") as caught:
        Codec(written=written).decode("run.teleported", b"{}")
    assert caught.value.program_too_old is False
    assert caught.value.tag == "run.teleported"
    assert "'run.teleported'" in str(caught.value)


def test_an_unknown_tag_from_a_newer_ledger_means_that_the_program_is_too_old() -> None:
    """It says what to do."""
    with pytest.raises(UnknownEventTypeError, match="program is too old") as caught:
        Codec(written=CATALOGUE + 1).decode("run.teleported", b"{}")
    assert caught.value.program_too_old is True
    assert "Upgrade" in str(caught.value)


def test_errors_of_the_codec_are_of_the_one_tree() -> None:
    """So that one `except` finds them."""
    assert issubclass(EventDecodeError, TurnledgerError)
    assert issubclass(UnknownEventTypeError, EventDecodeError)
