"""Plan: session state of the planning tools, an objective and the steps towards it.

The reducers hold all rules: a change that breaks one raises, so it is neither recorded nor
half done. That also holds for calls that ran in parallel and did not see each other's changes:
the loop applies them one after the other. The tools are in `runtime.workspace.planning`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.projections.session.reducers import reducer

StepStatus: TypeAlias = Literal["pending", "in_progress", "blocked", "done", "skipped"]

_Objective: TypeAlias = Annotated[str, msgspec.Meta(description="What the plan is for.")]
_Title: TypeAlias = Annotated[str, msgspec.Meta(description="What is to be done, in one line.")]
_Details: TypeAlias = Annotated[str, msgspec.Meta(description="How, and when it is done.")]
_StepId: TypeAlias = Annotated[str, msgspec.Meta(description='The id of the step, such as "S001".')]
_Note: TypeAlias = Annotated[str, msgspec.Meta(description="What was found, or what blocks it.")]


class NewStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step before it has an id."""

    title: _Title
    details: _Details = ""

    def __post_init__(self) -> None:
        _check_title(self.title)


class SetupPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session event: begin a plan, unless another one is active."""

    __ledger_name__ = "turnledger.SetupPlan"

    objective: _Objective
    steps: Annotated[
        tuple[NewStep, ...], msgspec.Meta(description="The first steps, in their order.")
    ] = ()

    def __post_init__(self) -> None:
        if not self.objective.strip():
            raise InvalidInputError("Invalid objective: expected text that says what is wanted.")


class AddStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session event: add a step at the end, with the plan's next id."""

    __ledger_name__ = "turnledger.AddStep"

    step_id: str
    step: NewStep


class UpdateStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session event: change a step's title, its details or both."""

    __ledger_name__ = "turnledger.UpdateStep"

    step_id: _StepId
    title: _Title | None = None
    details: _Details | None = None

    def __post_init__(self) -> None:
        if self.title is None and self.details is None:
            raise InvalidInputError("Nothing to update: give a title, details or both.")
        if self.title is not None:
            _check_title(self.title)


class MarkStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session event: change a step's status; an empty note keeps the step's note."""

    __ledger_name__ = "turnledger.MarkStep"

    step_id: _StepId
    status: StepStatus
    note: _Note = ""


class PlanStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of a plan; ids are S001, S002 and so on in the order in which steps were added."""

    step_id: str
    title: str
    details: str = ""
    status: StepStatus = "pending"
    note: str = ""


@explain_methods()
class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session state: the plan of an agent; it is completed when each step is done or skipped.

    `session[Plan].latest()` is the plan, or None.
    """

    __ledger_name__ = "turnledger.Plan"

    objective: str = ""
    status: Literal["active", "completed"] = "active"
    steps: tuple[PlanStep, ...] = ()

    @property
    def next_id(self) -> str:
        """The id of the next step. Steps are never removed, so an id is never used again."""
        return f"S{len(self.steps) + 1:03d}"

    def to_text(self) -> str:
        """Return the plan as a model reads it, a line a step."""
        ended = sum(step.status in _ENDED for step in self.steps)
        lines = [
            f"Objective: {self.objective}",
            f"Status: {self.status}, {ended} of {len(self.steps)} steps done or skipped",
        ]
        for step in self.steps:
            lines.append(f"{step.step_id} [{step.status}] {step.title}")
            lines += [f"  {name}: {text}" for name, text in _more(step) if text]
        return "\n".join(lines)

    @reducer(on=SetupPlan)
    def set_up(self, event: SetupPlan) -> Plan:
        """Reducer for SetupPlan."""
        if self.objective and self.status == "active":
            raise InvalidInputError(
                f"There is an active plan already, for {short_repr(self.objective)}. Go on with "
                "it, or clear it first with planning_clear_plan."
            )
        plan = Plan(objective=event.objective)
        for step in event.steps:
            plan = plan.add_step(AddStep(plan.next_id, step))
        return plan

    @reducer(on=AddStep)
    def add_step(self, event: AddStep) -> Plan:
        """Reducer for AddStep."""
        self._check_begun()
        if event.step_id != self.next_id:
            raise InvalidInputError(
                f"Another call added {event.step_id} at the same time: call again."
            )
        added = PlanStep(event.step_id, event.step.title, event.step.details)
        return self._with((*self.steps, added))

    @reducer(on=UpdateStep)
    def update_step(self, event: UpdateStep) -> Plan:
        """Reducer for UpdateStep."""
        given = {"title": event.title, "details": event.details}
        return self._replaced(event.step_id, {k: v for k, v in given.items() if v is not None})

    @reducer(on=MarkStep)
    def mark_step(self, event: MarkStep) -> Plan:
        """Reducer for MarkStep."""
        note = {"note": event.note} if event.note else {}
        return self._replaced(event.step_id, {"status": event.status, **note})

    def _replaced(self, step_id: str, changes: dict[str, str]) -> Plan:
        self._check_begun()
        ids = [step.step_id for step in self.steps]
        if step_id not in ids:
            known = f"the steps are {', '.join(ids)}" if ids else "the plan has no steps yet"
            raise InvalidInputError(f"Unknown step {short_repr(step_id)}: {known}.")
        place = ids.index(step_id)
        changed = msgspec.structs.replace(self.steps[place], **changes)
        return self._with((*self.steps[:place], changed, *self.steps[place + 1 :]))

    def _with(self, steps: tuple[PlanStep, ...]) -> Plan:
        completed = all(step.status in _ENDED for step in steps)
        return Plan(self.objective, "completed" if completed else "active", steps)

    def _check_begun(self) -> None:
        if not self.objective:
            raise InvalidInputError("There is no plan yet: begin one with planning_setup_plan.")


_ENDED = ("done", "skipped")


def _more(step: PlanStep) -> tuple[tuple[str, str], ...]:
    return ("details", step.details), ("note", step.note)


def _check_title(title: str) -> None:
    if not title.strip() or "\n" in title:
        raise InvalidInputError(f"Invalid title {short_repr(title)}: expected one line of text.")
