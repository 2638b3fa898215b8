"""Messages: three kinds, typed to the last field, that nobody can change."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from pydantic import HttpUrl, ValidationError

from tests.unit.ledger.strategies import json_values
from tests.unit.runtime.option_messages import messages
from turnledger.ledger import blob_name
from turnledger.runtime.agent.messages.message import (
    RESERVED_POLICIES,
    MediaPart,
    Message,
    OptionCallPayload,
    OptionResultPayload,
    PartsPayload,
    TextPart,
)
from turnledger.runtime.agent.schema import to_plain
from turnledger.runtime.agent.schema.frozen import FrozenDict, FrozenList, frozen_json
from turnledger.runtime.agent.schema.values import MAX_DEPTH

BLOB = blob_name(b"a picture")


def said(text: str = "Hi", **more: Any) -> Message:
    return Message(policy="user", payload=PartsPayload(parts=(TextPart(text=text),)), **more)


def called(arguments: Any) -> Message:
    payload = OptionCallPayload(invocation_id="i1", option_name="search", arguments=arguments)
    return Message(policy="planner", payload=payload)


def answered(result: Any) -> Message:
    payload = OptionResultPayload(invocation_id="i1", option_name="search", result=result)
    return Message(policy="search", payload=payload)


@given(messages)
def test_a_message_comes_back_from_its_json(message: Message) -> None:
    """S1-1: equal, and to the same text again, whatever it holds."""
    written = message.model_dump_json()
    again = Message.model_validate_json(written)
    assert again == message
    assert again.model_dump_json() == written


@pytest.mark.parametrize("field", ["policy", "role_hint_for_llm", "step_num", "payload", "record"])
def test_no_field_of_a_message_can_be_set(field: str) -> None:
    """S1-1: a message is immutable."""
    with pytest.raises(ValidationError, match="frozen"):
        setattr(said(), field, None)


@pytest.mark.parametrize(
    "value",
    [
        TextPart(text="a"),
        MediaPart(modality="image", blob=BLOB),
        PartsPayload(parts=()),
        called({}).payload,
        answered(1).payload,
    ],
)
def test_no_part_of_a_message_can_be_set_or_have_more_fields(value: Any) -> None:
    """S1-1: immutable all the way down, and typing errors in a field's name are found."""
    for field in type(value).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, field, None)
    with pytest.raises(ValidationError, match="extra"):
        type(value).model_validate({**value.model_dump(), "more": 1})


def test_arguments_and_results_are_copied_in_and_frozen_to_the_last_level() -> None:
    """S1-1: neither whoever made a message nor whoever reads it can change it."""
    mine: dict[str, Any] = {"list": [1, {"deep": [2]}]}
    call, result = called(mine), answered([mine])
    mine["list"][1]["deep"].append(3)
    assert call.payload == called({"list": [1, {"deep": [2]}]}).payload
    assert result.option_result is not None
    assert call.option_call is not None
    inner = call.option_call.arguments["list"][1]
    with pytest.raises(TypeError, match="to_plain"):
        inner["more"] = 1
    with pytest.raises(TypeError, match="to_plain"):
        inner["deep"].append(3)
    with pytest.raises(TypeError, match="to_plain"):
        result.option_result.result[0].clear()
    plain = to_plain(call.option_call.arguments)
    plain["list"].append("a copy can be changed")
    assert call.option_call.arguments == {"list": [1, {"deep": [2]}]}


CHANGES: dict[type, list[tuple[str, tuple[Any, ...]]]] = {
    FrozenDict: [
        ("__setitem__", ("a", 1)),
        ("__delitem__", ("a",)),
        ("__ior__", ({"b": 1},)),
        ("clear", ()),
        ("pop", ("a",)),
        ("popitem", ()),
        ("setdefault", ("b", 1)),
        ("update", ({"b": 1},)),
    ],
    FrozenList: [
        ("__setitem__", (0, 1)),
        ("__delitem__", (0,)),
        ("__iadd__", ([1],)),
        ("__imul__", (2,)),
        ("append", (1,)),
        ("extend", ([1],)),
        ("insert", (0, 1)),
        ("pop", ()),
        ("remove", ("a",)),
        ("clear", ()),
        ("sort", ()),
        ("reverse", ()),
    ],
}


@pytest.mark.parametrize("kind", CHANGES)
def test_every_way_to_change_a_frozen_value_is_refused(kind: Any) -> None:
    """S1-1: all methods by which a dict or a list changes, and the value stays as it was."""
    value = kind({"a": 1}) if kind is FrozenDict else kind(["a"])
    for method, arguments in CHANGES[kind]:
        with pytest.raises(TypeError, match="immutable"):
            getattr(value, method)(*arguments)
    assert value == ({"a": 1} if kind is FrozenDict else ["a"])


@given(json_values)
def test_a_frozen_value_is_like_the_value(value: Any) -> None:
    """Equal and with the same JSON, also when copied, pickled and frozen again."""
    frozen = frozen_json(value)
    assert frozen == value
    assert json.dumps(frozen) == json.dumps(value)
    for again in (
        copy.deepcopy(frozen),
        copy.copy(frozen),
        pickle.loads(pickle.dumps(frozen)),
        frozen_json(frozen),
    ):
        assert json.dumps(again) == json.dumps(value)
        assert type(again) is type(frozen)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "a: JSON has no nan"),
        ([float("-inf")], r"a\[0\]: JSON has no -inf"),
        ({1: 2}, "a: the keys of an object are text"),
        (object(), "a: object is not JSON"),
        ({"b": {1, 2}}, "a.b: set is not JSON"),
        (b"bytes", "a: bytes is not JSON"),
        (2**64, "a: an integer beyond 64 bits"),
        ("\ud800", "a: half of a surrogate pair"),
    ],
)
def test_arguments_that_are_no_json_are_refused_naming_the_place(value: Any, reason: str) -> None:
    """S1-8: with a validation error, when the message is made and not when it is stored."""
    with pytest.raises(ValidationError, match=reason):
        called({"a": value})
    with pytest.raises(ValidationError, match=r"JSON|keys|64 bits|surrogate"):
        answered(value)


def test_arguments_are_an_object_with_text_as_keys() -> None:
    """S1-8: nothing else is taken for one."""
    wrongs: list[Any] = [[], "{}", None, {1: 2}, {b"a": 1}]
    for wrong in wrongs:
        with pytest.raises(ValidationError):
            called(wrong)


def test_a_value_that_holds_itself_is_refused_in_a_message() -> None:
    """As is one that is nested deeper than a ledger takes."""
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(ValidationError):
        called(endless)
    deep: Any = 0
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert answered(deep).option_result is not None
    with pytest.raises(ValidationError, match="deeper"):
        answered([deep])


def test_a_policy_says_who_made_a_message_and_two_names_are_reserved() -> None:
    """S1-2: nobody is no policy."""
    assert called({}).policy == "planner"
    assert {"runtime", "executor"} == RESERVED_POLICIES
    with pytest.raises(ValidationError, match="at least 1"):
        Message(policy="", payload=PartsPayload(parts=()))


@pytest.mark.parametrize("hint", ["user", "assistant", "tool", "system", None])
def test_a_role_hint_is_one_of_four_or_none_and_changes_nothing_else(hint: Any) -> None:
    """S1-3: every kind takes every hint; without one it is None."""
    for message in (said(), called({}), answered(1)):
        assert Message(policy="user", payload=message.payload).role_hint_for_llm is None
        hinted = Message.model_validate({**message.model_dump(), "role_hint_for_llm": hint})
        assert hinted.role_hint_for_llm == hint
        assert (hinted.kind, hinted.payload) == (message.kind, message.payload)


def test_another_role_hint_is_refused() -> None:
    """S1-3: a provider's own role is no hint."""
    with pytest.raises(ValidationError, match="role_hint_for_llm"):
        said(role_hint_for_llm="developer")


def test_there_are_exactly_three_kinds_of_payload_told_apart_by_kind() -> None:
    """S1-4: a discriminated union; any other kind is refused."""
    union = Message.model_json_schema()["properties"]["payload"]
    assert len(union["oneOf"]) == 3
    assert union["discriminator"]["propertyName"] == "kind"
    assert set(union["discriminator"]["mapping"]) == {"parts", "option_call", "option_result"}
    assert [said().kind, called({}).kind, answered(1).kind] == [
        "parts",
        "option_call",
        "option_result",
    ]
    for kind in ("action_call", "tool_call", "text"):
        with pytest.raises(ValidationError, match="kind"):
            Message.model_validate({"policy": "user", "payload": {"kind": kind, "parts": []}})


def test_parts_are_told_apart_by_kind_and_keep_their_order() -> None:
    """S1-4, S1-5: text and media interleaved."""
    payload = PartsPayload.model_validate(
        {
            "parts": [
                {"kind": "text", "text": "first"},
                {"kind": "media", "modality": "image", "blob": BLOB},
                {"kind": "text", "text": "last"},
            ]
        }
    )
    assert payload.parts == (
        TextPart(text="first"),
        MediaPart(modality="image", blob=BLOB),
        TextPart(text="last"),
    )
    message = Message(policy="user", payload=payload)
    assert (message.parts, message.text) == (payload.parts, "first\n\nlast")
    with pytest.raises(ValidationError, match="kind"):
        PartsPayload.model_validate({"parts": [{"kind": "link", "text": "no"}]})


def test_a_text_part_is_unicode_text() -> None:
    """S1-5: half of a surrogate pair could never be stored."""
    part = TextPart(text="h\u00e9 \U0001f600 \x00")
    assert (part.kind, part.text) == ("text", "h\u00e9 \U0001f600 \x00")
    with pytest.raises(ValidationError, match="surrogate"):
        TextPart(text="\udfff")


def test_a_media_part_has_the_fields_of_the_seed() -> None:
    """S1-6: modality and address are needed, everything else is optional."""
    part = MediaPart.model_validate({"modality": "video", "url": "https://example.com/film"})
    assert part.kind == "media"
    assert isinstance(part.url, HttpUrl)
    assert (part.mime, part.prompt_hint, part.id) == (None, None, None)
    for modality in ("image", "audio", "video", "document"):
        assert MediaPart(modality=modality, blob=BLOB).modality == modality
    for wrong in ("text", "IMAGE", None):
        with pytest.raises(ValidationError, match="modality"):
            MediaPart(modality=wrong, blob=BLOB)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({}, "exactly one of url and blob"),
        ({"url": "https://example.com/", "blob": BLOB}, "exactly one of url and blob"),
        ({"url": "not an address"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "https://example.com/" + "a b" * 600}, "url|URL"),
        ({"blob": "abc"}, "blob"),
        ({"blob": BLOB.upper()}, "blob"),
        ({"blob": BLOB + "\n"}, "blob"),
    ],
)
def test_media_is_at_one_web_address_or_in_one_blob(where: Any, reason: str) -> None:
    """S1-6, X26: never at none, at both, or at something else."""
    with pytest.raises(ValidationError, match=reason):
        MediaPart(modality="image", **where)


def test_a_step_is_a_whole_number_or_none() -> None:
    """S1-7: a truth value or a text is no step."""
    assert said().step_num is None
    assert said(step_num=3).step_num == 3
    for wrong in ("3", True, 1.0):
        with pytest.raises(ValidationError, match="step_num"):
            said(step_num=wrong)


def test_an_option_call_has_the_fields_of_the_seed() -> None:
    """S1-8: and they can be had from the message."""
    call = called({"query": "hobbit movie"}).option_call
    assert call is not None
    assert list(type(call).model_fields) == ["kind", "invocation_id", "option_name", "arguments"]
    assert (call.invocation_id, call.option_name) == ("i1", "search")
    assert call.arguments == {"query": "hobbit movie"}
    assert called({}).option_result is None
    assert called({}).parts == ()


def test_an_option_result_has_the_fields_and_defaults_of_the_seed() -> None:
    """S1-9: a result has to be given, even if it is None."""
    result = answered(None).option_result
    assert result is not None
    assert list(type(result).model_fields) == [
        "kind",
        "invocation_id",
        "option_name",
        "result",
        "is_error",
        "error_type",
        "error_message",
        "retryable",
    ]
    assert (result.result, result.is_error) == (None, False)
    assert (result.error_type, result.error_message, result.retryable) == (None, None, None)
    assert answered(None).option_call is None
    with pytest.raises(ValidationError, match="result"):
        OptionResultPayload(invocation_id="i1", option_name="search")  # type: ignore[call-arg]


def test_messages_are_equal_when_they_say_the_same() -> None:
    """And differ by each field that says something; a message is no key of a dict."""
    assert said() == said()
    assert said() != said("Bye")
    assert said() != said(step_num=1)
    assert said() != said(role_hint_for_llm="user")
    assert said() != Message(policy="ann", payload=said().payload)
    assert said() != "Hi"
    with pytest.raises(TypeError, match="unhashable"):
        hash(said())
