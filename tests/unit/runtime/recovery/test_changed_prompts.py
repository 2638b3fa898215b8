"""A run whose prompt was changed meanwhile: refused, or gone on with as a person chose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, says, task
from tests.unit.runtime.chats import Chat
from tests.unit.runtime.loops import (
    ANSWER,
    Answer,
    Goal,
    Planner,
    Step,
    asks,
    call,
    crash_in,
    interrupted,
    tags,
)
from turnledger import Agent
from turnledger.ledger import (
    ANY,
    EvaluationStarted,
    InvalidInputError,
    Ledger,
    MessageAppended,
    ModelCalled,
    RunClaimedError,
    RunFailed,
    RunResumed,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallStarted,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    DecisionRequiredError,
    PromptExecuted,
    PromptMismatch,
    Replayed,
    Reply,
    Session,
    Tool,
    ToolContext,
    ToolResult,
    replay,
)

STORES = ["memory", "sqlite"]


@dataclass(frozen=True)
class Noted:
    name: str


def rest(request: Any) -> Reply:
    """A model that asks for the steps that are not done yet, one by one."""
    done = sum(len(turn.blocks) for turn in request.turns if turn.role == "user") - 1
    return ANSWER if done >= 3 else asks(call(f"c{done + 1}"))


class Edited(Planner):
    """The same loop with another prompt: other words, and other tools."""

    def __init__(
        self,
        *args: Any,
        text: str = "Please do ${text}, and mind the step.",
        without: str = "",
        described: str = "Do a step.",
        more: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        self.text, self.without, self.described, self.more = text, without, described, more
        self.prompts = 0
        self.sessions = 0
        super().__init__(*args, **options)

    def create_session(self) -> Session:
        self.sessions += 1
        return super().create_session()

    def create_prompt(self, request: Goal) -> Any:
        self.prompts += 1
        tools = [tool for tool in self._tools() if tool.name != self.without]
        return task(request, self.text, tools, name="tests/plan", title=self.title, output=Answer)

    def _tools(self) -> list[Tool[Any, Any]]:
        made = [("step", self._step, self.described), ("refuse", self._refuse, "Do a step.")]
        made += [(name, self._step, "A new one.") for name in self.more]
        return [
            Tool[Step, Any](
                name=name, description=words, handler=handler, on_interrupt=self.on_interrupt
            )
            for name, handler, words in made
        ]


def tail(replies: Any) -> Callable[[Any], Reply]:
    """A model that answers by what it was told last, whatever the numbers of its turns."""
    left = list(replies)
    return lambda request: left.pop(0)


def events(ledger: Ledger, run: UUID, kind: type) -> list[Any]:
    return [record.event for record in ledger.read(run) if isinstance(record.event, kind)]


def replayed(ledger: Ledger, run: UUID, kind: type[Planner], **options: Any) -> Replayed:
    with Ledger.open("memory://") as nowhere:
        return replay(ledger, run, loop=kind([], ledger=nowhere, **options))


# --- the check --------------------------------------------------------------------------


def test_a_changed_prompt_is_refused_before_anything_is_written(ledger: Ledger) -> None:
    """Not even a claim; the error has the difference and names the ways on."""
    run = interrupted(ledger)
    before = ledger.head(run)
    loop = Edited(ledger=ledger, without="refuse", more=("search",), described="Do one step.")
    with pytest.raises(PromptMismatch) as caught:
        loop.recover(run)
    assert ledger.head(run) == before
    assert (loop.prompts, loop.sessions) == (1, 1)
    difference = caught.value.difference
    assert difference is not None
    assert "-Please tidy up." in difference.text
    assert "+Please do tidy up, and mind the step." in difference.text
    assert difference.tools_added == ("search",)
    assert difference.tools_removed == ("refuse",)
    assert difference.tools_changed == ("step",)
    assert '-    "description": "Do a step."' in difference.tools
    told = str(caught.value)
    for words in (
        f"Run {run} began with another prompt",
        "1 lines of text added, 1 removed; tools added: search; tools removed: refuse",
        "; tools changed: step.",
        f"turnledger recover {run} --app MODULE:AGENT --recorded-prompt",
        "--accept-prompt",
        f"turnledger abandon {run}",
    ):
        assert words in told
    assert "mind the step" not in told  # it is short


def test_the_prompt_is_made_once_where_it_is_the_same(ledger: Ledger) -> None:
    """The prompt that was compared is the one that the run goes on with."""
    run = interrupted(ledger)
    loop = Edited(ledger=ledger, text="Please ${text}.")
    assert loop.recover(run)[0].output == Answer(3)
    assert (loop.prompts, loop.sessions) == (1, 1)
    (resumed,) = events(ledger, run, RunResumed)
    assert (resumed.prompt, resumed.prompt_by) == ("", "")


def test_a_run_that_another_worker_has_is_not_compared(ledger: Ledger) -> None:
    """Whoever has it goes on with it: no code of the user's is called for the prompt."""
    run = interrupted(ledger)
    loop = Edited(ledger=ledger)
    with ledger.claim(run, worker="another"), pytest.raises(RunClaimedError):
        loop.recover(run)
    assert loop.prompts == 0


def test_what_create_prompt_declares_is_known_after_the_claim(ledger: Ledger) -> None:
    """A slice that only create_prompt names has its type in the state that the run goes on with."""

    class Naming(Planner):
        def create_session(self) -> Session:
            self.session = Session(bus=self._bus)
            return self.session

        def create_prompt(self, request: Goal) -> Any:
            self.seen = self.session[Noted].all()
            return super().create_prompt(request)

        def _step(self, params: Step, *, context: ToolContext) -> ToolResult[Any]:
            assert context.session is not None
            context.session[Noted].append(Noted(params.name))
            return super()._step(params, context=context)

    run = new_run_id()
    with pytest.raises(Crash):
        Naming(ledger=ledger, in_tool=crash_in("c3")).execute(Goal(), run_id=run)
    _, session = Naming(ledger=ledger).recover(run)
    assert session[Noted].all() == (Noted("c1"), Noted("c2"), Noted("c3"))


def test_the_choice_is_one_of_three(ledger: Ledger) -> None:
    """Anything else is refused before the run is read."""
    run = interrupted(ledger)
    with pytest.raises(InvalidInputError, match="expected 'check', 'recorded' or 'accept'"):
        Edited(ledger=ledger).recover(run, prompt="new")  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", ["recorded", "accept"])
def test_a_choice_is_not_recorded_where_the_prompt_is_the_same(ledger: Ledger, prompt: Any) -> None:
    """Consent is recorded only together with what it allows."""
    run = interrupted(ledger)
    Planner(ledger=ledger).recover(run, prompt=prompt, decided_by="Ana")
    (resumed,) = events(ledger, run, RunResumed)
    assert (resumed.prompt, resumed.prompt_by) == ("", "")
    assert len(events(ledger, run, EvaluationStarted)) == 1


@pytest.mark.parametrize("prompt", ["recorded", "accept"])
def test_a_choice_is_not_recorded_where_nothing_came_of_it(ledger: Ledger, prompt: Any) -> None:
    """The attempt failed before the prompt was used: it is recorded without the choice."""
    run = interrupted(ledger)

    class Broken(Edited):
        @property
        def loop_host(self) -> Any:
            host = super().loop_host
            object.__setattr__(host, "evaluate", self._raise)
            return host

        def _raise(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("before it began")

    with pytest.raises(RuntimeError, match="before it began"):
        Broken(ledger=ledger).recover(run, prompt=prompt, decided_by="Ana")
    (resumed,) = events(ledger, run, RunResumed)
    assert (resumed.prompt, resumed.prompt_by) == ("", "")
    assert len(events(ledger, run, RunFailed)) == 1
    assert Edited(tail([asks(call("c3")), ANSWER]), ledger=ledger).recover(run, prompt=prompt)


# --- the recorded prompt ------------------------------------------------------------------


def test_a_run_goes_on_with_its_recorded_prompt(ledger: Ledger) -> None:
    """The model gets the recorded text and tools; new tools are left out, and who chose is kept."""
    run, seen = interrupted(ledger), list[Any]()

    def model(request: Any) -> Reply:
        seen.append(request)
        return asks(call("c3")) if len(seen) == 1 else ANSWER

    loop = Edited(model, ledger=ledger, more=("search",))
    assert loop.recover(run, prompt="recorded", decided_by="Ana")[0].output == Answer(3)
    assert all("Please tidy up." in request.system for request in seen)
    names = [tool["function"]["name"] for tool in seen[0].tools]
    assert names == ["step", "refuse"]
    (resumed,) = events(ledger, run, RunResumed)
    assert (resumed.prompt, resumed.prompt_by) == ("recorded", "Ana")
    assert len(events(ledger, run, EvaluationStarted)) == 1
    whole = new_run_id()
    Planner(ledger=ledger).execute(Goal(), run_id=whole)
    assert state_at(ledger, run).outcome_digest == state_at(ledger, whole).outcome_digest


def test_a_run_with_its_recorded_prompt_replays_with_either_program(ledger: Ledger) -> None:
    """With the one that began it whole; with the other from the choice on, and it says so."""
    run = interrupted(ledger)
    Edited(tail([asks(call("c3")), ANSWER]), ledger=ledger).recover(run, prompt="recorded")
    old = replayed(ledger, run, Planner)
    assert (old.divergence, old.version) == (None, ledger.head(run))
    assert (old.attempts, old.not_compared_evaluations) == (2, ())
    new = replayed(ledger, run, Edited)
    assert (new.divergence, new.version) == (None, ledger.head(run)), str(new.divergence)
    (begun,) = events(ledger, run, EvaluationStarted)
    assert new.not_compared_evaluations == (begun.evaluation_id,)
    assert new.recorded_prompts == (begun.evaluation_id,)


@pytest.mark.parametrize(
    ("options", "why"),
    [({"without": "refuse"}, "tools removed: refuse"), ({"described": "Other."}, "changed: step")],
)
def test_the_recorded_prompt_needs_its_tools(
    ledger: Ledger, options: dict[str, Any], why: str
) -> None:
    """A tool that is gone, or takes something else, can't be offered as it was."""
    run = interrupted(ledger)
    before = ledger.head(run)
    with pytest.raises(PromptMismatch, match=why) as caught:
        Edited(ledger=ledger, **options).recover(run, prompt="recorded")
    assert caught.value.what == "tools"
    assert "can't go on with its recorded text" in str(caught.value)
    assert ledger.head(run) == before


# --- a prompt that is accepted --------------------------------------------------------------


def test_a_run_goes_on_with_an_accepted_prompt(ledger: Ledger) -> None:
    """Another evaluation: the new text before what was said, and no tool runs twice."""
    run, seen = interrupted(ledger, "c3"), list[Any]()

    def model(request: Any) -> Reply:
        seen.append(request)
        return ANSWER

    loop = Edited(model, ledger=ledger, more=("search",))
    assert loop.recover(run, prompt="accept", decided_by="Ana")[0].output == Answer(3)
    assert loop.ran == ["c3"]
    (request,) = seen
    assert "mind the step" in request.system
    assert [turn.role for turn in request.turns] == ["user", *["assistant", "user"] * 3]
    assert "search" in {tool["function"]["name"] for tool in request.tools}
    old, new = events(ledger, run, EvaluationStarted)
    assert (new.after, new.accepted, new.accepted_by) == (old.evaluation_id, True, "Ana")
    (resumed,) = events(ledger, run, RunResumed)
    assert (resumed.prompt, resumed.prompt_by) == ("accepted", "Ana")
    mine = [
        (event.message.role, event.message.sequence, event.message.turn)
        for event in events(ledger, run, MessageAppended)
        if event.message.evaluation_id == new.evaluation_id
    ]
    assert mine == [("system", 0, 0), ("tool", 1, 0), ("assistant", 2, 1)]
    state = state_at(ledger, run)
    assert state.tools.pending() == ()
    assert [one.status for one in state.tools.calls] == ["completed"] * 3
    assert "mind the step" in state.conversation.history().system


def test_an_accepted_run_replays_from_the_acceptance_on(ledger: Ledger) -> None:
    """The program that began it diverges where the other prompt was accepted."""
    run = interrupted(ledger, "c3")
    Edited(tail([ANSWER]), ledger=ledger).recover(run, prompt="accept")
    found = replayed(ledger, run, Edited)
    assert (found.divergence, found.version) == (None, ledger.head(run)), str(found.divergence)
    old, new = events(ledger, run, EvaluationStarted)
    assert found.not_compared_evaluations == (old.evaluation_id,)
    parted = replayed(ledger, run, Planner).divergence
    assert parted is not None
    assert parted.recorded["evaluation_id"] == new.evaluation_id
    assert parted.cause == "prompt text changed"
    assert replay(ledger, run).ok
    other = replayed(ledger, run, Edited, text="A third text: ${text}.").divergence
    assert other is not None
    assert other.recorded["evaluation_id"] == new.evaluation_id


def test_an_accepted_run_that_died_again_needs_no_second_acceptance(ledger: Ledger) -> None:
    """The accepted prompt is the recorded one from then on; each acceptance is for one change."""
    run = interrupted(ledger, "c2")
    with pytest.raises(Crash):
        Edited(rest, ledger=ledger, in_tool=crash_in("c3")).recover(run, prompt="accept")
    with pytest.raises(PromptMismatch):
        Planner(ledger=ledger).recover(run)
    loop = Edited(rest, ledger=ledger)
    assert loop.recover(run)[0].output == Answer(3)
    assert loop.ran == ["c3"]
    found = replayed(ledger, run, Edited)
    assert (found.divergence, found.version) == (None, ledger.head(run)), str(found.divergence)
    assert len(found.not_compared_evaluations) == 1
    whole = state_at(ledger, run)
    assert [one.call_id for one in whole.tools.calls] == ["c1", "c2", "c3"]


def test_a_prompt_can_be_accepted_twice(ledger: Ledger) -> None:
    """Each time what was said before is what the model gets; a replay begins at the last time."""
    run = interrupted(ledger, "c2")
    with pytest.raises(Crash):
        Edited(rest, ledger=ledger, in_tool=crash_in("c3")).recover(run, prompt="accept")
    seen = list[Any]()

    def model(request: Any) -> Reply:
        seen.append(request)
        return ANSWER

    third = {"text": "A third text: ${text}."}
    Edited(model, ledger=ledger, **third).recover(run, prompt="accept")
    assert len(seen[0].turns) == 7
    assert "A third text" in seen[0].system
    found = replayed(ledger, run, Edited, **third)
    assert (found.divergence, found.version) == (None, ledger.head(run)), str(found.divergence)
    assert len(found.not_compared_evaluations) == 2


def test_an_accepted_prompt_without_a_tool_answers_its_calls(ledger: Ledger) -> None:
    """A call that waits for a tool that is gone gets "no such tool"; nothing is left open."""
    run = new_run_id()
    both = [asks(call("c1"), call("c2", "refuse")), ANSWER]
    with pytest.raises(Crash):
        Planner(both, ledger=ledger, in_tool=crash_in("c1")).execute(Goal(), run_id=run)
    loop = Edited(tail([ANSWER]), ledger=ledger, without="refuse")
    assert loop.recover(run, prompt="accept")[0].output == Answer(3)
    (failed,) = events(ledger, run, ToolCallFailed)
    assert failed.call_id == "c2"
    assert "refuse" in failed.error_message
    assert [one.call_id for one in events(ledger, run, ToolCallStarted)] == ["c1", "c1"]
    found = replayed(ledger, run, Edited, without="refuse")
    assert found.divergence is None, str(found.divergence)


@pytest.mark.parametrize("options", [{"on_interrupt": "retry"}, {"without": "step"}])
def test_calls_in_doubt_keep_the_policy_that_was_recorded(
    ledger: Ledger, options: dict[str, Any]
) -> None:
    """A call that asks a person still does, also if its tool is gone; then the run goes on."""
    run = interrupted(ledger, "c2", on_interrupt="ask")
    with pytest.raises(DecisionRequiredError):
        Edited(tail([]), ledger=ledger, **options).recover(run, prompt="accept")
    assert events(ledger, run, EvaluationStarted)[-1].accepted
    decided = ToolCallDecided(call_id="c2", decision="completed", text="Done by hand.", attempt=1)
    ledger.append(run, decided, ANY)
    loop = Edited(tail([ANSWER]), ledger=ledger, **options)
    assert loop.recover(run)[0].output == Answer(3)
    assert loop.ran == []
    found = replayed(ledger, run, Edited, **options)
    assert found.divergence is None, str(found.divergence)


def test_an_answer_that_was_given_is_not_asked_for_again(ledger: Ledger) -> None:
    """It died between the answer and the end of the run: the accepted prompt has the answer too."""
    run = new_run_id()
    loop = Planner([ANSWER], ledger=ledger)

    def die(event: object) -> None:
        raise Crash

    loop._bus.subscribe(PromptExecuted, die)
    with pytest.raises(Crash):
        loop.execute(Goal(), run_id=run)
    assert tags(ledger, run)[-1] == "evaluation.finished"
    assert Edited(tail([]), ledger=ledger).recover(run, prompt="accept")[0].output == Answer(3)
    assert len(events(ledger, run, ModelCalled)) == 1
    assert replayed(ledger, run, Edited).divergence is None


def test_a_chat_goes_on_under_an_accepted_prompt(ledger: Ledger) -> None:
    """The turns before it, its own message once, and the next turn after it."""
    first = Chat(ledger=ledger).execute("one")[0].run_id
    run = new_run_id()
    with pytest.raises(Crash):
        Chat(ledger=ledger, in_tool=crash_in("c2")).execute("two", run_id=run, continues=first)
    seen = list[Any]()

    def model(request: Any) -> Reply:
        seen.append(request)
        return says("Done.")

    edited = Chat(model, ledger=ledger, system="Be very brief.")
    assert edited.recover(run, prompt="accept")[0].text == "Done."
    (request,) = seen
    assert "Be very brief." in request.system
    said = [block.text for turn in request.turns for block in turn.blocks if hasattr(block, "text")]
    assert said == ["one", "3 turns: one", "two"]
    with Ledger.open("memory://") as nowhere:
        found = replay(ledger, run, loop=Chat(ledger=nowhere, system="Be very brief."))
    assert found.divergence is None, str(found.divergence)
    edited.execute("three", continues=run)
    assert len(seen[1].turns) == len(request.turns) + 2


def test_an_agent_goes_on_under_changed_instructions(ledger: Ledger) -> None:
    """The same in the words of an Agent: refused with the difference, then accepted."""

    def dies(request: Any) -> Reply:
        raise Crash

    run = new_run_id()
    with pytest.raises(Crash):
        Agent("tests/guide", model=dies, instructions="Be brief.").run(
            "Where?", ledger=ledger, run_id=run
        )
    agent = Agent("tests/guide", model=[says("There.")], instructions="Be very brief.")
    with pytest.raises(PromptMismatch) as caught:
        agent.recover(run, ledger=ledger)
    assert caught.value.difference is not None
    assert "+Be very brief." in caught.value.difference.text
    result = agent.recover(run, ledger=ledger, prompt="accept", decided_by="Ana")
    assert result.text == "There."
    assert agent.replay(run, ledger=ledger).check().not_compared_evaluations
