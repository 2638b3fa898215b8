"""Cost of an evaluation: commits per turn, and bookkeeping that does not grow with the run."""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

import pytest

from tests.agent import calls, says
from tests.matrices import cells
from tests.unit.runtime.evaluations import Scripted, Sum, events, on, prompt_of, tool
from turnledger.ledger import InnerMessage, Ledger, MessageAppended, ToolCallCompleted
from turnledger.runtime import Reply, Session, enable_inner_message_recording

STORES = ["memory", "sqlite"]


@pytest.mark.parametrize(("turns", "width"), [(0, 1), (1, 1), (7, 1), (3, 4)])
def test_a_model_turn_costs_one_commit_and_a_tool_at_most_two(
    ledger: Ledger, turns: int, width: int
) -> None:
    """Counted, beside the one that ends the evaluation."""
    asked = [calls(*((f"c{n}-{k}", "add") for k in range(width))) for n in range(turns)]
    session = on(ledger)
    before = session.journal.commits
    adapter = Scripted([*asked, says("done")], parallel_tools=width)
    adapter.evaluate(prompt_of(tool()), session=session)
    spent, tools = session.journal.commits - before, turns * width
    assert len(events(session, ToolCallCompleted)) == tools
    assert spent <= (turns + 1) + 2 * tools + 1
    if width == 1:
        # A tool's result commits with the next request, so it costs its start only.
        assert spent == (turns + 1) + tools + 1


def test_a_tools_changes_result_message_and_checkpoint_are_one_commit(ledger: Ledger) -> None:
    """None of them is ever on disk without the others."""
    session = on(ledger)
    session.journal.checkpoint_interval = 1
    session.install(Sum)
    seen: list[tuple[int, int, int, int]] = []

    def note(before: Any, now: Any) -> None:
        run = now.run
        done = sum(call.status == "completed" for call in run.tools.calls)
        said = sum(call.message_id is not None for call in run.tools.calls)
        seen.append((len(run.slices.all("Sum")), done, said, len(run.checkpoints.entries)))

    session.journal.on_commit(note)
    script = [calls(("a", "add"), ("b", "add")), calls(("c", "add")), says("done")]
    Scripted(script).evaluate(prompt_of(tool()), session=session)
    assert set(seen) == {(n, n, n, n) for n in range(4)}


def test_many_changes_of_a_tool_are_one_commit_with_its_result(ledger: Ledger) -> None:
    """However many they are, up to what a commit holds."""

    def change(params: Any, *, context: Any) -> str:
        for n in range(params.n):
            context.session[Sum].append(Sum(n))
        return "ok"

    session = on(ledger)
    session.install(Sum)
    seen: set[tuple[int, int]] = set()

    def note(before: Any, now: Any) -> None:
        done = sum(call.status == "completed" for call in now.run.tools.calls)
        seen.add((done, len(now.run.slices.all("Sum"))))

    session.journal.on_commit(note)
    asked = (("a", "add", '{"n": 395}'), ("b", "add", '{"n": 600}'))
    adapter = Scripted([calls(*asked), says("done")])
    adapter.evaluate(prompt_of(tool(change)), session=session)
    assert seen == {(0, 0), (1, 395), (2, 995)}


# --- the price of a turn -------------------------------------------------------------------------


class Priced(Scripted):
    """Counts the functions that are called between one reply and the next request."""

    def __init__(self, turns: int, **options: Any) -> None:
        super().__init__(self._reply, **options)
        self.turns = turns
        self.prices: dict[int, int] = {}
        self._count = 0
        self._counting = 0

    def encode(self, request: Any) -> Any:
        # What a provider makes of a history is as long as it is; that is not bookkeeping.
        return request

    def send(self, payload: Any, sending: Any) -> Any:
        sys.setprofile(None)
        if self._counting:
            self.prices[self._counting] = self._count
        self._count, self._counting = 0, payload.turn
        reply = self._reply(payload)
        sys.setprofile(self._seen)
        return reply

    def _seen(self, frame: Any, kind: str, argument: Any) -> None:
        self._count += kind in ("call", "c_call")

    def _reply(self, request: Any) -> Reply:
        if request.turn > self.turns:
            return says("done")
        return calls((f"c{request.turn}", "add", f'{{"n": {request.turn}}}'), text="More.")


@pytest.mark.slow
@pytest.mark.parametrize(("recording", "amended"), cells([False, True], [False, True]))
def test_a_turns_bookkeeping_costs_the_same_however_long_the_run_is(
    recording: bool, amended: bool
) -> None:
    """A reply, a tool with a change of state, and the next request: at turn 5 and at turn 300."""
    session = Session()
    session.install(Sum)
    if recording:
        enable_inner_message_recording(session)
    if amended:  # an earlier evaluation with a structured answer
        Scripted([calls(("x", "add")), says('{"total": 1}')]).evaluate(
            prompt_of(tool(), output=Sum), session=session
        )
    session.journal.checkpoint_interval = 1
    adapter = Priced(310)
    try:
        adapter.evaluate(prompt_of(tool()), session=session)
    finally:
        sys.setprofile(None)
    early = median(adapter.prices[turn] for turn in range(3, 8))
    late = median(adapter.prices[turn] for turn in range(298, 303))
    assert late <= early * 1.25, (early, late)
    if recording:
        assert len(session[InnerMessage].all()) == len(events(session, MessageAppended))
