"""A loop whose refunds need approval; it remembers what was asked and what its tools got."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says, task
from turnledger.ledger import Ledger, MessageAppended, new_run_id
from turnledger.runtime import DecisionRequiredError, Prompt, Reply, Tool, ToolContext

REFUND = calls(("c1", "refund", '{"euros": 20}'))
DONE = says("Done.")
REPLIES = [REFUND, DONE]


@dataclass(frozen=True)
class Ticket:
    """What the loop is asked for."""

    text: str = "My invoice is wrong."


@dataclass(frozen=True)
class Refund:
    """The tools' parameters."""

    euros: int


def is_large(params: Refund) -> bool:
    """Whether a refund needs approval."""
    return params.euros > 10


class Refunds(ScriptedLoop[Ticket, Any]):
    """Refunds need approval, a look does not; `dies_in` names calls within which it dies."""

    def __init__(
        self,
        replies: Sequence[Any] | Callable[[Any], Reply] = REPLIES,
        *,
        needs_approval: Any = is_large,
        on_interrupt: Any = None,
        dies_in: str = "",
        **options: Any,
    ) -> None:
        self.needs_approval = needs_approval
        self.on_interrupt = on_interrupt
        self.dies_in = dies_in
        self.asked: list[int] = []
        self.ran: list[tuple[str, str, int]] = []
        self.resumed: list[bool] = []
        super().__init__(replies, **options)

    def create_prompt(self, request: Ticket) -> Prompt[Any]:
        asked = self._asked if callable(self.needs_approval) else self.needs_approval
        refund = Tool[Refund, Any](
            name="refund",
            description="Refund an amount.",
            handler=self._refund,
            needs_approval=asked,
            on_interrupt=self.on_interrupt,
        )
        look = Tool[Refund, Any](name="look", description="Look.", handler=self._look)
        return task(request, "Help with: ${text}", [refund, look], name="tests/refunds")

    def _asked(self, params: Refund) -> bool:
        self.asked.append(params.euros)
        needed: bool = self.needs_approval(params)
        return needed

    def _refund(self, params: Refund, *, context: ToolContext) -> str:
        return self._run("refund", params, context)

    def _look(self, params: Refund, *, context: ToolContext) -> str:
        return self._run("look", params, context)

    def _run(self, name: str, params: Refund, context: ToolContext) -> str:
        self.ran.append((name, context.call_id, params.euros))
        self.resumed.append(context.is_resume)
        if context.call_id == self.dies_in:
            raise Crash
        return f"{name} {params.euros}"


def waiting(ledger: Ledger, loop: Refunds | None = None) -> UUID:
    """A run that waits for approval."""
    run_id = new_run_id()
    with pytest.raises(DecisionRequiredError):
        (loop or Refunds(ledger=ledger)).execute(Ticket(), run_id=run_id)
    return run_id


def told(ledger: Ledger, run_id: UUID) -> list[str]:
    """What the model was told by tools."""
    events = [record.event for record in ledger.read(run_id)]
    said = [event.message for event in events if isinstance(event, MessageAppended)]
    return [message.content for message in said if message.role == "tool"]
