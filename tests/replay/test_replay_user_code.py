"""Errors of the user's code during a replay: reported as that, where they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.replay.farm import Farm
from tests.replay.shepherd import DONE, Job, Sheep, Shepherd, calls
from turnledger.ledger import Ledger
from turnledger.runtime import MarkdownSection, Prompt, PromptTemplate, Session
from turnledger.runtime.replaying.divergence import Divergence
from turnledger.runtime.replaying.replay import replay
from turnledger.runtime.replaying.user_code import UserCodeError

REPLIES = [calls("a1"), DONE]
SECRET = "AKIAIOSFODNN7EXAMPLE"
HERE = "tests/replay/test_replay_user_code.py"


def place_of(function: Callable[..., Any], at: int = 1) -> str:
    """A line of a function, and its name, as a report has them."""
    code = function.__code__
    return f"{HERE}:{code.co_firstlineno + at} ({code.co_name})"


def diverged(farm: Farm, run: UUID, **changed: Any) -> Divergence:
    """The divergence of an agent with something changed."""
    options = {**farm.options, "live": False, **changed}
    found = replay(farm.ledger, run, loop=Shepherd(Ledger.open("memory://"), **options))
    assert found.divergence is not None
    return found.divergence


def check_traceback(text: str) -> None:
    """It begins at the user's code and has no frame of the package."""
    assert text.startswith("Traceback (most recent call last):\n")
    assert "run_to_end" not in text
    assert "turnledger/runtime" not in text


def divides(*given: Any) -> Any:
    return 1 / len(given[1:])


def ends(*given: Any) -> Any:
    sys.exit(f"no more of {SECRET}")


def disabled(prompt: Prompt[Any]) -> Prompt[Any]:
    """The prompt with a section whose `enabled` raises."""
    first = prompt.template.sections[0]
    asked = MarkdownSection(title="More", template="More.", key="more", enabled=divides)
    template = PromptTemplate[Any](
        ns=prompt.ns, key=prompt.key, sections=[first, asked], name=prompt.name
    )
    return Prompt(template).bind(*prompt.params)


def leaks(*given: Any) -> Any:
    raise ValueError(f"key={SECRET}")


@pytest.mark.parametrize(
    ("opens_with", "kind", "raiser"),
    [
        (divides, "ZeroDivisionError", divides),
        (ends, "SystemExit", ends),
        (leaks, "ValueError", leaks),
        (disabled, "ZeroDivisionError", divides),
    ],
)
def test_an_error_of_create_prompt_is_the_users(
    farm: Farm, opens_with: Any, kind: str, raiser: Callable[..., Any]
) -> None:
    """Its type, file, line and function, and a traceback of the user's lines without secrets."""
    run = farm.record(replies=REPLIES)
    found = diverged(farm, run, opens_with=opens_with)
    assert found.cause == "your code raised"
    assert found.detail == f"{kind} at {place_of(raiser)}"
    assert f"your code raised {kind} at {place_of(raiser)}" in found.summary
    check_traceback(found.diff)
    assert kind in found.diff
    assert raiser.__name__ in found.diff
    assert SECRET not in str(found)
    assert "another way" not in str(found)


def test_another_error_than_the_recorded_one_is_the_users(farm: Farm) -> None:
    """The run failed by one bug, and would fail by another now."""
    run = farm.record(ValueError, replies=REPLIES, opens_with=leaks)
    found = diverged(farm, run, opens_with=divides)
    assert (found.cause, found.tag) == ("your code raised", "run.failed")
    assert found.detail == f"ZeroDivisionError at {place_of(divides)}"
    assert replay(farm.ledger, run, loop=farm.dead()).divergence is None


def test_an_error_of_create_session_is_the_users(farm: Farm) -> None:
    """There is nothing to compare yet: it is an error, with the user's place and lines."""
    run = farm.record(replies=REPLIES)
    with pytest.raises(UserCodeError) as raised:
        diverged(farm, run, session=divides)
    said = str(raised.value)
    assert said.startswith(f"your code raised ZeroDivisionError at {place_of(divides)}\n")
    check_traceback(raised.value.traceback)


def test_an_error_of_a_reducer_names_its_line(farm: Farm) -> None:
    """A reducer that refuses what it took is a changed one, and where it raises is said."""

    def prepares(reduce: Callable[..., Any]) -> Callable[[Session], None]:
        return lambda session: session[Sheep].register(
            Sheep, lambda sheep, event, *, context: reduce(sheep, event)
        )

    def keeps(sheep: Any, event: Any) -> Any:
        return (*sheep, event)

    run = farm.record(replies=REPLIES, session=prepares(keeps))
    found = diverged(farm, run, session=prepares(leaks))
    assert found.cause == "reducer changed"
    assert found.detail == f"your code raised ValueError at {place_of(leaks)}"
    check_traceback(found.diff)
    assert SECRET not in found.diff


def test_an_error_without_a_line_of_the_users_is_not_theirs(farm: Farm) -> None:
    """A template without its parameters fails in rendering: the failure is what changed."""

    def unbound(prompt: Prompt[Any]) -> Prompt[Any]:
        return Prompt(prompt.template)

    run = farm.record(replies=REPLIES)
    found = diverged(farm, run, opens_with=unbound)
    assert found.cause == "failure changed"
    assert Job.__name__ in found.diff
