"""Planning: six tools by which a model keeps a plan, as session state that outlives its process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says
from turnledger.ledger import (
    CheckpointReached,
    Ledger,
    SliceEventApplied,
    ToolCallCompleted,
    ToolCallFailed,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    PromptTemplate,
    Session,
    Tool,
    ToolContext,
    replay,
    what_if,
)
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.tools.call import invoke
from turnledger.runtime.errors import PromptDefinitionError
from turnledger.runtime.session.types import SliceTypes
from turnledger.runtime.workspace import (
    Plan,
    PlanningStrategy,
    PlanningToolsSection,
    PlanStep,
)

TWO_STEPS = {"objective": "Review it", "steps": [{"title": "Read"}, {"title": "Run"}]}
TOOLS = {tool.name: tool for tool in PlanningToolsSection().tools}


class Model:
    """Calls planning tools on a session of its own, as a model would."""

    def __init__(self) -> None:
        self.session = Session()

    def calls(self, name: str, **arguments: Any) -> tuple[bool, str]:
        context = ToolContext(session=self.session)
        result = invoke(TOOLS[f"planning_{name}"], json.dumps(arguments), context)
        return result.success, result.message

    @property
    def plan(self) -> Plan | None:
        return self.session[Plan].latest()


@pytest.fixture
def model() -> Model:
    """One that has a plan of two steps."""
    model = Model()
    model.calls("setup_plan", **TWO_STEPS)
    return model


def test_a_plan_is_set_up_changed_and_read(model: Model) -> None:
    """Steps have ids in the order in which they were added, a status, and a note that stays."""
    assert model.calls("add_step", title="Write", details="One page") == (True, "Added S003: Write")
    assert model.calls("mark_step", step_id="S001", status="done", note="It is short")[0]
    assert model.calls("mark_step", step_id="S001", status="skipped")[0]
    assert model.calls("update_step", step_id="S002", title="Run all")[0]
    assert model.plan == Plan(
        "Review it",
        "active",
        (
            PlanStep("S001", "Read", status="skipped", note="It is short"),
            PlanStep("S002", "Run all"),
            PlanStep("S003", "Write", "One page"),
        ),
    )
    assert model.calls("read_plan")[1].splitlines() == [
        "Objective: Review it",
        "Status: active, 1 of 3 steps done or skipped",
        "S001 [skipped] Read",
        "  note: It is short",
        "S002 [pending] Run all",
        "S003 [pending] Write",
        "  details: One page",
    ]


def test_a_plan_is_completed_by_its_last_step_and_active_again_with_another(model: Model) -> None:
    """Only then may another plan be set up in its place; its ids begin again."""
    again = {"objective": "Publish it", "steps": [{"title": "Tag"}]}
    for step_id in ("S001", "S002"):
        done, why = model.calls("setup_plan", **again)
        assert not done
        assert "an active plan already, for 'Review it'" in why
        model.calls("mark_step", step_id=step_id, status="done")
    assert model.plan is not None
    assert model.plan.status == "completed"
    model.calls("add_step", title="Write")
    assert model.plan.status == "active"
    model.calls("mark_step", step_id="S003", status="skipped")
    assert model.calls("setup_plan", **again)[0]
    assert model.plan == Plan("Publish it", "active", (PlanStep("S001", "Tag"),))


def test_a_cleared_plan_is_gone(model: Model) -> None:
    """And another one can be set up at once."""
    assert model.calls("clear_plan") == (True, "There is no plan now.")
    assert model.plan is None
    assert model.calls("read_plan") == (True, "There is no plan yet.")
    assert model.calls("setup_plan", objective="Another")[0]


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("setup_plan", {"objective": " "}, "Invalid objective"),
        ("setup_plan", {"objective": "x", "steps": [{"title": ""}]}, "Invalid title ''"),
        ("setup_plan", {}, "a required field is missing"),
        ("add_step", {"title": "two\nlines"}, "expected one line"),
        ("add_step", {"title": "x", "colour": "red"}, "an unknown key"),
        ("update_step", {"step_id": "S001"}, "Nothing to update"),
        ("update_step", {"step_id": "S009", "title": "x"}, "the steps are S001, S002."),
        ("mark_step", {"step_id": "s001", "status": "done"}, "Unknown step 's001'"),
        ("mark_step", {"step_id": "S001", "status": "finished"}, "Invalid enum value 'finished'"),
        ("read_plan", {"at": 1}, "the tool takes no parameters"),
        ("add_step", {"title": "\ud800"}, "surrogate"),
    ],
)
def test_bad_input_is_a_failed_result_that_says_why(
    model: Model, name: str, arguments: dict[str, Any], why: str
) -> None:
    """And the plan stays as it was."""
    before = model.plan
    succeeded, message = model.calls(name, **arguments)
    assert not succeeded
    assert why in message
    assert model.plan == before


@pytest.mark.parametrize("name", ["add_step", "update_step", "mark_step"])
def test_steps_need_a_plan(name: str) -> None:
    """Without one, the result names the tool that begins it."""
    given = {"add_step": {"title": "x"}, "update_step": {"title": "x", "step_id": "S001"}}
    arguments = given.get(name, {"step_id": "S001", "status": "done"})
    assert Model().calls(name, **arguments) == (
        False,
        "There is no plan yet: begin one with planning_setup_plan.",
    )


def test_each_strategy_has_a_text_of_its_own_and_the_same_tools() -> None:
    """S4-23 names the four phases of one of them; anything else is refused."""
    plain, phases = (PlanningToolsSection(strategy=strategy) for strategy in PlanningStrategy)
    assert PlanningToolsSection().body(None) == plain.body(None)
    assert plain.tools == phases.tools
    assert len(plain.tools) == 6
    places = [phases.body(None).index(f"{word}:") for word in PHASES]
    assert places == sorted(places)
    assert not any(f"{word}:" in plain.body(None) for word in PHASES)
    with pytest.raises(PromptDefinitionError, match="expected a PlanningStrategy"):
        PlanningToolsSection(strategy="plain")  # type: ignore[arg-type]


PARALLEL = {"parallel_tools": 2}
PHASES = ("Goal", "Decompose", "Route", "Synthesise")


# --- in a loop --------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request."""


@dataclass(frozen=True)
class UsersPlan:
    """A program's own class, which is called Plan as well."""

    words: str


UsersPlan.__name__ = "Plan"


class Reviewer(ScriptedLoop[Asked, Any]):
    """An agent that plans; its own tool may die."""

    dies = False

    def create_prompt(self, request: Asked) -> Prompt[Any]:
        section = PlanningToolsSection(strategy=PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE)
        section.tools += (Tool(name="look", description="Looks.", handler=self.look),)
        return Prompt(PromptTemplate(ns="tests", key="review", sections=[section]))

    def look(self, *, context: ToolContext) -> str:
        if self.dies:
            raise Crash
        context.session[UsersPlan].append(UsersPlan("of the program"))
        return "Looked."


def planned(name: str, **arguments: Any) -> Any:
    return calls((name, f"planning_{name}", json.dumps(arguments)))


SCRIPT = [
    planned("setup_plan", **TWO_STEPS),
    planned("mark_step", step_id="S001", status="done", note="short"),
    calls(("c3", "look", "{}")),
    planned("add_step", title="Write"),
    planned("read_plan"),
    says("Reviewed."),
]
PLAN = Plan(
    "Review it",
    steps=(
        PlanStep("S001", "Read", status="done", note="short"),
        PlanStep("S002", "Run"),
        PlanStep("S003", "Write"),
    ),
)


@pytest.fixture
def recovered(ledger: Ledger) -> tuple[Any, Session]:
    """A run that another loop took over, after a crash in the third turn."""
    run_id, dying = new_run_id(), Reviewer(SCRIPT, ledger=ledger)
    dying.dies = True
    with pytest.raises(Crash):
        dying.execute(Asked(), run_id=run_id)
    _, session = Reviewer(SCRIPT, ledger=ledger).recover(run_id)
    return run_id, session


def test_a_plan_survives_a_crash_and_a_replay(ledger: Ledger, recovered: Any) -> None:
    """Another process goes on with it, and the checkpoints are the same when it is replayed.

    Also without the program, up to the first change that a reducer of the program's may make.
    """
    run_id, session = recovered
    assert session[Plan].latest() == PLAN
    assert replay(ledger, run_id, loop=Reviewer(SCRIPT, ledger=ledger)).divergence is None
    folded = replay(ledger, run_id)
    assert (folded.divergence, folded.compared) == (None, 3)


def test_a_plan_goes_beside_a_programs_own_class_of_that_name(
    ledger: Ledger, recovered: Any
) -> None:
    """Its name in the ledger is "turnledger.Plan", and "turnledger." begins those of its events."""
    run_id, _ = recovered
    applied = {
        (record.event.slice, record.event.event_type)
        for record in ledger.read(run_id)
        if isinstance(record.event, SliceEventApplied)
    }
    ours = {"turnledger.SetupPlan", "turnledger.MarkStep", "turnledger.AddStep"}
    assert applied == {("Plan", "Plan"), *(("turnledger.Plan", event) for event in ours)}
    slices = state_at(ledger, run_id, declarations=SliceTypes().declarations).slices
    assert slices.all("turnledger.Plan") == (PLAN,)
    assert slices.all("Plan") == ({"words": "of the program"},)


def test_a_what_if_keeps_the_plan(ledger: Ledger, recovered: Any) -> None:
    """A fork with another result of a later tool takes over the checkpoint, with the plan in it."""
    run_id, _ = recovered
    version = next(
        record.version
        for record in ledger.read(run_id)
        if isinstance(record.event, ToolCallCompleted) and record.event.name == "look"
    )
    fork = what_if(ledger, run_id, version, {"/value": "elsewhere"})
    own = [record.event for record in ledger.read(fork) if record.run_id == fork]
    assert any(isinstance(event, CheckpointReached) for event in own)
    _, session = Reviewer(SCRIPT, ledger=ledger).recover(fork)
    assert session[Plan].latest() == PLAN
    assert replay(ledger, fork).divergence is None


def test_of_two_steps_added_in_parallel_one_is_refused(ledger: Ledger) -> None:
    """Neither saw the other: the ids that the model was told are right, and nothing is lost."""
    added = [("c1", '{"title": "Read"}'), ("c2", '{"title": "Run"}')]
    both = calls(*((call, "planning_add_step", arguments) for call, arguments in added))
    script = [planned("setup_plan", objective="Review it"), both, says("Done.")]
    loop = Reviewer(script, ledger=ledger, adapter_options=PARALLEL)
    run_id = new_run_id()
    _, session = loop.execute(Asked(), run_id=run_id)
    plan = session[Plan].latest()
    assert plan is not None
    assert [step.step_id for step in plan.steps] == ["S001"]
    failed = [r.event for r in ledger.read(run_id) if isinstance(r.event, ToolCallFailed)]
    assert len(failed) == 1
    assert "Another call added S001 at the same time: call again." in failed[0].error_message
    again = Reviewer(script, ledger=ledger, adapter_options=PARALLEL)
    assert replay(ledger, run_id, loop=again).divergence is None
