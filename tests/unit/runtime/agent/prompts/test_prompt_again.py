"""On recovery a prompt is made from the state that it was first made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says, task
from turnledger.ledger import Ledger, new_run_id
from turnledger.runtime import Prompt, Session, Tool, ToolContext


@dataclass(frozen=True)
class Ask:
    what: str = "x"


@dataclass(frozen=True)
class Count:
    n: int


@dataclass(frozen=True)
class Params:
    seen: int


REPLIES = [
    calls(("c1", "count", '{"n": 1}')),
    calls(("c2", "count", '{"n": 2}')),
    says("done"),
]


class Counting(ScriptedLoop[Ask, Any]):
    """Its prompt says how many counts the session has, and making it adds one."""

    def __init__(self, ledger: Ledger, dies_at: str = "") -> None:
        self._dies_at = dies_at
        self.prompts: list[int] = []
        super().__init__(REPLIES, ledger=ledger)

    def create_session(self) -> Session:
        self.session = super().create_session()
        self.session[Count].append(Count(0))
        return self.session

    def create_prompt(self, request: Ask) -> Prompt[Any]:
        self.prompts.append(len(self.session[Count].all()))
        tool = Tool[Count, Any](name="count", description="Count.", handler=self._count)
        self.session[Count].append(Count(-1))
        return task(Params(self.prompts[-1]), "Seen: ${seen}", [tool])

    def _count(self, params: Count, *, context: ToolContext) -> str:
        context.session[Count].append(params)
        if context.call_id == self._dies_at:
            raise Crash
        return "counted"


def counts(ledger: Ledger, run: UUID) -> list[int]:
    found = [r.event for r in ledger.read(run) if r.tag == "slice.event_applied"]
    return [event.payload["n"] for event in found if event.slice == "Count"]  # type: ignore[union-attr]


def test_a_prompt_that_depends_on_the_session_is_the_same_after_a_recovery(tmp_path: Path) -> None:
    """Though a tool has changed the session since; what making it changes is recorded once."""
    run = new_run_id()
    with Ledger.open(tmp_path / "runs.db") as ledger:
        with pytest.raises(Crash):
            Counting(ledger, dies_at="c2").execute(Ask(), run_id=run)
        assert counts(ledger, run) == [0, -1, 1]
        again = Counting(ledger)
        response, session = again.recover(run)
        assert response.text == "done"
        assert again.prompts == [1]
        assert counts(ledger, run) == [0, -1, 1, 2]
        assert [one.n for one in session[Count].all()] == [0, -1, 1, 2]
        started = ledger.record(run, 1).event
        assert session.session_id == started.session_id  # type: ignore[union-attr]
