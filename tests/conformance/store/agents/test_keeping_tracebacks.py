"""Tracebacks of tools that raise and of runs that fail: in the event, the log and nowhere else."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest

from tests.unit.runtime.loops import ANSWER, Answer, Goal, Planner, asks, call
from turnledger.ledger import Ledger, MessageAppended, RunFailed, ToolCallFailed, new_run_id
from turnledger.runtime import ToolCall, ToolContext, replay

SECRET = "sk-ant-api03-" + "a1B2" * 24 + "AA"


def executed(ledger: Ledger, replies: Any, **options: Any) -> UUID:
    run_id = new_run_id()
    loop = Planner(replies, ledger=ledger, **options)
    assert loop.execute(Goal(), run_id=run_id)[0].output == Answer(3)
    return run_id


def failed_call(ledger: Ledger, run_id: UUID) -> ToolCallFailed:
    (event,) = [r.event for r in ledger.read(run_id) if isinstance(r.event, ToolCallFailed)]
    return event


def test_a_tool_that_raises_keeps_its_traceback(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """In the event and in the log, without secrets; the model is told what it was told before."""

    def leak(context: ToolContext) -> None:
        raise RuntimeError(f"refused with {SECRET}")

    replies = [asks(call("c1")), ANSWER]
    with caplog.at_level(logging.WARNING, "turnledger"):
        run_id = executed(ledger, replies, in_tool=leak)
    text = failed_call(ledger, run_id).traceback
    assert text.startswith("Traceback (most recent call last):")
    assert 'raise RuntimeError(f"refused with {SECRET}")' in text
    assert "tests/conformance/store/agents/test_keeping_tracebacks.py" in text
    assert "turnledger/" not in text
    assert SECRET not in text
    assert SECRET not in caplog.text
    assert all(word in caplog.text for word in (str(run_id), "c1", "in leak"))
    (told,) = [
        r.event.message.content
        for r in ledger.read(run_id)
        if isinstance(r.event, MessageAppended) and r.event.message.role == "tool"
    ]
    assert told.startswith("Tool 'step' failed: RuntimeError: refused with ")
    assert "Traceback" not in told
    fresh = Planner(replies, ledger=Ledger.open("memory://"))
    caplog.clear()
    assert replay(ledger, run_id, loop=fresh).divergence is None
    assert caplog.text == ""


def test_a_run_that_fails_keeps_its_traceback(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the user's code failed; a replay that fails alike is not a divergence."""

    class Broken(Planner):
        def create_prompt(self, request: Goal) -> Any:
            return 1 / 0

    run_id = new_run_id()
    with caplog.at_level(logging.WARNING, "turnledger"), pytest.raises(ZeroDivisionError):
        Broken(ledger=ledger).execute(Goal(), run_id=run_id)
    (event,) = [r.event for r in ledger.read(run_id) if isinstance(r.event, RunFailed)]
    assert "return 1 / 0" in event.traceback
    assert "turnledger/" not in event.traceback
    assert str(run_id) in caplog.text
    assert "return 1 / 0" in caplog.text
    caplog.clear()
    assert replay(ledger, run_id, loop=Broken(ledger=Ledger.open("memory://"))).divergence is None
    assert caplog.text == ""


def test_rejected_arguments_are_logged(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """Which call, what was wrong and what the model wrote; there is no traceback to keep."""
    wrong = asks(ToolCall("c1", "step", '{"nme": "x"}'))
    with caplog.at_level(logging.WARNING, "turnledger"):
        run_id = executed(ledger, [wrong, ANSWER])
    assert failed_call(ledger, run_id).traceback == ""
    assert all(word in caplog.text for word in (str(run_id), "c1", "Invalid parameters", '"nme"'))
