"""Mismatches of data and schema: in words that no version of a validator changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, field_validator

from turnledger.runtime.agent.prompts.output import OutputSpec
from turnledger.runtime.errors import SchemaError


@dataclass
class Line:
    text: str
    euros: int = 0


@dataclass
class Ticket:
    priority: Literal["low", "high"]
    reply: str
    lines: list[Line] = field(default_factory=list)
    due: date | None = None
    shares: dict[str, float] = field(default_factory=dict)


class Rated(BaseModel):
    stars: Annotated[int, msgspec.Meta()] = 1
    name: str = ""

    @field_validator("name")
    @classmethod
    def _no_digits(cls, name: str) -> str:
        if any(sign.isdigit() for sign in name):
            raise ValueError("pydantic would say this in its own words")
        return name


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: Annotated[list[str], msgspec.Meta(min_length=1)]


class Score(msgspec.Struct):
    points: Annotated[int, msgspec.Meta(ge=0, le=10)]
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]+$", max_length=3)] = "A"


def problem(kind: Any, reply: Any, **options: Any) -> str:
    """What a model is told of a reply that is refused as the kind."""
    spec = OutputSpec.of(kind, **options)
    assert spec is not None
    parse = spec.parse if isinstance(reply, str) else spec.parse_native
    with pytest.raises(SchemaError) as caught:
        parse(reply)
    return spec.problem(reply, caught.value)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            '{"priority": "urgent", "reply": "a"}',
            'priority: expected one of "high", "low", got "urgent"',
        ),
        ('{"priority": "low"}', "reply: missing"),
        ('{"priority": "low", "reply": null}', "reply: expected text, got null"),
        ('{"priority": "low", "reply": "a", "x": 1}', "x: not a known key"),
        (
            '{"priority": "low", "reply": "a", "lines": [{"text": "b", "euros": "abc"}]}',
            'lines[0].euros: expected a whole number, got text "abc"',
        ),
        (
            '{"priority": "low", "reply": "a", "lines": {"0": 1}}',
            "lines: expected a list, got an object",
        ),
        (
            '{"priority": 3, "x": []}',
            'reply: missing; priority: expected one of "high", "low", got 3; x: not a known key',
        ),
        (
            '{"priority": "low", "reply": "a", "due": 5}',
            "due: expected a date like 2026-01-31 or null, got 5",
        ),
        (
            '{"priority": "low", "reply": "a", "shares": {"me": "half"}}',
            'shares.me: expected a number, got text "half"',
        ),
        ("Sure, here it is.", 'expected one JSON object, got text "Sure, here it is."'),
        ("```json\n[]\n```", "expected an object, got an empty list"),
        (
            '{"priority": "low", "reply": 99999999999999999999}',
            "reply: an integer beyond 64 bits; make it text",
        ),
    ],
)
def test_a_problem_names_path_expected_and_got(reply: str, words: str) -> None:
    """A model can correct its answer by it: it says where, what was asked for and what came."""
    assert problem(Ticket, reply) == words


def test_what_a_validator_refuses_is_told_without_its_words() -> None:
    """Pydantic's own text names its version, and would be a divergence after an upgrade."""
    assert problem(Rated, {"name": "R2"}) == 'name: rejected by its validator, got text "R2"'
    assert (
        problem(list[Rated], {"items": [{"name": "a"}, {"name": "R2"}]})
        == 'items[1].name: rejected by its validator, got text "R2"'
    )


def test_limits_of_numbers_and_text_are_told() -> None:
    """They are in the schema, which is what the words are made from."""
    assert (
        problem(Score, '{"points": 11}')
        == "points: expected a whole number (at least 0, at most 10), got 11"
    )
    assert problem(Score, '{"points": 1, "code": "abcd"}') == (
        'code: expected text (at most 3 characters, matching "^[A-Z]+$"), got "abcd"'
    )


def test_the_alternative_that_is_meant_is_explained() -> None:
    """The tag of an object says which one; without a known tag, all are named."""
    spec = OutputSpec(Cat | Dog)
    for data, words in (
        ({"type": "Dog", "tricks": []}, "tricks: expected a list (at least 1 items), got 0 items"),
        ({"type": "Cat", "lives": "nine"}, 'lives: expected a whole number, got text "nine"'),
        ({"type": "Cow"}, "expected an object, got an object"),
    ):
        assert spec.problem(data, SchemaError("refused")) == words


def test_long_answers_and_long_lists_of_problems_are_cut() -> None:
    """The message is read by a model and paid for."""
    many = msgspec.json.encode([{"text": 1} for _ in range(9)]).decode()
    told = problem(list[Line], many)
    assert told.count("expected text, got 1") == 5
    assert told.endswith("; and 4 more")
    assert len(problem(Ticket, "x" * 500)) < 120
