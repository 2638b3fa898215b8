"""Sections: what they may be, and which are refused when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from turnledger.ledger.errors import TurnledgerError
from turnledger.runtime import (
    MarkdownSection,
    PromptDefinitionError,
    SectionVisibility,
    Tool,
    ToolContext,
)
from turnledger.runtime.agent.prompts import Section


@dataclass(frozen=True)
class Params:
    topic: str = "bees"


def noop(*, context: ToolContext) -> None: ...


TOOL = Tool[None, None](name="noop", description="Nothing.", handler=noop)


def section(**given: Any) -> MarkdownSection[Params]:
    return MarkdownSection[Params](
        **{"title": "Task", "template": "About ${topic}.", "key": "task", **given}
    )


def test_a_section_knows_the_type_of_its_parameters() -> None:
    """From its subscript; without one it takes none."""
    assert section().params_type is Params
    assert MarkdownSection(title="T", template="t", key="t").params_type is None
    assert MarkdownSection[None](title="T", template="t", key="t").params_type is None
    assert isinstance(section(), MarkdownSection)
    assert MarkdownSection[Params] is MarkdownSection[Params]


def test_a_sections_text_has_its_parameters_in_it() -> None:
    """Or those of a text that takes its place."""
    assert section().body(Params()) == "About bees."
    assert section().body(Params(), override="All of ${topic}!") == "All of bees!"


def test_sections_are_walked_depth_first_with_their_paths() -> None:
    """Dotted, from the top."""
    tree = section(children=[section(key="a", children=[section(key="b")]), section(key="c")])
    assert [(path, depth) for path, depth, _ in tree.walk()] == [
        ("task", 1),
        ("task.a", 2),
        ("task.a.b", 3),
        ("task.c", 2),
    ]


def test_a_kind_of_section_of_ones_own_says_its_text() -> None:
    """Of parameters, or of anything else."""

    class Shout(Section[Params]):
        def body(self, params: Params, override: str | None = None) -> str:
            return params.topic.upper()

    made = Shout(title="Shout", key="shout")
    assert made.params_type is Params
    assert made.body(Params()) == "BEES"
    assert made.takes_override is False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": ""}, "expected 1 to 64"),
        ({"key": "a.b"}, "expected 1 to 64"),
        ({"key": "a/b"}, "expected 1 to 64"),
        ({"key": None}, "expected 1 to 64"),
        ({"title": ""}, "one line"),
        ({"title": "a\nb"}, "one line"),
        ({"title": 5}, "one line"),
        ({"template": "${topics}"}, "template: there is no field for"),
        ({"summary": "${tops}"}, "summary: there is no field for"),
        ({"visibility": SectionVisibility.SUMMARY}, "there is no `summary`"),
        ({"visibility": "summary", "summary": "s"}, "a SectionVisibility"),
        ({"children": [TOOL]}, "invalid child"),
        ({"tools": [noop]}, "invalid tool"),
        ({"default_params": 5}, "default_params"),
    ],
)
def test_a_section_that_could_not_be_shown_is_refused(given: dict[str, Any], said: str) -> None:
    """When it is made, naming it."""
    with pytest.raises(PromptDefinitionError, match=said) as caught:
        section(**given)
    assert isinstance(caught.value, TurnledgerError)
    assert isinstance(caught.value, ValueError)
    if isinstance(given.get("key", "task"), str) and "key" not in given:
        assert caught.value.section == "task"


def test_a_section_without_parameters_has_no_places() -> None:
    """And the error says so."""
    with pytest.raises(PromptDefinitionError, match="takes no parameters"):
        MarkdownSection(title="T", template="${topic}", key="t")
    with pytest.raises(PromptDefinitionError, match="invalid parameters type"):
        MarkdownSection[list[int]](title="T", template="t", key="t")
