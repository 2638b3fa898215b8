"""One thing about an agent is changed: the first event that differs is named, with its cause.

And the other way round: changes that say nothing about what a run decides are none.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest

from tests.agent import says
from tests.matrices import further
from tests.replay.farm import Farm, farm_at
from tests.replay.shepherd import DONE, Flock, Job, Sheep, Shepherd, asks, calls, remembers
from tests.replay.unsorted import record, recorded_with, replayed_with
from turnledger.ledger import Ledger, MessageAppended
from turnledger.runtime import (
    CheckpointSaved,
    MessageBuilder,
    Prompt,
    PromptEvaluationError,
    PromptExecuted,
    PromptRendered,
    RecoveryConfig,
    ScriptedAdapter,
    Session,
    TextReceived,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from turnledger.runtime.replaying.divergence import Cause, Divergence
from turnledger.runtime.replaying.replay import ReplayDivergedError, Replayed, replay

REPLIES = [calls("a1"), calls("a2", "a3"), DONE]


def again(farm: Farm, run: UUID, **changed: Any) -> Replayed:
    """The run again, by an agent with something changed and nobody to ask."""
    options = {"replies": REPLIES, **farm.options, "live": False, **changed}
    loop = Shepherd(Ledger.open("memory://"), **options)
    found = replay(farm.ledger, run, loop=loop)
    assert (loop.called, loop.sent) == ([], 0)
    return found


def parted(
    farm: Farm, run: UUID, tag: str, cause: Cause, *words: str, role: str = "", **changed: Any
) -> Divergence:
    """The divergence of a changed agent: the first event with this tag, for this cause.

    The words that make the difference are in what a person is shown.
    """
    found = again(farm, run, **changed)
    divergence = found.divergence
    assert divergence is not None, "it did not part from its record"
    first = next(
        record.version
        for record in farm.ledger.read(run)
        if record.tag == tag
        and (not isinstance(record.event, MessageAppended) or record.event.message.role == role)
    )
    assert (divergence.cause, divergence.tag, divergence.version) == (cause, tag, first)
    assert (found.version, found.ok) == (first - 1, False)
    assert found.state.version == first - 1
    shown = str(divergence)
    assert f"version {first} ({tag}): {cause}" in shown
    assert divergence.advice in shown
    for word in words:
        assert word in shown
    with pytest.raises(ReplayDivergedError, match=f"version {first}"):
        found.check()
    return divergence


@pytest.fixture
def run(farm: Farm) -> Iterator[UUID]:
    """A run of the unchanged agent; unchanged, it runs again."""
    found = farm.record(replies=REPLIES)
    assert again(farm, found).divergence is None
    yield found
    assert again(farm, found).divergence is None


# --- one thing is changed -------------------------------------------------------------------


@dataclass(frozen=True)
class Wide:
    """The parameters with one more."""

    name: str = "all"
    meadow: str = "north"


@dataclass(frozen=True)
class Described:
    """The same parameters, in other words."""

    name: str = field(default="all", metadata={"description": "Which one."})


@dataclass(frozen=True)
class Counted:
    """An answer."""

    sheep: int


@dataclass(frozen=True)
class CountedAndWeighed:
    """An answer with one more field."""

    sheep: int
    weight: float = 0.0


class Parrot(ScriptedAdapter[Any]):
    """Another provider."""

    name = "parrot"


def _reducing(
    reduce: Callable[[tuple[Sheep, ...], Sheep], tuple[Sheep, ...]],
) -> Callable[[Session], None]:
    def prepares(session: Session) -> None:
        session[Sheep].register(Sheep, lambda sheep, event, *, context: reduce(tuple(sheep), event))

    return prepares


def _opens(text: str) -> Callable[[Prompt[Any]], Prompt[Any]]:
    return lambda prompt: prompt.with_messages(MessageBuilder.next_step(None).add_text(text))


def _seeds(*names: str) -> Callable[[Session], None]:
    def prepares(session: Session) -> None:
        session.install(Sheep)
        if names:
            session[Sheep].seed([Sheep(name) for name in names])

    return prepares


def _noting(text: Callable[[], str]) -> Callable[[Prompt[Any]], Prompt[Any]]:
    """Called within create_prompt: notes something in the session that it is called for."""

    def noted(prompt: Prompt[Any]) -> Prompt[Any]:
        loop = _loop_in_create_prompt()
        assert loop._kept is not None
        loop._kept[Sheep].append(Sheep(f"noted {text()}"))
        return prompt

    return noted


def _loop_in_create_prompt() -> Shepherd:
    """The agent whose create_prompt is being called."""
    frame = sys._getframe(1)
    while "self" not in frame.f_locals or not isinstance(frame.f_locals["self"], Shepherd):
        assert frame.f_back is not None
        frame = frame.f_back
    found: Shepherd = frame.f_locals["self"]
    return found


def _refuses(*given: Any) -> Any:
    raise ValueError("no words")


def _keeps(sheep: tuple[Sheep, ...], event: Sheep) -> tuple[Sheep, ...]:
    return (*sheep, event)


def _weighs(loop: Shepherd, **other: Any) -> Any:
    return loop.tool("weigh", **{"description": "Weigh one.", **other})


def _two_tools(loop: Shepherd) -> Sequence[Any]:
    return [loop.tool(), _weighs(loop)]


class Case:
    """A change of an agent: how it was recorded, and what is found of the change."""

    def __init__(
        self, tag: str, cause: Cause, *words: str, recorded: Any = None, **changed: Any
    ) -> None:
        self.recorded = {"replies": REPLIES, **(recorded or {})}
        self.changed = changed
        self.found = (tag, cause, *words)


def _tools(cause: Cause, *words: str, tools: Callable[[Shepherd], Sequence[Any]]) -> Case:
    """Other tools than the two that were offered."""
    return Case("evaluation.started", cause, *words, recorded={"tools": _two_tools}, tools=tools)


def _output(native: bool) -> Case:
    recorded = {
        "replies": [calls("a1"), says('{"sheep": 3}')],
        "output": Counted,
        "adapter_options": {"use_native_response_format": native},
    }
    cause: Cause = "output type changed"
    return Case("evaluation.started", cause, recorded=recorded, output=CountedAndWeighed)


def _output_on(what: str, *, native: bool) -> Case:
    """An output type on one side, and text on the other."""
    told = {"adapter_options": {"use_native_response_format": native}}
    before, after = {"output": Counted}, {"output": None}
    if what == "added":
        before, after = after, before
    cause: Cause = "output type added" if what == "added" else "output type dropped"
    replies = [calls("a1"), says('{"sheep": 3}')]
    recorded = {"replies": replies, **told, **before}
    return Case("evaluation.started", cause, recorded=recorded, **after)


def _output_told(*, before: bool) -> Case:
    """The same output type, asked for in another way."""
    told = [{"use_native_response_format": native} for native in (before, not before)]
    replies = [calls("a1"), says('{"sheep": 3}')]
    recorded = {"replies": replies, "output": Counted, "adapter_options": told[0]}
    cause: Cause = "request options changed"
    words = ("use_native_response_format",)
    return Case("evaluation.started", cause, *words, recorded=recorded, adapter_options=told[1])


def _state(tag: str, *words: str, recorded: Any = None, **changed: Any) -> Case:
    return Case(tag, "session state changed", *words, recorded=recorded, **changed)


def _request(recorded: Any = None, *words: str, **options: Any) -> Case:
    """Other options of the adapter."""
    before = {"adapter_options": recorded or {}}
    cause: Cause = "request options changed"
    return Case("model.called", cause, *words, recorded=before, adapter_options=options)


_WARM = {"request_options": {"temperature": 0.5}}
CASES = {
    "the time in the prompt, where there was none before": Case(
        "evaluation.started",
        "time or randomness used",
        *("Please count the sheep", "Now it is", "clock"),
        template=lambda: f"Please ${{text}}. Now it is {datetime.now()}.",
    ),
    "another word in the prompt": Case(
        "evaluation.started",
        "prompt text changed",
        *("-Please count the sheep.", "+Kindly count the sheep."),
        template="Kindly ${text}.",
    ),
    "a tool renamed": _tools(
        "tool renamed",
        *("count is tally now", '-      "name": "count"', '+      "name": "tally"'),
        tools=lambda loop: [loop.tool("tally"), _weighs(loop)],
    ),
    "a tool with another schema": _tools(
        "tool schema changed",
        "count",
        tools=lambda loop: [loop.tool(params_type=Wide), _weighs(loop)],
    ),
    "a tool with a described parameter": _tools(
        "tool schema changed",
        "weigh",
        tools=lambda loop: [loop.tool(), _weighs(loop, params_type=Described)],
    ),
    "a tool with another description": _tools(
        "tool schema changed",
        "weigh",
        tools=lambda loop: [loop.tool(), _weighs(loop, description="Put one on the scales.")],
    ),
    "tools swapped": _tools(
        "tool order changed",
        *("weigh, count", "fixed order"),
        tools=lambda loop: [_weighs(loop), loop.tool()],
    ),
    "a tool dropped": _tools(
        "tool removed", "weigh", "Offer the tool again", tools=lambda loop: [loop.tool()]
    ),
    "a tool added": _tools(
        "tool added",
        *("shear", "Take the tool out"),
        tools=lambda loop: [*_two_tools(loop), loop.tool("shear", description="Shear one.")],
    ),
    "no tools left": _tools("tool removed", "count, weigh", tools=lambda loop: []),
    "the first tool of all": Case(
        "evaluation.started",
        "tool added",
        "count",
        recorded={"replies": [DONE], "tools": lambda loop: []},
        tools=lambda loop: [loop.tool()],
    ),
    "another output, in the prompt": _output(native=False),
    "another output, told to the provider": _output(native=True),
    "an output type dropped, in the prompt": _output_on("dropped", native=False),
    "an output type dropped, told to the provider": _output_on("dropped", native=True),
    "an output type added, in the prompt": _output_on("added", native=False),
    "an output type added, told to the provider": _output_on("added", native=True),
    "an output type told to the provider, no more in the prompt": _output_told(before=False),
    "an output type in the prompt, no more told to the provider": _output_told(before=True),
    "a section of the user's own with the title of ours": Case(
        "evaluation.started",
        "prompt text changed",
        recorded={"template": "Please ${text}.\n\n## Response format\n\nBriefly."},
        template="Please ${text}.\n\n## Response format\n\nAt length.",
    ),
    "another opening message with the same prompt": Case(
        "evaluation.started",
        "opening messages changed",
        recorded={"opens_with": _opens("There are three.")},
        opens_with=_opens("There are four."),
    ),
    "an opening message, where there was none": Case(
        "evaluation.started", "opening messages changed", opens_with=_opens("There are four.")
    ),
    "a reducer that refuses what it took": Case(
        "slice.event_applied",
        "reducer changed",
        "no words",
        recorded={"session": _reducing(_keeps)},
        session=_reducing(_refuses),
    ),
    "another seed": _state(
        "slice.event_applied",
        *("dolly", "molly"),
        recorded={"session": _seeds("dolly")},
        session=_seeds("molly"),
    ),
    "a seed that is gone": _state(
        "slice.event_applied", "dolly", recorded={"session": _seeds("dolly")}, session=_seeds()
    ),
    "a seed, where there was none": _state("checkpoint.reached", "molly", session=_seeds("molly")),
    "another note of create_prompt": _state(
        "slice.event_applied",
        *("noted one way", "noted another"),
        recorded={"opens_with": _noting(lambda: "one way")},
        opens_with=_noting(lambda: "another"),
    ),
    "another model of the same adapter": Case(
        "model.called", "model changed", "script", "bard", adapter_options={"model": "bard"}
    ),
    "another provider, told by its name": Case(
        "evaluation.started", "model changed", "scripted", "parrot", adapter=Parrot
    ),
    "a request option": _request(None, "request_digest", "tool choice", **_WARM),
    "a choice of tools": _request(None, "request_digest", "tool choice", tool_choice="required"),
    "a choice of one tool": _request(
        None, "request_digest", "tool choice", tool_choice={"name": "count"}
    ),
    "a request option that is gone": _request(_WARM),
    "a request option that is another": _request(_WARM, request_options={"temperature": 0.7}),
    "a failure that is new: the prompt can't be made any more": Case(
        "checkpoint.reached", "your code raised", "no words", "Traceback", opens_with=_refuses
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_changed_is_named(farm: Farm, name: str) -> None:
    """By the first event that differs and its cause; unchanged, the agent runs again."""
    case = CASES[name]
    run = farm.record(**case.recorded)
    assert again(farm, run).divergence is None
    parted(farm, run, *case.found, **case.changed)  # type: ignore[arg-type]
    assert again(farm, run).divergence is None


# --- time and randomness ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    ["%Y-%m-%d", "%d.%m.%Y", "%x", "%H:%M", "%A, %d %B %Y", "%b %d", "%Y-%m-%dT%H:%M:%SZ", "%s"],
)
def test_another_day_in_the_prompt(farm: Farm, written: str) -> None:
    """The same all day long, and another one tomorrow: a changed text that looks like a time."""
    recorded = datetime(2025, 3, 1, 9, 30)
    farm.options = {}
    text = "Please ${text}. Today is {}."
    run = farm.record(replies=REPLIES, template=text.replace("{}", recorded.strftime(written)))
    later = datetime(2025, 10, 26, 17, 45).strftime(written)
    parted(
        farm,
        run,
        "evaluation.started",
        "prompt text changed",
        "Hint: only what looks like a time, a number or an id differs.",
        f"-Please count the sheep. Today is {recorded.strftime(written)}.",
        f"+Please count the sheep. Today is {later}.",
        template=text.replace("{}", later),
    )


def test_the_day_in_the_prompt_frozen_to_another(farm: Farm) -> None:
    """By whoever runs it: what counts is the text."""
    today = [date(2025, 3, 1)]
    text: Callable[[], str] = lambda: f"It is {today[0]}. Please ${{text}}."  # noqa: E731
    run = farm.record(replies=REPLIES, template=text)
    assert again(farm, run).ok
    today[0] = date(2025, 3, 2)
    words = ("2025-03-01", "2025-03-02", "Hint: ")
    parted(farm, run, "evaluation.started", "prompt text changed", *words)
    today[0] = date(2025, 3, 1)
    assert again(farm, run).ok


@pytest.mark.parametrize(
    ("recorded", "found", "hint"),
    [
        ("Decide", "Decline", ""),
        ("Mark it", "Marvel at it", ""),
        ("3 sheep", "4 sheep", ""),
        ("May", "March", "looks like a time"),
        ("order 1234567", "order 7654321", "looks like a time, a number or an id"),
        ("cats and dogs say", "dogs and cats say", "the same words in another order"),
    ],
)
def test_no_cause_is_guessed_from_words(farm: Farm, recorded: str, found: str, hint: str) -> None:
    """A text that differs is a changed text; what it looks like is a hint beside the cause."""
    run = farm.record(replies=REPLIES, template=f"{recorded}: ${{text}}.")
    divergence = parted(
        farm, run, "evaluation.started", "prompt text changed", template=f"{found}: ${{text}}."
    )
    assert hint in divergence.hint
    assert bool(divergence.hint) == bool(hint) == ("Hint: " in str(divergence))


@pytest.mark.parametrize("what", ["tools", "messages"])
def test_what_differs_from_itself_was_seen(farm: Farm, what: str) -> None:
    """Tools and opening messages are made twice, as the text is."""
    changed: dict[str, Any] = {
        "tools": {
            "tools": lambda loop: [loop.tool(), loop.tool("weigh", description=str(uuid4()))]
        },
        "messages": {"opens_with": lambda prompt: _opens(str(uuid4()))(prompt)},
    }[what]
    run = farm.record(replies=REPLIES)
    words = ("seen: made twice in this process",)
    parted(farm, run, "evaluation.started", "time or randomness used", *words, **changed)


def test_a_session_that_can_not_be_made_twice_is_not_called_random(farm: Farm) -> None:
    """What was not seen is not said: create_session raises when it is called once more."""
    made: list[int] = []

    def prepares(session: Session) -> None:
        made.append(1)
        if len(made) > 1:
            raise RuntimeError("only once")
        session[Sheep].seed([Sheep("molly")])

    run = farm.record(replies=REPLIES, session=_seeds("dolly"))
    parted(farm, run, "slice.event_applied", "session state changed", session=prepares)


@pytest.mark.parametrize("made", [lambda: str(uuid4()), lambda: f"{random.random()}"])
def test_an_id_in_the_prompt(farm: Farm, made: Callable[[], str]) -> None:
    """Recorded with one, and never again the same."""
    run = farm.record(replies=REPLIES, template=lambda: f"Request {made()}: please ${{text}}.")
    parted(farm, run, "evaluation.started", "time or randomness used", "Request")


@pytest.mark.parametrize("also_live", [False, True])
def test_randomness_in_a_reducer(farm: Farm, also_live: bool) -> None:
    """It gives another state each time, whether it did when it was recorded or not."""
    usual = _reducing(_keeps)
    at_random = _reducing(lambda sheep, event: (*sheep, Sheep(f"{event.name} {random.random()}")))
    run = farm.record(replies=REPLIES, session=at_random if also_live else usual)
    found = again(farm, run, session=at_random).divergence
    assert found is not None
    assert (found.cause, found.tag) == ("time or randomness used", "checkpoint.reached")
    applied = farm.tags(run).index("slice.event_applied")
    assert found.version == farm.tags(run).index("checkpoint.reached", applied) + 1
    assert "reducer" in str(found)
    assert "Sheep" in str(found)
    assert "a1" in found.diff


@pytest.mark.parametrize("made", [lambda: uuid4().hex, lambda: str(uuid4()), datetime.now])
def test_an_id_in_what_the_session_is_seeded_with(farm: Farm, made: Callable[[], Any]) -> None:
    """Ids and times are made in tools, or come with the request."""

    def prepares(session: Session) -> None:
        session[Sheep].seed([Sheep(f"dolly {made()}")])

    run = farm.record(replies=REPLIES, session=prepares)
    parted(farm, run, "slice.event_applied", "time or randomness used", "dolly", "Sheep", "clock")


def test_an_id_that_create_prompt_puts_into_the_session(farm: Farm) -> None:
    """It is made anew each time."""
    farm.options = {}
    run = farm.record(replies=REPLIES, opens_with=_noting(lambda: str(uuid4())))
    parted(farm, run, "slice.event_applied", "time or randomness used", "noted")


@pytest.mark.parametrize("recorded", further(1, 3, 7))
def test_the_order_of_a_set_in_the_prompt(tmp_path: Path, recorded: int) -> None:
    """Recorded in one process, and run again in another with other hashes."""
    told = recorded_with(tmp_path / "ledger.db", seed=recorded)
    same = replayed_with(tmp_path / "ledger.db", seed=recorded)
    assert (same["divergence"], same["version"]) == (None, told["head"])
    divergence = replayed_with(tmp_path / "ledger.db", seed=recorded + 1)["divergence"]
    assert divergence["cause"] == "order of a set used"
    assert divergence["detail"].startswith("seen: a process with other hashes")
    assert divergence["tag"] == "evaluation.started"
    assert divergence["version"] == told["tags"].index("evaluation.started") + 1
    assert "Sort it" in divergence["advice"]
    assert "juniper" in divergence["diff"]
    assert divergence["hint"] == ""


@pytest.mark.parametrize(
    ("app", "cause", "said"),
    [
        pytest.param(
            "unsorted_session",
            "order of a set used",
            "seen: a process with other hashes",
            marks=pytest.mark.full,
        ),
        ("by_process", "time or randomness used", "seen: another process"),
        ("changed", "prompt text changed", ""),
    ],
)
def test_what_another_process_makes_is_seen(
    tmp_path: Path, app: str, cause: Cause, said: str
) -> None:
    """The code is called in a process with other hashes before it is said to depend on them."""
    record(str(tmp_path / "ledger.db"), sort=True)
    divergence = replayed_with(tmp_path / "ledger.db", seed=2, app=app)["divergence"]
    assert divergence["cause"] == cause
    assert said in divergence["detail"]
    assert bool(divergence["hint"]) == (app == "changed")


# --- the prompt and its tools -------------------------------------------------------------------


class Moved(Shepherd):
    """The agent with a prompt of another name."""

    def create_prompt(self, request: Job) -> Prompt[Any]:
        prompt = super().create_prompt(request)
        prompt.template.key = "herder"
        return prompt


def test_another_prompt(farm: Farm, run: UUID) -> None:
    """A program that is not the one that made the run."""
    loop = Moved(Ledger.open("memory://"), REPLIES, live=False)
    divergence = replay(farm.ledger, run, loop=loop).divergence
    assert divergence is not None
    assert (divergence.cause, divergence.tag) == ("prompt changed", "evaluation.started")
    assert "replay/shepherd" in str(divergence)
    assert "herder" in str(divergence)


def test_output_that_is_read_otherwise(farm: Farm) -> None:
    """The schema is the same, and what is made of the answer is not."""

    @dataclass(frozen=True)
    class Stern:
        """An answer."""

        sheep: int

        def __post_init__(self) -> None:
            if strict and self.sheep > 2:
                raise ValueError("more than two sheep")

    strict = False
    run = farm.record(replies=[calls("a1"), says('{"sheep": 3}')], output=Stern)
    strict = True
    divergence = again(farm, run, output=Stern).divergence
    assert divergence is not None
    assert divergence.cause == "recorded answer refused"
    assert "more than two sheep" in divergence.summary
    assert divergence.version == farm.tags(run).index("tool_message.amended") + 1


# --- the session ------------------------------------------------------------------------------


def test_another_reducer(farm: Farm) -> None:
    """It makes something else of the same events."""
    run = farm.record(replies=REPLIES, session=_reducing(_keeps))
    divergence = again(
        farm, run, session=_reducing(lambda sheep, event: (event, Sheep("wolf"), *sheep))
    ).divergence
    assert divergence is not None
    assert (divergence.cause, divergence.tag) == ("reducer changed", "checkpoint.reached")
    applied = farm.tags(run).index("slice.event_applied")
    assert divergence.version == farm.tags(run).index("checkpoint.reached", applied) + 1
    assert "of Sheep" in divergence.summary
    assert "wolf" in divergence.diff


# --- requests and calls -------------------------------------------------------------------------


# Names that the tools refuse, without their schemas saying so.
UNWANTED: set[str] = set()


@dataclass(frozen=True)
class Picky:
    """Parameters with an opinion about their values."""

    name: str = "all"

    def __post_init__(self) -> None:
        if self.name in UNWANTED:
            raise ValueError("no such flock")


def _picky(loop: Shepherd) -> Sequence[Any]:
    return [loop.tool(params_type=Picky), loop.tool("weigh", params_type=Picky)]


@pytest.fixture
def unwanted() -> Iterator[set[str]]:
    """What the tools refuse: nothing at first, and nothing afterwards."""
    yield UNWANTED
    UNWANTED.clear()


@pytest.mark.parametrize("width", [1, 2])
def test_a_tool_that_became_stricter(farm: Farm, unwanted: set[str], width: int) -> None:
    """It refuses what it took: the call is named, and why."""
    run = farm.record(replies=REPLIES, tools=_picky, width=width)
    unwanted.add("a2")
    divergence = again(farm, run).divergence
    assert divergence is not None
    assert (divergence.cause, divergence.tag) == ("tool schema changed", "tool_call.started")
    (version,) = [
        record.version
        for record in farm.ledger.read(run)
        if record.tag == "tool_call.started" and record.event.call_id == "a2"  # type: ignore[union-attr]
    ]
    assert divergence.version == version
    assert "no such flock" in divergence.diff
    assert "a2" in divergence.diff


@pytest.mark.parametrize("width", [1, 2])
def test_a_tool_that_became_less_strict(farm: Farm, unwanted: set[str], width: int) -> None:
    """It takes what it refused."""
    unwanted.add("a2")
    run = farm.record(replies=REPLIES, tools=_picky, width=width)
    unwanted.clear()
    divergence = again(farm, run).divergence
    assert divergence is not None
    assert (divergence.cause, divergence.tag) == ("tool schema changed", "tool_call.failed")
    assert divergence.version == farm.tags(run).index("tool_call.failed") + 1
    assert "no such flock" in divergence.diff
    assert "a2" in divergence.diff


def test_refusals_in_other_words(farm: Farm) -> None:
    """The model was told something else than it would be now."""

    @dataclass(frozen=True)
    class Moody:
        """The parameters, with changing reasons."""

        name: str = "all"

        def __post_init__(self) -> None:
            raise ValueError(f"it is {mood}")

    mood = "raining"
    run = farm.record(
        replies=[calls("a1"), DONE], tools=lambda loop: [loop.tool(params_type=Moody)]
    )
    mood = "snowing"
    divergence = again(farm, run).divergence
    assert divergence is not None
    assert divergence.cause == "tool schema changed"
    assert "raining" in divergence.diff
    assert "snowing" in divergence.diff


@pytest.mark.parametrize(
    ("recorded", "found", "said"),
    [
        (1, 3, "1 at a time were recorded, and this adapter runs 3"),
        (3, 1, "more than 1 at a time were recorded, and this adapter runs 1"),
        (2, 3, "2 at a time were recorded, and this adapter runs 3"),
        (3, 2, "more than 2 at a time were recorded, and this adapter runs 2"),
    ],
)
@pytest.mark.parametrize("handler", [lambda params, context: ToolResult("Counted."), remembers])
def test_more_or_fewer_tools_at_a_time(
    farm: Farm, recorded: int, found: int, said: str, handler: Any
) -> None:
    """An adapter that runs another number of calls at a time is named as that."""
    replies = [calls("a1", "a2", "a3", "a4"), DONE]
    run = farm.record(replies=replies, handler=handler, width=recorded)
    divergence = again(farm, run, width=found).divergence
    assert divergence is not None
    assert (divergence.cause, divergence.detail) == ("parallel_tools changed", said)
    assert again(farm, run).divergence is None


def test_an_answer_that_was_refused_and_is_taken_now(farm: Farm) -> None:
    """The output type became less strict: it is the type that is named."""

    @dataclass(frozen=True)
    class Stern:
        """An answer."""

        sheep: int

        def __post_init__(self) -> None:
            if strict and self.sheep > 2:
                raise ValueError("more than two sheep")

    strict = True
    replies = [calls("a1"), says('{"sheep": 3}')]
    run = farm.record(PromptEvaluationError, replies=replies, output=Stern)
    strict = False
    parted(farm, run, "run.failed", "output type changed", "is taken now", output=Stern)


def test_a_failure_that_is_repaired(farm: Farm) -> None:
    """The run failed when it was recorded, and would not now."""
    run = farm.record(ValueError, opens_with=_refuses)
    parted(farm, run, "run.failed", "failure changed", "no words", opens_with=lambda prompt: prompt)


def test_every_cause_has_advice() -> None:
    """And a summary of one line."""
    for cause in get_args(Cause):
        one = Divergence(3, "model.called", cause, {}, {}, "", "what it is about")
        assert one.advice
        assert one.summary.count("\n") == 0


# --- what is no difference ----------------------------------------------------------------------


class Documented(Shepherd):
    """Another docstring, another class, another module even: the same decisions."""

    def create_prompt(self, request: Job) -> Prompt[Any]:
        """A docstring that was not there."""
        return super().create_prompt(request)


def _other_handler(params: Flock, context: ToolContext) -> Any:
    """Does something else entirely."""
    raise AssertionError("it is not called")


def _listening(event: Any) -> None:
    raise AssertionError("nobody is told of a replay")


_HARMLESS: dict[str, dict[str, Any]] = {
    "another handler": {"handler": _other_handler},
    "another on_interrupt": {"on_interrupt": "ask"},
    "a timeout": {"timeout": 3.0},
    "another throttle": {"adapter_options": {"throttle": None}},
    "streamed": {"adapter_options": {"stream": True}},
    "other replies": {"replies": [DONE]},
    "resources": {"resources": {"files": object()}},
    "a type that nobody uses": {
        "session": lambda session: (session.install(Sheep), session.install(Counted))
    },
    "a tool's docstring": {
        "tools": lambda loop: [
            loop.tool("count", params_type=Flock, handler=_documented(loop)),
            loop.tool("weigh"),
        ]
    },
    "listeners": {
        "listeners": dict.fromkeys(
            (ToolInvoked, PromptRendered, PromptExecuted, CheckpointSaved, TextReceived), _listening
        )
    },
}


def _documented(loop: Shepherd) -> Any:
    def handler(params: Flock, *, context: ToolContext) -> Any:
        """Words for people only."""
        return loop._handle_call(params, context=context)

    return handler


@pytest.mark.parametrize("name", _HARMLESS)
def test_what_is_no_difference(farm: Farm, run: UUID, name: str) -> None:
    """It has no part in what the run decides."""
    found = again(farm, run, **_HARMLESS[name])
    assert found.divergence is None
    assert found.version == farm.ledger.head(run)


def test_another_class_with_another_docstring(farm: Farm, run: UUID) -> None:
    """What it is called is not recorded."""
    loop = Documented(Ledger.open("memory://"), REPLIES, live=False)
    assert replay(farm.ledger, run, loop=loop).divergence is None


def test_another_worker_and_another_ledger(tmp_path: Path) -> None:
    """Recorded in one file by one worker; run again by another, whose ledger is elsewhere."""
    with farm_at(str(tmp_path / "one.db")) as farm:
        run = farm.record(replies=REPLIES)
    (tmp_path / "moved").mkdir()
    os.replace(tmp_path / "one.db", tmp_path / "moved" / "two.db")
    with (
        Ledger.open(str(tmp_path / "moved" / "two.db")) as moved,
        Ledger.open(str(tmp_path / "other.db")) as other,
    ):
        moved.worker = other.worker = "somebody else"
        loop = Shepherd(other, REPLIES, live=False)
        assert replay(moved, run, loop=loop).divergence is None
        assert list(other.runs()) == []


def test_other_hashes(tmp_path: Path) -> None:
    """A prompt without sets is the same in every process."""
    told = recorded_with(tmp_path / "ledger.db", seed=1, sort=True)
    for seed in (0, 2, 3):
        found = replayed_with(tmp_path / "ledger.db", seed=seed, app="in_order")
        assert (found["divergence"], found["version"]) == (None, told["head"])


def test_a_call_without_arguments(farm: Farm) -> None:
    """Its defaults are the tool's own."""
    run = farm.record(replies=[asks(("a1", "count", "")), DONE])
    assert again(farm, run).divergence is None


def test_an_agent_without_a_ledger(farm: Farm, run: UUID) -> None:
    """Where its runs would be kept is no part of what it decides."""
    loop = Shepherd(None, REPLIES, live=False)
    assert replay(farm.ledger, run, loop=loop).divergence is None


@pytest.mark.parametrize("interval", [2, 5])
def test_other_checkpoint_intervals(farm: Farm, run: UUID, interval: int) -> None:
    """How often it is kept where a run stands is none either."""
    recovery = RecoveryConfig(checkpoint_interval=interval, cleanup_on_success=False)
    assert again(farm, run, recovery=recovery).divergence is None
