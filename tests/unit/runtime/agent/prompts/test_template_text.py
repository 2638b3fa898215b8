"""Templates: what is a place to fill in, what is text, and how values look in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.kinds import Colour, PointStruct
from turnledger.runtime import TemplateTextError
from turnledger.runtime.agent.prompts.template_text import TemplateText, field_names


@dataclass(frozen=True)
class Params:
    name: Any
    other: Any = 1

    @property
    def loud(self) -> str:
        return str(self.name).upper()


class StructParams(msgspec.Struct):
    name: str


class ModelParams(pydantic.BaseModel):
    name: str


def filled(text: str, name: Any = "Ann") -> str:
    return TemplateText(text, fields=field_names(Params)).fill(Params(name))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Hello ${name}.", "Hello Ann."),
        ("${name}${name}", "AnnAnn"),
        ("${loud}", "ANN"),
        ('{"a": {b}} {name}', '{"a": {b}} {name}'),
        ("$5, $HOME, $$ and $", "$5, $HOME, $$ and $"),
        ("$${name}", "${name}"),
        ("\n    One.\n      Two.\n\n", "One.\n  Two."),
        ("", ""),
    ],
)
def test_only_braced_names_are_places(template: str, text: str) -> None:
    """Everything else is text as it stands, but for the shared indentation."""
    assert filled(template) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (3, "3"),
        (1.5, "1.5"),
        (True, "True"),
        (None, "None"),
        (Colour.RED, "red"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02 00:00:00+00:00"),
        (PurePosixPath("a/b"), "a/b"),
        (["a", 1], '["a",1]'),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ({"b", "a", "c"}, '["a","b","c"]'),
        (PointStruct(1), '{"x":1,"y":0.0}'),
    ],
)
def test_a_value_is_shown_the_same_in_every_process(value: object, text: str) -> None:
    """What is plain as it says itself, the rest as JSON."""
    assert filled("${name}", value) == text


def test_a_value_that_has_no_stable_text_is_refused() -> None:
    """An object's own words hold an address."""
    with pytest.raises(TemplateTextError, match="object is not JSON"):
        filled("${name}", object())


@given(st.text())
def test_what_is_filled_in_is_not_looked_at_again(value: str) -> None:
    """A value can't bring placeholders of its own."""
    assert filled("<${name}>", value) == f"<{value}>"
    assert filled("<${name}>", f"${{other}}{value}") == f"<${{other}}{value}>"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("${nam}", "no field for ${nam}; the parameters have: loud, name, other"),
        ("$name", "write ${name}"),
        ("${name", "not closed"),
        ("${}", "is not a field name"),
        ("${HOME:-x}", "is not a field name; write $${"),
        ("${a.b}", "is not a field name"),
        (5, "expected text, got int"),
    ],
)
def test_a_template_that_asks_for_what_there_is_not_is_refused(template: Any, said: str) -> None:
    """When it is made."""
    with pytest.raises(TemplateTextError) as caught:
        TemplateText(template, fields=field_names(Params))
    assert said in str(caught.value)


def test_the_fields_of_all_kinds_of_parameters_are_known() -> None:
    """Of any other class they are looked up when they are needed."""
    assert field_names(StructParams) == frozenset({"name"})
    assert "name" in (field_names(ModelParams) or ())
    assert field_names(None) == frozenset()
    assert field_names(object) is None
    text = TemplateText("${name}", fields=None)
    assert text.fill(ModelParams(name="x")) == "x"
    with pytest.raises(TemplateTextError, match="no field for"):
        text.fill(object())
