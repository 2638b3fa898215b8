"""Types and JSON: schemas that are the same everywhere, and data read strictly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given

from tests.unit.runtime.kinds import (
    POINTS,
    SHAPES,
    Circle,
    Colour,
    MixedDataclass,
    PointDataclass,
    PointModel,
    PointStruct,
    ShapeDataclass,
    ShapeModel,
    ShapeStruct,
    Square,
    Tree,
    TreeModel,
    any_shape,
)
from turnledger.ledger.errors import TurnledgerError
from turnledger.projections.digests import canonical
from turnledger.runtime import DataDecodeError, UnsupportedTypeError
from turnledger.runtime.agent.schema import decode, json_schema, to_plain

ROOT = Path(__file__).parents[5]
KINDS: list[Any] = [kinds[0] for kinds in SHAPES]
MIXED = {"struct": {"x": 1}, "model": {"x": 2}, "models": [{"x": 3}]}


class Entry(TypedDict):
    word: str


@pydantic.dataclasses.dataclass
class Checked:
    size: int = pydantic.Field(ge=3)


@dataclass
class HoldsChecked:
    inner: Checked


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("an odd number")


@dataclass
class Fragile:
    number: int

    def __post_init__(self) -> None:
        raise KeyError(self.number)


@dataclass
class Described:
    word: str = field(metadata={"description": "A word."})
    inner: Even | None = None


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = 1


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 1


class Aliased(pydantic.BaseModel):
    a: int = pydantic.Field(validation_alias=pydantic.AliasChoices("A", pydantic.AliasPath("b", 0)))


class Points(pydantic.RootModel[list[PointModel]]):
    pass


@pydantic.dataclasses.dataclass
class AliasedDataclass:
    a: int = pydantic.Field(alias="A")


class Namesake(pydantic.BaseModel):
    children: list[Namesake] = []


def make_namesake() -> Any:
    class Namesake(pydantic.BaseModel):
        label: str
        children: list[Namesake] = []

    return Namesake


Namesake2: Any = make_namesake()


@dataclass
class Family:
    one: Namesake
    two: Namesake2


@dataclass
class Unknown:
    what: Nowhere  # type: ignore[name-defined]  # noqa: F821


@dataclass
class EitherDataclass:
    one: PointDataclass | Tree


@dataclass
class BadDefault:
    number: float = float("nan")


# --- schemas -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_says_the_fields_their_descriptions_and_defaults(kind: Any) -> None:
    """Of all three kinds of types."""
    schema = json_schema(kind)
    assert schema["type"] == "object"
    assert schema["description"] == "A shape."
    assert schema["required"] == ["name", "colour", "points"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["name"] == {"type": "string", "description": "What it is called."}
    assert properties["kind"]["default"] == "open"
    assert properties["colour"]["enum"] == ["blue", "red"] or kind is ShapeModel
    point = properties["points"]["items"]
    assert point["required"] == ["x"]
    assert point["additionalProperties"] is False
    assert "$defs" not in schema


def test_a_dataclasses_field_may_say_its_description_in_its_metadata() -> None:
    """As well as in an Annotated."""
    assert json_schema(Described)["properties"]["word"]["description"] == "A word."


@pytest.mark.parametrize("kind", [Tree, TreeModel, list[TreeModel]])
def test_a_type_that_contains_itself_keeps_a_definition(kind: Any) -> None:
    """And says at its root what it is."""
    schema = json_schema(kind)
    assert list(schema["$defs"]) == [Tree.__name__ if kind is Tree else "TreeModel"]
    assert schema["type"] in ("object", "array")
    (definition,) = schema["$defs"].values()
    assert definition["properties"]["children"]["items"]["$ref"].startswith("#/$defs/")
    assert definition["additionalProperties"] is False


def test_other_keys_are_allowed_where_one_says_so() -> None:
    """A type that forbids or allows them itself goes before."""
    assert "additionalProperties" not in json_schema(PointStruct, allow_extra_keys=True)
    assert json_schema(Strict, allow_extra_keys=True)["additionalProperties"] is False
    assert json_schema(Open)["additionalProperties"] is True


def test_a_choice_of_tagged_structs_lists_them() -> None:
    """With their tags and their names in JSON."""
    schema = json_schema(Circle | Square)
    assert "discriminator" not in schema
    assert [choice["properties"]["type"]["enum"] for choice in schema["anyOf"]] == [
        ["Circle"],
        ["Square"],
    ]


def test_a_property_may_be_called_like_a_keyword_of_schemas() -> None:
    """Names are names, and defaults are data."""

    class Odd(msgspec.Struct):
        ref: dict[str, Any] = msgspec.field(name="$ref", default_factory=dict)
        properties: int = 1
        items: tuple[str, ...] = ("$ref",)

    schema = json_schema(Odd)
    assert set(schema["properties"]) == {"$ref", "properties", "items"}
    assert decode(Odd, {"$ref": {"a": 1}, "properties": 2}) == Odd({"a": 1}, 2)


ELSEWHERE = """
import sys
from turnledger.projections.digests import canonical
from turnledger.runtime.agent.schema import json_schema
from tests.unit.runtime import kinds
for name in sys.argv[1:]:
    sys.stdout.buffer.write(canonical(json_schema(getattr(kinds, name))) + b"\\n")
    print(json_schema(getattr(kinds, name)), flush=True)
"""


@pytest.mark.process
def test_a_schema_has_the_same_bytes_in_every_process() -> None:
    """Whatever the order of sets is there."""
    names = ["ShapeDataclass", "ShapeStruct", "ShapeModel", "Tree", "TreeModel", "MixedDataclass"]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", ELSEWHERE, *names],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    here = [canonical(json_schema(kind)) for kind in (ShapeDataclass, ShapeStruct, ShapeModel)]
    assert outputs.pop().splitlines()[0:6:2] == here


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (object, "object can't be encoded as JSON"),
        (Unknown, "top level of a module"),
        (EitherDataclass, "use pydantic models or Structs with tag=True"),
        (HoldsChecked, "pydantic dataclass Checked"),
        (5, "not supported"),
        (BadDefault, "JSON has no nan"),
        (Family, "two types have the name 'Namesake'"),
    ],
)
def test_a_type_that_json_cannot_hold_is_refused(kind: Any, reason: str) -> None:
    """With an error that says what to do."""
    with pytest.raises(UnsupportedTypeError, match=reason) as caught:
        json_schema(kind)
    assert isinstance(caught.value, TurnledgerError)
    assert isinstance(caught.value, ValueError)


# --- data --------------------------------------------------------------------------


@given(any_shape)
def test_what_is_written_is_read_again(shape: Any) -> None:
    """Equal, for values of all three kinds, through JSON text."""
    data = json.loads(json.dumps(to_plain(shape)))
    assert decode(type(shape), data) == shape


@given(any_shape)
def test_a_schemas_required_and_known_fields_are_those_that_are_written(shape: Any) -> None:
    """So that a model that follows the schema is understood."""
    schema, data = json_schema(type(shape)), to_plain(shape)
    assert set(schema["required"]) <= set(data) == set(schema["properties"])


def test_dataclasses_structs_and_models_may_contain_each_other() -> None:
    """A dataclass with both in it is read by msgspec, the model within by pydantic."""
    value = decode(MixedDataclass, MIXED)
    assert value == MixedDataclass(PointStruct(1), PointModel(x=2), [PointModel(x=3)])
    assert decode(MixedDataclass, to_plain(value)) == value


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (str | None, None, None),
        (Colour, "red", Colour.RED),
        (tuple[int, ...], [1, 2], (1, 2)),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (dict[Colour, PointStruct], {"red": {"x": 1}}, {Colour.RED: PointStruct(1)}),
        (Entry, {"word": "a"}, {"word": "a"}),
        (Circle | Square, {"type": "Square", "sideLength": 2.0}, Square(2.0)),
        (list[PointModel], [{"x": 1}], [PointModel(x=1)]),
        (PointModel | TreeModel, {"label": "a"}, TreeModel(label="a")),
        (Checked, {"size": 3}, Checked(size=3)),
        (Aliased, {"A": 2}, Aliased.model_validate({"A": 2})),
        (Aliased, {"b": [2]}, Aliased.model_validate({"A": 2})),
        (AliasedDataclass, {"A": 2}, AliasedDataclass(A=2)),
        (Points, [{"x": 1}], Points([PointModel(x=1)])),
        (Open, {"b": 2}, Open.model_validate({"b": 2})),
    ],
)
def test_data_is_read_as_the_type(kind: Any, data: Any, value: Any) -> None:
    """Builtins, containers and choices too."""
    assert decode(kind, data) == value


@pytest.mark.parametrize("kind", POINTS)
@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"x": "1"}, "x"),
        ({"x": 1.5}, "x"),
        ({"x": None}, "x"),
        ({"x": True}, "x"),
        ({"x": 1, "y": "2"}, "y"),
        ({}, "x"),
        ({"x": 1, "z": 1}, "z"),
        ([], ""),
        ("x", ""),
        (None, ""),
    ],
)
def test_data_that_does_not_fit_is_refused_naming_the_field(
    kind: Any, data: Any, path: str
) -> None:
    """Strictly: text is no number, and no key may be left over."""
    with pytest.raises(DataDecodeError) as caught:
        decode(kind, data)
    assert caught.value.path == path
    assert str(caught.value).startswith(path)
    assert isinstance(caught.value, TurnledgerError)


@pytest.mark.parametrize(("shape", "point"), SHAPES)
def test_the_path_leads_into_what_is_nested(shape: Any, point: Any) -> None:
    """Through lists and objects."""
    fine = {"name": "a", "colour": "red", "points": [{"x": 1}, {"x": 2}]}
    assert decode(shape, fine).points[1] == point(x=2)
    for wrong, path in (
        ({"points": [{"x": 1}, {"x": "2"}]}, "points[1].x"),
        ({"points": [{"x": 1, "q": 2}]}, "points[0].q"),
        ({"points": [{}]}, "points[0].x"),
        ({"colour": "green"}, "colour"),
    ):
        with pytest.raises(DataDecodeError) as caught:
            decode(shape, {**fine, **wrong})
        assert caught.value.path == path


def test_the_path_leads_from_a_dataclass_into_a_model() -> None:
    """And all that pydantic found is said."""
    wrong = {**MIXED, "models": [{"x": 1}, {"x": "a", "y": "b"}]}
    with pytest.raises(DataDecodeError, match=r"models\[1\]\.y") as caught:
        decode(MixedDataclass, wrong)
    assert caught.value.path == "models[1].x"
    with pytest.raises(DataDecodeError) as caught:
        decode(MixedDataclass, {**MIXED, "maybe": {"x": 1, "z": 0}})
    assert caught.value.path == "maybe.z"


@pytest.mark.parametrize("kind", POINTS)
def test_keys_that_no_field_takes_may_be_allowed(kind: Any) -> None:
    """They are left out then."""
    assert decode(kind, {"x": 1, "z": 2}, allow_extra_keys=True) == kind(x=1)


def test_a_typed_dict_takes_no_other_keys() -> None:
    """A dict of anything does."""
    with pytest.raises(DataDecodeError, match="other"):
        decode(Entry, {"word": "a", "other": 1})
    assert decode(dict[str, int], {"any": 1}) == {"any": 1}


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (Even, {"number": 3}, "an odd number"),
        (Fragile, {"number": 3}, "KeyError"),
        (Checked, {"size": 1}, "greater than or equal to 3"),
        (Described, {"word": "a", "inner": {"number": 1}}, "inner: an odd number"),
        (Strict, {"b": 1}, "b: an unknown key"),
        (Points, [{"x": 1, "z": 1}], r"\[0\].z: an unknown key"),
        (AliasedDataclass, {"A": 1, "B": 2}, "B: an unknown key"),
    ],
)
def test_what_a_types_own_checks_say_is_passed_on(kind: Any, data: Any, reason: str) -> None:
    """Whatever they raise."""
    with pytest.raises(DataDecodeError, match=reason):
        decode(kind, data)


def test_a_pydantic_dataclass_within_a_dataclass_is_refused() -> None:
    """Its checks would not run there, and nobody would know."""
    with pytest.raises(UnsupportedTypeError, match="would not run"):
        decode(HoldsChecked, {"inner": {"size": 1}})


@pytest.mark.process
def test_the_ledger_needs_no_pydantic_to_be_imported() -> None:
    """Nor does the loop, before a program uses a model of it."""
    code = (
        "import sys; from turnledger.runtime import MainLoop, Tool, replay, what_if; "
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
