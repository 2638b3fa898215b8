"""The output that a prompt asks for: how it is asked for, and how answers are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.kinds import (
    POINTS,
    Circle,
    PointDataclass,
    PointModel,
    PointStruct,
    Square,
    Tree,
    any_shape,
)
from turnledger.runtime import OutputParseError, UnsupportedTypeError
from turnledger.runtime.agent.prompts import OutputSpec
from turnledger.runtime.agent.schema import to_plain


def spec_of(kind: Any, **options: bool) -> OutputSpec[Any]:
    spec = OutputSpec.of(kind, **options)
    assert spec is not None
    return spec


@pytest.mark.parametrize("kind", [None, str, Any, type(None)])
def test_text_is_not_parsed(kind: Any) -> None:
    """There is no spec for it."""
    assert OutputSpec.of(kind) is None


@pytest.mark.parametrize("kind", [int, bool, float, PointModel | None, dict[str, int] | int])
def test_an_output_is_an_object_or_a_list(kind: Any) -> None:
    """Anything else is refused, and the error says what would do."""
    with pytest.raises(UnsupportedTypeError, match=r"a list of one of these"):
        OutputSpec.of(kind)


@pytest.mark.parametrize("point", POINTS)
def test_an_objects_response_format_is_its_schema(point: Any) -> None:
    """S4-18: with the prompt's name, as providers accept it."""
    spec = spec_of(point)
    assert (spec.container, spec.output_type) == ("object", point)
    sent = spec.response_format("reviews/code review")
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["name"] == "reviews_code_review"
    assert sent["json_schema"]["schema"]["properties"]["x"] == {"type": "integer"}
    assert sent["json_schema"]["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("point", POINTS)
def test_an_array_travels_in_an_object(point: Any) -> None:
    """S4-18: providers that enforce a schema want an object at its root."""
    spec = spec_of(list[point])
    assert (spec.container, spec.output_type) == ("array", point)
    schema = spec.response_format("p")["json_schema"]["schema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["items"]
    assert schema["properties"]["items"]["items"]["properties"]["x"] == {"type": "integer"}
    assert spec.parse_native({"items": [{"x": 1}]}) == [point(x=1)]
    assert spec.parse_native([{"x": 1}]) == [point(x=1)]


def test_an_array_of_what_contains_itself_keeps_its_definition_at_the_root() -> None:
    """Where its references lead."""
    schema = spec_of(list[Tree]).native_schema
    assert "Tree" in schema["$defs"]
    assert "$defs" not in schema["properties"]["items"]


def test_extra_keys_are_allowed_if_the_prompt_says_so() -> None:
    """S4-18: in the schema and in the answer."""
    strict, lenient = spec_of(PointStruct), spec_of(PointStruct, allow_extra_keys=True)
    assert "additionalProperties" not in lenient.schema
    assert lenient.parse('{"x": 1, "more": 2}') == PointStruct(1)
    with pytest.raises(OutputParseError, match="more: an unknown key"):
        strict.parse('{"x": 1, "more": 2}')


def test_instructions_say_what_to_answer_and_hold_the_schema() -> None:
    """For providers that enforce nothing; an array is asked for as it is."""
    spec = spec_of(list[PointDataclass])
    before, _, rest = spec.instructions.partition("```json\n")
    assert "one JSON array" in before
    assert json.loads(rest.removesuffix("\n```")) == spec.schema
    assert spec.schema["type"] == "array"


@given(any_shape)
def test_an_answer_that_fits_is_read(shape: Any) -> None:
    """As text, in a fence, and as a provider parsed it."""
    spec, data = spec_of(type(shape)), to_plain(shape)
    text = json.dumps(data)
    assert spec.parse(text) == shape
    assert spec.parse(f"```json\n{json.dumps(data, indent=2)}\n```") == shape
    assert spec.parse_native(data) == shape
    assert spec.parse_native(shape) == shape


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1}',
        '\n\t {"x": 1}\r\n ',
        '```json\n{"x": 1}\n```',
        '  ```JSON  \r\n{"x": 1}\r\n```\n',
        '```\n{"x": 1}```',
    ],
)
def test_whitespace_and_one_fence_are_tolerated(text: str) -> None:
    """Around the JSON."""
    assert spec_of(PointDataclass).parse(text) == PointDataclass(1)


def test_a_fence_within_a_value_is_text() -> None:
    """Also when the answer is fenced itself."""
    label = 'see ```json\n{"x": 2}\n```'
    text = json.dumps({"label": label})
    spec = spec_of(Tree)
    assert spec.parse(text) == spec.parse(f"```json\n{text}\n```") == Tree(label)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("Sure! Here it is.", "begins with 'Sure! Here"),
        ('Here: {"x": 1}', "line 1, column 1"),
        ('{"x": 1} Done.', "line 1, column 10"),
        ('```json\n{"x": 1}\n```\n```json\n{"x": 2}\n```', "line 2"),
        ('```json\n{"x": 1}\n``` Done.', "not JSON"),
        ('```python\n{"x": 1}\n```', "not JSON"),
        ('{"x": "1"}', "x: "),
        ('{"x": 1, "y": {}}', "y: "),
        ("[]", "object"),
        ("null", "object"),
        ('{"x": NaN}', "JSON has no NaN"),
    ],
)
def test_any_other_answer_is_refused_saying_what_and_where(text: str, said: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(OutputParseError, match=said.replace("(", r"\(")):
        spec_of(PointDataclass).parse(text)


def test_the_place_in_an_array_is_named() -> None:
    """In its wrapping or without."""
    spec = spec_of(list[PointModel])
    with pytest.raises(OutputParseError) as caught:
        spec.parse('[{"x": 1}, {"x": "a"}]')
    assert caught.value.path == "[1].x"
    with pytest.raises(OutputParseError) as caught:
        spec.parse_native({"items": [{"x": 1}, {"x": "a"}]})
    assert caught.value.path == "items[1].x"
    with pytest.raises(OutputParseError, match=r"array|list"):
        spec.parse('{"items": [], "more": 1}')


@pytest.mark.parametrize("payload", ['{"x": 1}', None, {"x": b"1"}, [1], {1: 2}])
def test_a_native_payload_that_does_not_fit_is_refused(payload: Any) -> None:
    """With the same error."""
    with pytest.raises(OutputParseError):
        spec_of(PointDataclass).parse_native(payload)


def test_a_choice_of_objects_is_an_object() -> None:
    """And a tuple of any length an array."""
    assert spec_of(Circle | Square).parse('{"type": "Circle", "outerRadius": 1}') == Circle(1.0)
    assert spec_of(tuple[PointStruct, ...]).parse('[{"x": 1}]') == (PointStruct(1),)


@given(st.text())
def test_reading_any_answer_gives_an_output_or_a_typed_error(text: str) -> None:
    """Never another exception."""
    try:
        spec_of(PointDataclass).parse(text)
    except OutputParseError:
        return
    assert text.strip()
