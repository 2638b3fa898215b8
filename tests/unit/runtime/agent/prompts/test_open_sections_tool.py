"""Opening sections: what the model may ask for, and what it is told otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.runtime.prompts import PROMPT
from turnledger.runtime import (
    SectionVisibility,
    ToolContext,
    VisibilityExpansionRequired,
    VisibilityOverrides,
    tool_to_spec,
)
from turnledger.runtime.agent.prompts import OPEN_SECTIONS
from turnledger.runtime.agent.tools import invoke

FULL = SectionVisibility.FULL
CONTEXT = ToolContext(call_id="c1", prompt=PROMPT, rendered_prompt=PROMPT.render())


def asked(*keys: Any, reason: str = "to know", context: ToolContext = CONTEXT) -> str:
    arguments = json.dumps({"section_keys": list(keys), "reason": reason})
    result = invoke(OPEN_SECTIONS, arguments, context)
    assert result.success is False
    return result.message


def test_opening_a_summarised_section_asks_for_it() -> None:
    """S2-8: with the path, the visibility and the model's reason."""
    with pytest.raises(VisibilityExpansionRequired) as caught:
        asked("reference", "reference")
    assert caught.value.requested_overrides == {"reference": FULL}
    assert caught.value.section_keys == ("reference",)
    assert caught.value.reason == "to know"


def test_what_was_asked_for_opens_the_section() -> None:
    """S2-8: and then what is within can be opened in turn."""
    overrides = VisibilityOverrides().with_override("reference", FULL)
    opened = PROMPT.render(visibility=overrides)
    context = ToolContext(call_id="c2", rendered_prompt=opened)
    with pytest.raises(VisibilityExpansionRequired) as caught:
        asked("reference.details", context=context)
    assert caught.value.requested_overrides == {"reference.details": FULL}
    last = PROMPT.render(visibility=overrides.with_override("reference.details", FULL))
    assert OPEN_SECTIONS not in last.tools


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["nope"], "there is no section 'nope'"),
        (["task"], "'task' is open already"),
        (["task.style", "nope"], "'task.style' is open already; there is no section 'nope'"),
        (["reference", "nope"], "there is no section 'nope'"),
        (["reference.details"], "there is no section 'reference.details'"),
        ([], "name at least one"),
    ],
)
def test_a_section_that_cannot_be_opened_is_a_failed_result(keys: list[str], said: str) -> None:
    """It names those that can, and nothing is opened."""
    message = asked(*keys)
    assert said in message
    assert "Sections that can be opened: 'reference'." in message


def test_without_a_prompt_nothing_can_be_opened() -> None:
    """And that is said."""
    assert "can be opened: none" in asked("reference", context=ToolContext())


def test_the_tool_says_what_its_parameters_are_for() -> None:
    """Both are needed."""
    parameters = tool_to_spec(OPEN_SECTIONS)["function"]["parameters"]
    assert parameters["required"] == ["section_keys", "reason"]
    assert "summarised" in parameters["properties"]["section_keys"]["description"]
    result = invoke(OPEN_SECTIONS, '{"section_keys": "reference", "reason": "x"}', CONTEXT)
    assert "section_keys: Expected 'array', got 'str'" in result.message
