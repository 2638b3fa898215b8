"""`Agent`: the front door over MainLoop, Prompt and Session."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agent import Crash, calls, says
from turnledger import Agent, Budget, ToolContext, tool
from turnledger.ledger import InvalidInputError, Ledger, MessageAppended, RunStarted, new_run_id
from turnledger.projections.session.reducers import reducer
from turnledger.runtime import (
    MainLoopConfig,
    Message,
    MessageBuilder,
    PromptDefinitionError,
    PromptEvaluationError,
    RecoveryError,
    Reply,
    Request,
    Session,
    Tool,
)
from turnledger.runtime.agents.shared_ledgers import shared_ledger
from turnledger.runtime.errors import AgentMismatchError


@dataclass
class Triage:
    priority: str
    reply: str


@dataclass
class Ticket:
    customer: str
    text: str


@dataclass(frozen=True)
class Mood:
    name: str


CREDITED: list[int] = []
CREDIT = calls(("c1", "credit", '{"euros": 5}'))
DONE = says('{"priority": "high", "reply": "Sorry!"}')


@tool(on_interrupt="ask")
def credit(euros: int, reason: str = "") -> str:
    """Credit an amount to the customer."""
    CREDITED.append(euros)
    return f"Credited {euros} EUR."


@pytest.fixture(autouse=True)
def no_credits() -> None:
    """Forget what earlier tests credited."""
    CREDITED.clear()


def triage(model: Any = (CREDIT, DONE), **more: Any) -> Agent[str, Triage]:
    settings: dict[str, Any] = {"instructions": "Triage the ticket.", "tools": [credit], **more}
    return Agent("support/triage", model=model, output=Triage, **settings)


def system_of(ledger: Ledger, run: Any) -> str:
    return next(
        record.event.message.content
        for record in ledger.read(run)
        if isinstance(record.event, MessageAppended) and record.event.message.role == "system"
    )


def test_a_run_gives_the_typed_output_and_what_it_took(ledger: Ledger) -> None:
    """One call runs model and tools to the end; the result has output, text, usage, messages."""
    result = triage().run("My invoice is wrong.", ledger=ledger)
    assert result.output == Triage("high", "Sorry!")
    assert result.text == DONE.text
    assert (result.usage.calls, result.usage.total_tokens) == (2, 26)
    assert [one.role for one in result.messages] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
    assert result.messages[1].content == "My invoice is wrong."
    assert CREDITED == [5]
    info = ledger.run(result.run_id)
    assert (info.agent, info.prompt, info.status) == (
        *("support/triage", "support/triage"),
        "completed",
    )


def test_without_an_output_type_the_output_is_the_text(ledger: Ledger) -> None:
    """An agent that has no output type answers with text, typed as text."""
    agent = Agent("poet", model=[says("Roses.")], instructions="Rhyme.")
    result = agent.run("Go.", ledger=ledger)
    assert result.output == result.text == "Roses."
    assert ledger.run(result.run_id).prompt == "agents/poet"


@pytest.mark.parametrize("text", ["Pay ${amount} of $5.", "  ## Title\n\n  indented\n", "{}"])
def test_instructions_for_text_are_taken_literally(ledger: Ledger, text: str) -> None:
    """With text as input, instructions are the system message to the letter, without a heading."""
    agent = Agent("poet", model=[says("ok")], instructions=text)
    assert system_of(ledger, agent.run("Go.", ledger=ledger).run_id) == text


def test_a_typed_input_fills_the_instructions_and_is_the_users_message(ledger: Ledger) -> None:
    """`${field}` is a field of the input, which is on record and is sent as its JSON."""
    agent = Agent(
        "support/typed", model=[says("ok")], instructions="Be kind to ${customer}.", input=Ticket
    )
    result = agent.run(Ticket("Ann", "Broken."), ledger=ledger)
    assert system_of(ledger, result.run_id) == "Be kind to Ann."
    assert result.messages[1].content == '{"customer":"Ann","text":"Broken."}'
    started = ledger.record(result.run_id, 1).event
    assert isinstance(started, RunStarted)
    assert (started.request_type, started.request["customer"]) == ("Ticket", "Ann")
    assert agent.replay(result.run_id, ledger=ledger).ok


def test_a_field_that_the_input_lacks_is_refused_when_the_agent_is_made() -> None:
    """A misspelled `${field}` is found before anything runs."""
    with pytest.raises(PromptDefinitionError, match="no field for"):
        Agent("a", model=[says("ok")], instructions="Hello ${nmae}.", input=Ticket)


@dataclass(frozen=True)
class Happier:
    pass


@dataclass(frozen=True)
class Feeling:
    level: int = 0

    @reducer(on=Happier)
    def happier(self, event: Happier) -> Feeling:
        return Feeling(self.level + 1)


def test_a_function_of_instructions_runs_against_the_state_where_it_first_ran(
    ledger: Ledger,
) -> None:
    """A recovery makes the same instructions, although a tool has changed the state since."""
    seen: list[tuple[str, str]] = []

    def instructions(text: str, session: Session) -> str:
        mood = session[Mood].latest()
        seen.append((text, mood.name if mood else "none"))
        return f"You feel {seen[-1][1]}."

    crashes = [True]

    @tool
    def cheer(context: ToolContext) -> str:
        """Cheer up."""
        context.session[Mood].append(Mood("glad"))
        return "cheered"

    @tool
    def stumble() -> str:
        """Stumble."""
        if crashes:
            crashes.pop()
            raise Crash
        return "up again"

    agent = Agent(
        "moods",
        model=[calls(("c1", "cheer", "{}")), calls(("c2", "stumble", "{}")), says("done")],
        instructions=instructions,
        tools=[cheer, stumble],
        state=(Mood,),
        ledger=ledger,
    )
    run = new_run_id()
    with pytest.raises(Crash):
        agent.run("Hi.", run_id=run)
    result = agent.recover(run)
    assert seen == [("Hi.", "none"), ("Hi.", "none")]
    assert result.session[Mood].latest() == Mood("glad")
    assert system_of(ledger, run) == "You feel none."
    assert agent.replay(run).ok


def test_state_comes_with_the_reducers_that_it_marks(ledger: Ledger) -> None:
    """A slice type of `state` can be changed by its own reducers in a tool."""

    @tool
    def cheer(context: ToolContext) -> str:
        """Cheer up."""
        context.session[Feeling].apply(Happier())
        return "cheered"

    agent = Agent(
        "moods",
        model=[calls(("c1", "cheer", "{}")), says("done")],
        instructions=lambda text, session: "Be.",
        tools=[cheer],
        state=(Feeling,),
    )
    assert agent.run("Go.", ledger=ledger).session[Feeling].latest() == Feeling(1)


def test_a_message_with_media_is_the_input(ledger: Ledger) -> None:
    """A Message is recorded as the request, sent as it is, and found again by a recovery."""
    picture = MessageBuilder().add_text("What is it?").add_image("a hat", "https://x.org/h.png")
    crashes = [True]

    @tool
    def look() -> str:
        """Look again."""
        if crashes:
            crashes.pop()
            raise Crash
        return "a hat"

    agent = Agent(
        "eyes",
        model=[calls(("c1", "look", "{}")), says("A hat.")],
        instructions="Look.",
        tools=[look],
        ledger=ledger,
    )
    run = new_run_id()
    with pytest.raises(Crash):
        agent.run(picture.to_message(), run_id=run)
    result = agent.recover(run)
    assert result.messages[1].parts[1].url == "https://x.org/h.png"  # type: ignore[union-attr]
    assert agent.replay(run).ok


def test_bytes_of_media_are_on_disk_before_the_run_can_be_lost(ledger: Ledger) -> None:
    """A builder's bytes are recorded with the request: a recovery from the first event has them."""
    picture = MessageBuilder().add_text("What is it?").add_image(data=b"\x89PNG", mime="image/png")
    agent = crashing("eyes", ledger)
    run = new_run_id()
    with pytest.raises(Crash):
        agent.run(picture, run_id=run)
    (name,) = picture.blobs
    assert ledger.blob(name) == b"\x89PNG"
    assert agent.recover(run).messages[1].parts[1].blob == name  # type: ignore[union-attr]
    assert agent.replay(run).ok


def test_a_run_killed_inside_a_tool_is_recovered_and_replayed(ledger: Ledger) -> None:
    """`recover` goes on after a crash; `replay` calls no handler and finds no difference."""
    crashes = [True]

    @tool
    def pay(euros: int) -> str:
        """Pay."""
        CREDITED.append(euros)
        if crashes:
            crashes.pop()
            raise Crash
        return "paid"

    agent = Agent(
        "payer",
        model=[calls(("c1", "pay", '{"euros": 7}')), says("Paid.")],
        instructions="Pay.",
        tools=[pay],
        ledger=ledger,
    )
    run = new_run_id()
    with pytest.raises(Crash):
        agent.run("Pay 7.", run_id=run)
    assert [one.run_id for one in agent.list_recoverable()] == [run]
    assert agent.recover(run).output == "Paid."
    assert CREDITED == [7, 7]
    assert agent.replay(run).check().attempts == 2
    assert CREDITED == [7, 7]


def crashing(name: str, ledger: Ledger) -> Agent[str, str]:
    """An agent whose model ends the process at the first call, and answers at the second."""
    crashes = [True]

    def model(request: Request) -> Reply:
        if crashes:
            crashes.pop()
            raise Crash
        return says(f"{name} here.")

    return Agent(name, model=model, instructions="Answer.", ledger=ledger)


def test_runs_belong_to_their_agents_name(ledger: Ledger) -> None:
    """Of two agents that take text, each lists, recovers, replays and continues its own runs."""
    first, second = crashing("first", ledger), crashing("second", ledger)
    runs = {}
    for agent in (first, second):
        runs[agent.name] = new_run_id()
        with pytest.raises(Crash):
            agent.run("Hello.", run_id=runs[agent.name])
    for agent, other in ((first, second), (second, first)):
        assert [one.run_id for one in agent.list_recoverable()] == [runs[agent.name]]
        head = ledger.head(runs[other.name])
        with pytest.raises(AgentMismatchError, match=other.name):
            agent.recover(runs[other.name])
        assert ledger.head(runs[other.name]) == head
    for agent in (first, second):
        assert agent.recover(runs[agent.name]).output == f"{agent.name} here."
    with pytest.raises(AgentMismatchError):
        first.replay(runs["second"])
    with pytest.raises(AgentMismatchError):
        first.run("And?", continues=runs["second"])


def test_a_conversation_goes_on_in_the_agents_own_memory() -> None:
    """Without a ledger an agent has one in memory, so that `continues` finds the run."""
    told: list[list[str]] = []

    def model(request: Request) -> Reply:
        told.append([block.text for turn in request.turns for block in turn.blocks])  # type: ignore[union-attr]
        return says(f"answer {len(told)}")

    agent = Agent("chat", model=model, instructions="Talk.")
    first = agent.run("One.")
    second = agent.run("Two.", continues=first.run_id)
    third = agent.run("Three.", continues=second)
    assert told[-1] == ["One.", "answer 1", "Two.", "answer 2", "Three."]
    assert third.usage.calls == 1
    assert [m.content for m in third.messages if m.role == "user"] == ["One.", "Two.", "Three."]
    assert agent.replay(third.run_id).ok


def test_a_forked_process_has_a_memory_of_its_own() -> None:
    """The parent's does not survive the fork, and nobody there could open it again."""
    agent = Agent("chat", model=[says("Hello.")], instructions="Talk.")
    agent.run("One.")
    child = os.fork()
    if not child:  # pragma: no cover - another process
        try:
            os._exit(0 if agent.run("Two.").text == "Hello." else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_a_ledgers_path_is_opened_once_a_process(tmp_path: Path) -> None:
    """Agents that are given one file share a ledger; a closed or removed one is opened again."""
    file = tmp_path / "runs.db"
    triage(ledger=file).run("One.")
    opened = shared_ledger(file)
    triage().run("Two.", ledger=str(file))
    assert shared_ledger(str(file)) is opened
    assert sum(1 for _ in opened.runs(agent="support/triage")) == 2
    opened.close()
    triage(ledger=file).run("Three.")
    again = shared_ledger(file)
    assert again is not opened
    assert sum(1 for _ in again.runs()) == 3
    for part in tmp_path.iterdir():
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    triage(ledger=file).run("Four.")
    assert sum(1 for _ in shared_ledger(file).runs()) == 1
    shared_ledger(file).close()


def test_an_agent_may_run_in_several_threads_at_once(ledger: Ledger) -> None:
    """Runs of one agent do not share their session or their loop."""
    agent = triage(ledger=ledger)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(agent.run, [f"Ticket {n}." for n in range(24)]))
    assert [one.messages[1].content for one in found] == [f"Ticket {n}." for n in range(24)]
    assert all(agent.replay(one.run_id).ok for one in found[:3])


def test_limits_are_recorded_with_the_run(ledger: Ledger) -> None:
    """max_turns, deadline and budget are the run's; those of `config` hold where none is given."""
    agent = triage(
        max_turns=7,
        budget=Budget(max_total_tokens=9000),
        config=MainLoopConfig(deadline=timedelta(minutes=5), tool_timeout=30),
    )
    started = ledger.record(agent.run("Go.", ledger=ledger).run_id, 1).event
    assert isinstance(started, RunStarted)
    assert (started.max_turns, started.time_limit) == (7, 300)
    assert started.budget is not None
    assert started.budget.max_total_tokens == 9000
    strict = triage(config=MainLoopConfig(max_turns=1))
    with pytest.raises(PromptEvaluationError, match="max_turns is 1"):
        strict.run("Go.", ledger=ledger)


def test_bad_output_is_asked_for_again_once_by_default(ledger: Ledger) -> None:
    """An agent asks again after a reply that is not its output type; a loop does not."""
    bad = says('{"priority": 3, "reply": "x"}')
    assert triage([bad, DONE]).run("Go.", ledger=ledger).output.priority == "high"
    with pytest.raises(PromptEvaluationError):
        triage([bad, bad, DONE]).run("Go.", ledger=ledger)
    with pytest.raises(PromptEvaluationError):
        triage([bad, DONE], output_retries=0).run("Go.", ledger=ledger)


def test_tags_are_recorded_with_the_run(ledger: Ledger) -> None:
    """A run is found by the tags that it was given."""
    result = triage().run("Go.", ledger=ledger, tags={"customer": "acme"})
    assert [one.run_id for one in ledger.runs(tags={"customer": "acme"})] == [result.run_id]


def test_making_an_agent_needs_neither_key_nor_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "provider:name" is resolved at the first run, and an unknown one is named then."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = Agent("a", model="nowhere:big", instructions="Go.")
    with pytest.raises(InvalidInputError, match=r"Unknown provider 'nowhere'.*anthropic, gemini"):
        agent.run("Go.")
    assert triage("openai:gpt-5").loop(Ledger.open("memory://")).request_type == (str, Message)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "gpt-5"}, "provider:name"),
        ({"model": 5}, "provider:name"),
        ({"model": ["hello"]}, "expected a Reply"),
        ({"instructions": 5}, "Invalid instructions"),
        ({"tools": [len]}, "Write @tool above the function"),
        ({"state": ["Cart"]}, "Invalid state"),
        ({"input": "Ticket"}, "Invalid input type"),
        ({"name": "a b"}, "Invalid agent name"),
        ({"output": Triage("a", "b")}, "Invalid output"),
        ({"output": int}, "not a JSON object"),
        ({"max_turns": 0}, "max_turns"),
        ({"output_retries": -1}, "output_retries"),
    ],
)
def test_what_an_agent_can_not_be_made_of_is_named(change: dict[str, Any], named: str) -> None:
    """A wrong argument is a typed error when the agent is made, before any run."""
    settings: dict[str, Any] = {"model": [DONE], "instructions": "Go.", **change}
    with pytest.raises((InvalidInputError, PromptDefinitionError), match=named):
        Agent(settings.pop("name", "a"), **settings)


def test_two_tools_with_one_name_are_refused_when_the_agent_is_made() -> None:
    """Names of tools are checked before anything runs."""
    other = Tool[None, str](name="credit", description="x", handler=lambda *, context: "x")
    with pytest.raises(PromptDefinitionError, match="credit"):
        triage(tools=[credit, other])


def test_an_input_of_another_type_is_refused_before_anything_is_written(ledger: Ledger) -> None:
    """A wrong input is named, and no run begins."""
    with pytest.raises(InvalidInputError, match="expected str"):
        triage().run(Ticket("Ann", "x"), ledger=ledger)  # type: ignore[arg-type]
    assert not list(ledger.runs())


def test_a_completed_run_has_nothing_to_recover(ledger: Ledger) -> None:
    """`recover` of a run that ended says so."""
    agent = triage(ledger=ledger)
    with pytest.raises(RecoveryError, match="nothing to recover"):
        agent.recover(agent.run("Go.").run_id)


def test_the_lease_is_how_long_a_claim_lasts(ledger: Ledger) -> None:
    """`lease` reaches the claim: over HTTP it is what frees the run of a killed worker."""
    run, left = new_run_id(), list[float]()

    @tool
    def look() -> str:
        """Look at the lease."""
        lease = ledger.store.lease(str(run))
        assert lease is not None
        left.append((lease.expires_at - ledger.clock.micros()) / 3.6e9)
        return "Seen."

    agent = Agent(
        "shop/look",
        model=[calls(("c1", "look", "{}")), says("Done.")],
        instructions="Look.",
        tools=[look],
        lease=timedelta(hours=9),
    )
    agent.run("Go.", ledger=ledger, run_id=run)
    (hours,) = left
    assert 8 < hours <= 9
