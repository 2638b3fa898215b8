"""A conversation that is cut at any commit and goes on elsewhere asks what the whole one asks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.agent import calls, says
from tests.unit.runtime.evaluations import (
    Add,
    Scripted,
    Sum,
    adding,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.ledger import Ledger, ModelCalled, ToolCallCompleted, ToolCallFailed
from turnledger.runtime import InProcessEventBus, Request, Session, ToolContext
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known

STORES = ["memory", "sqlite"]


def _or_fail(params: Add, *, context: ToolContext) -> Any:
    if params.n == 4:
        raise LookupError("four is not here")
    return adding(params, context=context)


SCRIPT = [
    calls(("a", "add", '{"n": 1}'), text="One at a time."),
    calls(("b", "add", '{"n": 2}'), ("c", "add", '{"n": 3}'), ("d", "add", '{"n": 4}')),
    says("Again.", tool_calls=calls(("a", "add", '{"n": 5}')).tool_calls, provider_data={"k": [1]}),
    calls(("e", "nothing"), ("f", "add", "no JSON")),
    says('{"total": 11}'),
]


class Whole:
    """A conversation from its first to its last event, and where it was committed."""

    def __init__(self, ledger: Ledger, width: int) -> None:
        self.session = on(ledger)
        self.versions = [self.session.journal.committed.version]
        self.width = width

        def noted(before: Known, now: Known) -> None:
            self.versions.append(now.version)

        self.session.journal.on_commit(noted)
        self.adapter = Scripted(SCRIPT, parallel_tools=width)
        self.response = self.adapter.evaluate(prompt(), session=self.session)


def prompt() -> Any:
    return prompt_of(tool(_or_fail), output=Sum)


def resumed(ledger: Ledger, run_id: UUID, width: int) -> tuple[Session, Scripted, Any]:
    """The run in a session and a journal of its own, gone on with to its end."""
    session = Session(bus=InProcessEventBus())
    session.install(Sum)
    session.attach(Journal(ledger, run_id, declarations=session.declarations))
    adapter = Scripted(SCRIPT, parallel_tools=width)
    goes_on = session.journal.progress.evaluation is not None
    return session, adapter, adapter.evaluate(prompt(), session=session, resume=goes_on)


def said_in(request: Request) -> tuple[Any, ...]:
    """All of a request but whose it is."""
    return (
        request.turn,
        request.system,
        request.turns,
        request.tools,
        request.tool_choice,
        request.response_format,
        dict(request.provider_data),
        request.digest,
    )


@pytest.mark.parametrize("width", [1, 3])
def test_what_is_sent_after_a_resume_is_what_the_whole_run_sends(
    ledger: Ledger, width: int
) -> None:
    """S0-15, S0-16, X3: at every commit, with tools one by one and side by side."""
    whole = Whole(ledger, width)
    run_id = whole.session.journal.run_id
    assert len(whole.versions) > 10
    for version in whole.versions:
        child = ledger.fork(run_id, at=version)
        session, adapter, response = resumed(ledger, child, width)
        assert response.output == whole.response.output
        assert session[Sum].all() == whole.session[Sum].all()
        for request in adapter.requests:
            assert said_in(request) == said_in(whole.adapter.requests[request.turn - 1])
        digests = {event.turn: event.request_digest for event in events(session, ModelCalled)}
        assert digests == {one.turn: one.digest for one in whole.adapter.requests}
        if version < whole.versions[-1]:  # a fork of a finished run has no output of its own
            ended = session.journal.committed.run
            assert ended.outcome_digest == whole.session.journal.committed.run.outcome_digest


def test_a_result_that_is_on_disk_is_not_got_again(ledger: Ledger) -> None:
    """S0-21: at no boundary does a call end twice."""
    whole = Whole(ledger, 1)
    for version in whole.versions:
        child = ledger.fork(whole.session.journal.run_id, at=version)
        session, _, _ = resumed(ledger, child, 1)
        ended = [(e.call_id, e.name) for e in events(session, ToolCallCompleted, ToolCallFailed)]
        assert ended == [
            ("a", "add"),
            ("b", "add"),
            ("c", "add"),
            ("d", "add"),
            ("a", "add"),
            ("e", "nothing"),
            ("f", "add"),
        ]
        sequences = [said.sequence for said in messages(session)]
        assert sequences == list(range(len(sequences)))


def test_an_id_that_is_used_again_in_a_later_turn_is_another_call(ledger: Ledger) -> None:
    """Each has its own result, and its own first attempt."""
    whole = Whole(ledger, 1)
    done = [event for event in events(whole.session, ToolCallCompleted) if event.call_id == "a"]
    assert [(event.value, event.attempt) for event in done] == [(1, 1), (5, 1)]
    assert [said.content for said in messages(whole.session) if said.tool_call_id == "a"] == [
        "Added 1.\n\n1",
        "Added 5.\n\n5",
    ]


def test_what_the_provider_sent_goes_back_with_the_next_request(ledger: Ledger) -> None:
    """By the place of its turn in the history, in this process and in another."""
    whole = Whole(ledger, 1)
    assert [dict(one.provider_data) for one in whole.adapter.requests] == [
        {},
        {},
        {},
        {6: {"k": [1]}},
        {6: {"k": [1]}},
    ]
