"""Rendering: the text, the tools and the digest, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.kinds import ShapeDataclass
from tests.unit.runtime.prompts import LOOK, PROMPT, READ, SEARCH, TEMPLATE, Style, Task
from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptRenderError,
    PromptTemplate,
    SectionVisibility,
    VisibilityOverrides,
)
from turnledger.runtime.agent.models.limits import Deadline
from turnledger.runtime.agent.prompts import OPEN_SECTIONS, ShownSection

ROOT = Path(__file__).parents[5]
GOLDEN_DIGEST = "bead1e69ef74b49e135835296e12002def47e0836c15f2ca21d3b1662d841c77"
GOLDEN_TOOLS_DIGEST = "daaaeabeeef021a4b9660ef22c9c0601f7a19ffa1ec56837e31fa0aa4b9fdd8b"
FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY
OPENED = VisibilityOverrides({"reference": FULL})
TEXT = """\
## Task

Reach the top.
Labels: ["blue","green","red"]

### Style

Be plain.

## Reference

How to reach the top.

(Only a summary. To read this section in full, call `open_sections` with section_keys \
["reference"].)"""


class Store:
    """Overrides of sections' texts, for one prompt and tag."""

    def __init__(self, **templates: str) -> None:
        self._templates = templates
        self.asked: list[tuple[str, str, str]] = []

    def section_overrides(self, ns: str, key: str, tag: str) -> Mapping[str, str] | None:
        self.asked.append((ns, key, tag))
        return {path.replace("__", "."): text for path, text in self._templates.items()} or None


@dataclass(frozen=True)
class Base:
    word: str


@dataclass(frozen=True)
class Derived(Base):
    pass


@dataclass(frozen=True)
class DerivedToo(Base):
    pass


def one(kind: Any, template: str = "${word}", **given: Any) -> Prompt[str]:
    section = MarkdownSection[kind](title="One", template=template, key="one", **given)
    return Prompt(PromptTemplate[str](ns="a", key="b", sections=[section]))


def test_sections_stand_below_their_headings() -> None:
    """Deeper ones below deeper headings; one that is summarised says how to open it."""
    assert PROMPT.render(inject_output_instructions=False).text == TEXT


def test_a_prompt_says_what_output_it_wants_unless_told_not_to() -> None:
    """S4-18: a provider that enforces schemas turns it off."""
    rendered = PROMPT.render()
    assert rendered.output is not None
    assert rendered.text == f"{TEXT}\n\n## Response format\n\n{rendered.output.instructions}"
    assert rendered.output_type is ShapeDataclass
    assert (rendered.container, rendered.allow_extra_keys) == ("object", False)
    quiet = PromptTemplate[ShapeDataclass](ns="a", key="b", inject_output_instructions=False)
    assert Prompt(quiet).render().text == ""


def test_tools_come_in_the_order_of_the_sections_that_are_shown() -> None:
    """A summary hides its section's tools, and brings the one that opens it."""
    assert PROMPT.render().tools == (SEARCH, OPEN_SECTIONS)
    everything = VisibilityOverrides({"reference": FULL, "reference.details": FULL})
    rendered = PROMPT.render(Style(strict=True), visibility=everything)
    assert rendered.tools == (SEARCH, READ, LOOK)
    assert "#### Details" not in rendered.text
    assert "### Details\n\nMany." in rendered.text


def test_what_was_shown_is_known() -> None:
    """How, and where; what is not enabled or below a summary is not there."""
    assert PROMPT.render().sections == (
        ShownSection("task", "Task", FULL),
        ShownSection("task.style", "Style", FULL),
        ShownSection("reference", "Reference", SUMMARY),
    )
    opened = PROMPT.render(visibility=OPENED)
    assert opened.shown == ("task", "task.style", "reference")
    assert opened.summarised == ("reference.details",)
    assert "All about the top." in opened.text


def test_a_section_can_be_closed_too() -> None:
    """If it has a summary; paths that the prompt does not have are of no effect."""
    closed = VisibilityOverrides({"reference": SUMMARY, "elsewhere": SUMMARY})
    assert PROMPT.render(visibility=closed).digest == PROMPT.render().digest
    with pytest.raises(PromptRenderError, match="'task': it has no `summary`"):
        PROMPT.render(visibility=VisibilityOverrides({"task": SUMMARY}))


def test_parameters_of_render_are_bound_on_top() -> None:
    """S4-1: in their order, and are those that the rendered prompt names."""
    rendered = PROMPT.render(Style("kind"), Task("the sea"))
    assert "Be kind." in rendered.text
    assert "Reach the sea." in rendered.text
    assert rendered.params == (Style("kind"), Task("the sea"))
    assert PROMPT.params == (Task("the top", weights={"b": 1, "a": 2}),)


def test_parameters_are_matched_by_their_class() -> None:
    """Exactly, or else by a subclass, if there is only one."""
    assert one(Base).render(Derived("d")).text == "## One\n\nd"
    assert one(Base).render(Derived("d"), Base("b")).text == "## One\n\nb"
    with pytest.raises(PromptRenderError, match="more than one of the bound parameters is a Base"):
        one(Base).render(Derived("d"), DerivedToo("e"))


def test_missing_parameters_are_named() -> None:
    """With the prompt, the section, and what to write."""
    with pytest.raises(PromptRenderError, match=r"bind\(Task\(") as caught:
        Prompt(TEMPLATE).render()
    assert caught.value.prompt == "tests/drawing/draw"
    assert caught.value.section == "task"


def test_a_section_that_is_not_enabled_is_left_out_with_all_that_is_in_it() -> None:
    """`enabled` is asked with the parameters, or with nothing if there are none."""
    child = MarkdownSection(title="Child", template="c", key="child", tools=[LOOK])
    prompt = one(Base, enabled=lambda base: base.word == "yes", children=[child])
    assert prompt.render(Base("no")).text == ""
    assert prompt.render(Base("no")).tools == ()
    assert prompt.render(Base("yes")).tools == (LOOK,)
    assert one(None, "t", enabled=lambda: False).render().text == ""


def test_what_enabled_raises_is_said() -> None:
    """Where, and what."""
    with pytest.raises(
        PromptRenderError, match="section 'one': `enabled` raised ZeroDivisionError"
    ):
        one(Base, enabled=lambda base: 1 / 0).render(Base("x"))


@pytest.mark.parametrize("word", ["\ud800", object(), {"a": b""}])
def test_a_value_that_is_no_text_is_refused(word: Any) -> None:
    """Naming the section."""
    with pytest.raises(PromptRenderError, match="'a/b', section 'one'"):
        one(Base).render(Base(word))


def test_headings_stop_at_six() -> None:
    """Which is all that Markdown has."""
    section = MarkdownSection(title="T7", template="t", key="k7")
    for depth in range(6, 0, -1):
        section = MarkdownSection(
            title=f"T{depth}", template="t", key=f"k{depth}", children=[section]
        )
    lines = Prompt(PromptTemplate(ns="a", key="b", sections=[section])).render().text.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "## T1",
        "### T2",
        "#### T3",
        "##### T4",
        "###### T5",
        "###### T6",
        "###### T7",
    ]


# --- overrides of texts ------------------------------------------------------------


def test_a_store_replaces_the_text_of_sections() -> None:
    """S4-24: for a prompt and a tag, parameters and all."""
    store = Store(task="Only ${goal}!", task__style="Be ${tone} always.")
    rendered = PROMPT.render(overrides_store=store, overrides_tag="v2")
    assert store.asked == [("tests/drawing", "draw", "v2")]
    assert "Only the top!" in rendered.text
    assert "Be plain always." in rendered.text
    assert rendered.sections[0].overridden is True
    assert rendered.sections[2].overridden is False
    assert rendered.digest != PROMPT.render().digest
    assert rendered.unused_overrides == ()


def test_overrides_for_sections_that_are_gone_are_reported_and_ignored() -> None:
    """S4-24: a prompt that has changed since goes on."""
    rendered = PROMPT.render(overrides_store=Store(old="x", task__gone="y"))
    assert rendered.unused_overrides == ("old", "task.gone")
    assert rendered.text == PROMPT.render().text
    store = Store()
    assert PROMPT.render(overrides_store=store).unused_overrides == ()
    assert store.asked == [("tests/drawing", "draw", "latest")]


def test_an_override_that_asks_for_a_field_that_there_is_not_is_refused() -> None:
    """S4-24: saying that it comes from the store."""
    with pytest.raises(
        PromptRenderError, match=r"'task': the text of the overrides store: .*goals"
    ):
        PROMPT.render(overrides_store=Store(task="${goals}"))


# --- digests -----------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_rendering_again_gives_the_same(goal: str, strict: bool) -> None:
    """Text, tools, digest and all."""
    first, second = (
        Prompt(TEMPLATE).bind(Task(goal), Style(strict=strict)).render() for _ in range(2)
    )
    assert first == second
    assert len(first.digest) == len(first.tools_digest) == 64


def test_the_digest_covers_text_tools_and_output() -> None:
    """And the tools have one of their own."""
    plain = PROMPT.render()
    assert plain.digest != PROMPT.render(Task("elsewhere")).digest
    assert plain.tools_digest == PROMPT.render(Task("elsewhere")).tools_digest
    assert plain.tools_digest != PROMPT.render(visibility=OPENED).tools_digest

    def made(out: Any, **given: Any) -> Any:
        return Prompt(PromptTemplate[out](ns="a", key="b", **given)).render(
            inject_output_instructions=False
        )

    assert made(str).text == made(Base).text == ""
    digests = {made(str).digest, made(Base).digest, made(list[Base]).digest}
    digests.add(made(Base, allow_extra_keys=True).digest)
    assert len(digests) == 4


ELSEWHERE = """
from tests.unit.runtime.prompts import PROMPT
rendered = PROMPT.render()
print(rendered.digest, rendered.tools_digest, rendered.text)
"""


@pytest.mark.process
def test_a_prompt_is_the_same_in_every_process() -> None:
    """Whatever the order of sets is there."""
    rendered = PROMPT.render()
    expected = f"{rendered.digest} {rendered.tools_digest} {rendered.text}\n"
    for seed in ("1", "2"):
        came = subprocess.run(
            [sys.executable, "-c", ELSEWHERE],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
            text=True,
        )
        assert came.stdout == expected


def test_the_digest_of_a_known_prompt_stays() -> None:
    """A change here would make every recorded prompt another one."""
    section = MarkdownSection(title="Task", template="Do it.", key="task", tools=[LOOK])
    rendered = Prompt(PromptTemplate(ns="a", key="b", sections=[section])).render()
    assert rendered.digest == GOLDEN_DIGEST
    assert rendered.tools_digest == GOLDEN_TOOLS_DIGEST


def test_a_prompts_deadline_is_rendered_with_it() -> None:
    """S4-12: so that evaluate's own can go before it."""
    deadline = Deadline(datetime(2030, 1, 1, tzinfo=UTC))
    rendered = replace(PROMPT, deadline=deadline).render()
    assert rendered.deadline is deadline
    assert replace(rendered, deadline=None).deadline is None
    assert PROMPT.render().deadline is None
