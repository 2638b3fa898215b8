"""Changes of the shop's code, and the event at which a replay has to find each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from tests.frameworks.agents.shop import TOOLS, Wording
from turnledger.ledger import ModelCalled, Record, RunCompleted

STEPS = (("quote", 17), ("stock", 17))
_SAID, _THANKS = "Pay order 17.", "Thank you!"
# What is recorded: the agent between some steps of the program's own.
RECORDED = Wording(before=STEPS, questions=(_SAID, _THANKS), after=(("receipt", 17),))
FIRST, LAST = "model call 1", "model call 4"
END = "end"


class Change(NamedTuple):
    """Other fields of the wording; at which event it is found, and with which cause.

    `aside`: event and cause where the framework calls the model in another task or thread than
    the program's own, so that the order of its calls among the program's steps is not known.
    """

    fields: dict[str, Any]
    at: str = FIRST
    cause: str = "step arguments changed"
    aside: tuple[str, str] | None = None

    @property
    def is_of_a_step(self) -> bool:
        """Whether it changes a step of the program's own."""
        return not {"before", "after"}.isdisjoint(self.fields)


_LOOK, _PAY, *_REST = TOOLS
CHANGES = {
    "user text": Change({"questions": ("Pay order 18.", _THANKS)}),
    "later user text": Change({"questions": (_SAID, "Thanks!")}, LAST),
    "system text": Change({"system": "You keep two shops."}),
    "model": Change({"model": "model-2"}),
    "option": Change({"limit": 501}),
    "tool described otherwise": Change(
        {"tools": (replace(_LOOK, description="Look it up."), _PAY, *_REST)}
    ),
    "tool order": Change({"tools": (_PAY, _LOOK, *_REST)}),
    "tool renamed": Change({"tools": (_LOOK, replace(_PAY, name="settle"), *_REST)}),
    "tool's parameter renamed": Change({"tools": (replace(_LOOK, parameter="id"), _PAY, *_REST)}),
    "tool removed": Change({"tools": TOOLS[:-1]}),
    "tool added": Change({"tools": (*TOOLS, replace(_LOOK, name="find"))}),
    "argument": Change({"before": (("quote", 18), STEPS[1])}, "quote"),
    "later argument": Change({"after": (("receipt", 18),)}, "receipt"),
    "step renamed": Change({"before": (("price", 17), STEPS[1])}, "quote", "step changed"),
    "step added": Change({"before": (("price", 17), *STEPS)}, "quote", "step changed"),
    "step added at the end": Change({"after": (*RECORDED.after, ("thank", 17))}, END, "step added"),
    "step removed": Change({"before": STEPS[1:]}, "quote", "order of calls changed"),
    "step removed at the end": Change({"after": ()}, "receipt", "step removed"),
    "order of steps": Change({"before": STEPS[::-1]}, "quote", "order of calls changed"),
    "question added": Change(
        {"questions": (_SAID, _THANKS, "Bye.")}, "receipt", "step changed", (END, "step added")
    ),
    "question removed": Change(
        {"questions": (_SAID,)}, LAST, "order of calls changed", (LAST, "step removed")
    ),
}


def expected(records: list[Record], change: Change) -> list[tuple[int, str]]:
    """The version and cause that a replay of these records must tell; one of them."""
    calls = [one for one in records if isinstance(one.event, ModelCalled)]
    is_aside = any(isinstance(one.event, ModelCalled) and one.event.aside for one in calls)
    found = [(change.at, change.cause)]
    if is_aside and change.aside is not None:
        found.append(change.aside)
    return [(_version(records, calls, at), cause) for at, cause in found]


def _version(records: list[Record], calls: list[Record], at: str) -> int:
    if at.startswith("model call"):
        return calls[int(at.split()[-1]) - 1].version
    if at == END:
        return max(one.version for one in records if isinstance(one.event, RunCompleted))
    # 0 if the framework has no steps of the program's own.
    return next((one.version for one in records if _call_id(one) == f"{at}#1"), 0)


def _call_id(record: Record) -> str:
    return getattr(record.event, "call_id", "")
