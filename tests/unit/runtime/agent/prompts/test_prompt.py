"""Prompts: what a template may be, and how parameters are bound to it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tests.unit.runtime.kinds import PointDataclass, PointModel, PointStruct
from tests.unit.runtime.prompts import LOOK, PROMPT, TEMPLATE, Style, Task, look
from turnledger.ledger.errors import TurnledgerError
from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptDefinitionError,
    PromptRenderError,
    PromptTemplate,
    Tool,
)


def plain(key: str, **given: Any) -> MarkdownSection[Any]:
    return MarkdownSection(**{"title": key.title(), "template": "Text.", "key": key, **given})


def template(**given: Any) -> PromptTemplate[str]:
    return PromptTemplate[str](**{"ns": "a", "key": "b", "sections": [plain("one")], **given})


@pytest.mark.parametrize("ns", ["a", "a.b", "a/b", "team-1/x_y", "reviews.optimization"])
@pytest.mark.parametrize("key", ["k", "code-review", "task-workspace-digest", "v1.2"])
def test_a_prompt_is_known_by_namespace_and_key(ns: str, key: str) -> None:
    """S2-11: both could be a path."""
    prompt = Prompt(template(ns=ns, key=key))
    assert (prompt.ns, prompt.key, prompt.name) == (ns, key, None)
    assert prompt.label == f"{ns}/{key}"
    assert Prompt(template(name="Nice")).label == "Nice"


@pytest.mark.parametrize(
    "bad", ["", " ", "a b", "../x", "/a", "a/", "a//b", "a\n", "é", None, ".", "x" * 201]
)
def test_a_namespace_or_key_that_could_not_be_a_path_is_refused(bad: Any) -> None:
    """Naming which of the two it is."""
    with pytest.raises(PromptDefinitionError, match="Invalid prompt ns") as caught:
        template(ns=bad)
    assert isinstance(caught.value, TurnledgerError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(PromptDefinitionError, match="Invalid prompt key"):
        template(key=bad)


def test_a_key_is_one_step() -> None:
    """A namespace may be several."""
    with pytest.raises(PromptDefinitionError, match="in one step"):
        template(key="a/b")


def test_two_sections_with_one_key_are_refused() -> None:
    """Naming prompt and path; below different parents the key may be the same."""
    with pytest.raises(PromptDefinitionError, match="two sections have this key") as caught:
        template(sections=[plain("x", children=[plain("y"), plain("y")])])
    assert (caught.value.prompt, caught.value.section) == ("a/b", "x.y")
    template(sections=[plain("x", children=[plain("y")]), plain("y")])


def test_two_tools_with_one_name_are_refused() -> None:
    """The same tool may be in two sections."""
    other = Tool[None, None](name="look", description="Another.", handler=look)
    with pytest.raises(PromptDefinitionError, match="name of another tool, in section 'x'"):
        template(sections=[plain("x", tools=[LOOK]), plain("y", tools=[other])])
    shared = template(sections=[plain("x", tools=[LOOK]), plain("y", tools=[LOOK])])
    assert Prompt(shared).render().tools == (LOOK,)


def test_the_name_of_the_tool_that_opens_sections_is_taken() -> None:
    """So that a prompt may always get it."""
    mine = Tool[None, None](name="open_sections", description="Mine.", handler=look)
    with pytest.raises(PromptDefinitionError, match="is reserved"):
        template(sections=[plain("x", tools=[mine])])


@pytest.mark.parametrize("wrong", [..., "text", LOOK])
def test_sections_are_sections(wrong: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(PromptDefinitionError, match="'a/b': invalid section"):
        template(sections=[wrong])


@pytest.mark.parametrize("kind", [PointDataclass, PointStruct, PointModel])
def test_a_templates_subscript_is_the_type_of_its_output(kind: Any) -> None:
    """Of all three kinds, alone or in a list; text is not parsed."""
    made = PromptTemplate[kind](ns="a", key="b")
    assert made.output is not None
    assert (made.output.output_type, made.output.container) == (kind, "object")
    several = PromptTemplate[list[kind]](ns="a", key="b", allow_extra_keys=True)
    assert several.output is not None
    assert (several.output.output_type, several.output.container) == (kind, "array")
    assert several.output.allow_extra_keys is True
    assert template().output is None
    assert PromptTemplate(ns="a", key="b").output is None


def test_an_output_that_json_cannot_hold_is_refused() -> None:
    """When the template is made, naming the prompt."""
    with pytest.raises(PromptDefinitionError, match="'a/b': its output"):
        PromptTemplate[object](ns="a", key="b")
    with pytest.raises(PromptDefinitionError, match="is not a JSON object"):
        PromptTemplate[int](ns="a", key="b")


def test_a_template_may_be_subclassed_with_its_output() -> None:
    """Generic or not."""

    class Drawing(PromptTemplate[PointDataclass]):
        pass

    output = Drawing(ns="a", key="b").output
    assert output is not None
    assert output.kind is PointDataclass


def test_binding_gives_a_new_prompt() -> None:
    """And replaces what is bound of the same type."""
    first = Prompt(TEMPLATE).bind(Task("one"))
    second = first.bind(Style("kind"), Task("two"))
    assert first.params == (Task("one"),)
    assert second.params == (Style("kind"), Task("two"))
    with pytest.raises(FrozenInstanceError):
        first.params = ()  # type: ignore[misc]


def test_parameters_that_no_section_takes_are_refused() -> None:
    """They would be lost without a word."""
    with pytest.raises(PromptRenderError, match="no section takes parameters of type PointStruct"):
        PROMPT.bind(PointStruct(1))
    with pytest.raises(PromptRenderError, match="two parameters of type Task"):
        PROMPT.bind(Task("a"), Task("b"))
